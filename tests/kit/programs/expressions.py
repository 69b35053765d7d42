"""Numbers in terms of letters: arithmetic, functions, reductions, branches."""

import re
from collections.abc import Callable

from kit.programs.conditions import Conditions
from kit.programs.parts import Letter, Text
from kit.programs.reading import Scope

ONE = ("tanh", "sigmoid", "sin", "cos", "softplus", "square", "erf", "erfc", "atan", "relu", "abs",
       "logsigmoid", "exp", "asinh")  # fmt: skip
BOUNDED = ("exp", "expm1", "sinh", "cosh", "tan", "asin", "acos")
"""Functions of a number between -0.9 and 0.9."""
ABOVE = ("log", "sqrt", "rsqrt", "log1p", "lgamma", "digamma")
"""Functions of a positive number."""
STEPS = ("sign", "floor")
LIKE_STEPS = ("ceil", "trunc", "round", "frac")
EXACT = ("relu", "abs", "square", "sign", "floor", "relu", "abs")
"""Functions that keep dyadic numbers exact."""
POSITIVE = {"exp", "cosh", "sigmoid", "softplus", "erfc", "acos"}
ALIKE = {
    **{
        "exp": ("exp2",),
        "sigmoid": ("expit",),
        "asin": ("erfinv", "atanh"),
        "log": ("log2", "log10", "acosh"),
    },
    "maximum": ("hypot", "logaddexp"),
    "minimum": ("remainder", "fmod"),
}
"""What also takes such arguments, and is positive where the first is; pairs see to that."""
EXTREMA = ("max", "min", "amax", "amin")


class Expressions(Conditions):
    """Writes expressions; a scope has the letters that one may use."""

    joins = 0
    """How many concatenations stand inside expressions."""

    def float(self, scope: Scope, depth: int) -> Text:
        """A number, in terms of the letters in scope."""
        if depth <= 0:
            return self.leaf(scope)
        table: tuple[tuple[Callable[[Scope, int], Text], int], ...] = (
            (self.sum_, 20),
            (self.product, 22),
            (self.quotient, 0 if self.exact else 9),
            (self.function, 20),
            (self.pair, 7),
            (self.power, 9),
            (self.reduction, 30),
            (self.softmax, 0 if self.exact else 7),
            (self.choice, 9),
            (self.indicator, 5),
            (self.safe, 6),
            (self.detach, 1),
            (self.joined, 2),
            (lambda s, d: self.leaf(s), 6),
        )
        chosen = self.random.choices([f for f, _ in table], [weight for _, weight in table])[0]
        return chosen(scope, depth - 1)

    # Arithmetic

    def sum_(self, scope: Scope, depth: int) -> Text:
        a, b = self.float(scope, depth), self.float(scope, depth)
        if self.chance(0.5):
            return Text(f"{a.text} + {b.inner()}", a.positive and b.positive)
        return Text(f"{a.text} - {b.inner()}" if self.chance(0.9) else f"-{a.inner()}")

    def product(self, scope: Scope, depth: int) -> Text:
        a, b = self.float(scope, depth), self.float(scope, depth)
        return Text(f"{a.inner()}*{b.inner()}", a.positive and b.positive)

    def above(self, scope: Scope, depth: int) -> Text:
        """A positive number."""
        return self.positive(self.float(scope, depth))

    def positive(self, value: Text) -> Text:
        return value if value.positive else Text(f"0.5 + {value.inner()}**2", True)

    def bounded(self, scope: Scope, depth: int) -> str:
        """A number between -0.9 and 0.9."""
        function = self.random.choice(("sin", "sin", "tanh"))
        return f"0.9*{function}({self.float(scope, depth).text})"

    def quotient(self, scope: Scope, depth: int) -> Text:
        a, b = self.float(scope, depth), self.above(scope, depth)
        if self.chance(0.5):
            return Text(f"{a.inner()}/(1 + {b.text})", a.positive)
        return Text(f"{a.inner()}/{b.inner()}", a.positive)

    def function(self, scope: Scope, depth: int) -> Text:
        pick = self.random
        if self.exact:
            return Text(f"{pick.choice(EXACT)}({self.float(scope, depth).text})")
        draw = pick.random()
        if draw < 0.3:
            name = self.or_alike(pick.choice(ABOVE))
            least = "1 + " * (name == "acosh")
            return Text(f"{name}({least}{self.above(scope, depth).text})")
        if draw < 0.5:
            name = pick.choice(BOUNDED)
            return Text(f"{self.or_alike(name)}({self.bounded(scope, depth)})", name in POSITIVE)
        if draw < 0.55:
            name, value = pick.choice(STEPS), self.float(scope, depth).text
            if name == "floor" and self.alike.random() < 0.5:
                # Times a fraction, it is no integer equation; of a sine, it fits an integer.
                return Text(f"0.5*int(floor(2*sin({value})))")
            return Text(f"{self.alike.choice((name, *LIKE_STEPS))}({value})")
        name = pick.choice(ONE)
        value = self.float(scope, depth).text
        if name == "exp":
            value = f"-({value})**2" if self.chance(0.5) else f"minimum({value}, 2)"
        return Text(f"{self.or_alike(name)}({value})", name in POSITIVE)

    def or_alike(self, name: str) -> str:
        """The function, or now and then one like it."""
        if name in ALIKE and not self.exact and self.alike.random() < 0.5:
            return self.alike.choice(ALIKE[name])
        return name

    def pair(self, scope: Scope, depth: int) -> Text:
        a, b = self.float(scope, depth), self.float(scope, depth)
        draw = self.random.random()
        if draw < 0.25:
            low, high = ("0", "1")
            if self.chance(0.3) and "concat[" not in b.text:
                low, high = b.text, f"({b.text}) + 1"
            return Text(f"clamp({a.text}, {low}, {high})")
        if draw < 0.4 and not self.exact:
            return Text(f"atan2({a.text}, {self.above(scope, depth).text})")
        name = self.or_alike(self.random.choice(("maximum", "minimum")))
        if name in ("remainder", "fmod"):
            return Text(f"{name}({a.text}, {self.positive(b).text})")
        if name == "hypot":
            # At the origin it has no slope.
            return Text(f"hypot({a.text}, {self.positive(b).text})", True)
        if name == "logaddexp":
            return Text(f"logaddexp({a.text}, {b.text})")
        return Text(f"{name}({a.text}, {b.text})", a.positive and b.positive)

    def power(self, scope: Scope, depth: int) -> Text:
        pick = self.random
        if self.exact or self.chance(0.5):
            value = self.float(scope, depth)
            sign = pick.choice(("**", "**", "^"))
            return Text(f"{value.inner()}{sign}{pick.choice(('2', '2', '3'))}", value.positive)
        base = self.above(scope, depth)
        if self.chance(0.15):
            return Text(f"{base.inner()}**{self.leaf(scope).inner()}", True)
        exponent = pick.choice(("(1/2)", "(-1)", "(-1/2)", "1.5", "(-2)", "(1/3)"))
        return Text(f"{base.inner()}**{exponent}", True)

    def detach(self, scope: Scope, depth: int) -> Text:
        value = self.float(scope, depth)
        return Text(f"detach({value.text})", value.positive)

    # Reductions

    def bind(self, scope: Scope, of: str) -> tuple[Letter, list[Letter]]:
        """A letter of that class to reduce over, and the scope inside; it may hide one outside."""
        letter = Letter(self.random.choice(self.classes[of].letters), of)
        return letter, [*(other for other in scope if other.name != letter.name), letter]

    def over(self, letter: Letter) -> Text:
        over = self.classes[letter.of].over.format(letter.name)
        return Text(over, self.setting.values == "plain" or not over.startswith(("v", "Q", "R")))

    def reads(self, text: str, letter: Letter) -> bool:
        """Whether a letter stands alone on an axis somewhere in the text."""
        return bool(re.search(rf"\w\[([^][]*,)?{re.escape(letter.name)}[],]", text))

    def reading(self, value: Text, letters: Scope, without: float = 1.0) -> Text:
        """The value, times something that reads each letter which has no size otherwise.

        Letters whose size is known are left out in a share ``without`` of the cases.
        """
        for letter in letters:
            found = self.classes[letter.of]
            known = found.group or (found.sized and letter.name == found.letters[0])
            if not self.reads(value.text, letter) and not (known and self.chance(without)):
                over = self.over(letter)
                value = Text(f"{value.inner()}*{over.inner()}", value.positive and over.positive)
        return value

    def bound(self, scope: Scope, count: int) -> tuple[list[Letter], list[Letter]]:
        """Letters of different classes to reduce over, and the scope inside."""
        inside_already = {letter.of for letter in scope}
        classes = [
            c.name
            for c in self.classes.values()
            if c.letters and not (c.group and c.name in inside_already)
        ]
        bound: list[Letter] = []
        inside = list(scope)
        for of in self.random.sample(classes, min(count, len(classes))):
            letter, inside = self.bind(inside, of)
            bound.append(letter)
        return bound, inside

    def reduction(self, scope: Scope, depth: int) -> Text:
        pick = self.random
        bound, inside = self.bound(scope, 1 if self.chance(0.8) else 2)
        value = self.float(inside, depth)
        kinds = (("sum", 12), ("prod", 2), *((kind, 1.5) for kind in EXTREMA))
        if not self.exact:
            kinds = (*kinds, ("mean", 4), ("logsumexp", 4))
        kind = pick.choices([k for k, _ in kinds], [weight for _, weight in kinds])[0]
        if kind == "mean" and self.alike.random() < 0.4:
            kind = "norm2"
        value = self.reading(value, bound, 0.1)
        if kind == "logsumexp":
            value = Text(f"2*sin({value.text})")
        elif kind == "prod" and self.chance(0.5) and not self.exact:
            value = Text(f"1 + 0.1*sin({value.text})", True)
        head = ",".join(letter.name for letter in bound)
        condition = self.taken(scope, inside, bound)
        if kind == "sum" and self.alike.random() < 0.1:
            condition, value = self.weighted(scope, inside, bound, value) or (condition, value)
        if condition:
            head += f" | {condition}"
            if kind in (*EXTREMA, "logsumexp") and self.chance(0.15):
                head = ",".join(letter.name for letter in bound)
                empty = "inf" if kind in ("min", "amin") else "-inf"
                value = Text(f"where({condition}, {value.text}, {empty})")
        positive = value.positive and kind not in ("logsumexp", "norm2")
        if kind == "sum" and condition:
            positive = False
        made = Text(f"{kind}[{head}]({value.text})", positive)
        if condition and scope and self.chance(0.15):
            # What is reduced may be nothing: the branch not taken is infinite or nan.
            letter = pick.choice(self.named(scope) or [Letter("0", "")])
            return Text(f"where({letter.name} >= 1, {made.text}, {self.leaf(scope).text})")
        return made

    def weighted(
        self, scope: Scope, inside: Scope, bound: list[Letter], value: Text
    ) -> tuple[str, Text] | None:
        """A sum over what comes before a letter, weighted by a product or a sum between."""
        pick = self.alike
        hidden = {letter.name for letter in bound}
        outside = [t for t in self.named(scope) if t.name not in hidden]
        ends = [(k, t) for k in bound for t in outside if k.of == t.of]
        if not ends:
            return None
        low, high = pick.choice(ends)[:: pick.choice((1, -1))]
        free = [a for a in self.classes[low.of].letters if all(a != b.name for b in inside)]
        if not free:
            return None
        order, first, last = (pick.choice(("<", "<=")) for _ in range(3))
        k = free[0]
        element = self.leaf([Letter(k, low.of)]).text
        head = f"[{k} | {low.name} {first} {k} and {k} {last} {high.name}]"
        if self.exact or pick.random() < 0.7:
            weight = f"prod{head}({element})"
        else:
            weight = f"exp(-sum{head}(0.3*{element}))"
        return f"{low.name} {order} {high.name}", Text(f"{value.inner()}*{weight}")

    def taken(self, scope: Scope, inside: Scope, bound: list[Letter]) -> str:
        """A condition on what is reduced, or none."""
        sides = [w for letter in bound if (w := self.on_one_side(letter, scope))]
        if sides and self.chance(0.1):
            return sides[0]
        windows = [w for letter in bound if (w := self.windowed(letter, scope))]
        if windows and self.chance(0.45):
            return windows[0]
        return self.condition(inside, 1) if self.chance(0.15) else ""

    def on_one_side(self, letter: Letter, scope: Scope) -> str | None:
        """A comparison of what the letter numbers with what another letter numbers."""
        others = [a for a in self.named(scope) if a.name != letter.name]
        if not others or self.classes[letter.of].group:
            return None
        values = self.over(letter).inner(), self.over(self.random.choice(others)).inner()
        return f" {self.random.choice(('<', '<=', '>', '>='))} ".join(self.random.sample(values, 2))

    def softmax(self, scope: Scope, depth: int) -> Text:
        if not scope:
            return self.leaf(scope)
        letter = self.random.choice(list(scope))
        value = self.float(scope, depth)
        name = self.random.choice(("softmax", "softmax", "log_softmax"))
        over = self.over(letter).inner()
        head = letter.name
        if self.chance(0.15):
            head += f" | {self.condition(scope, 1)}"
        elif (window := self.windowed(letter, scope)) and self.chance(0.4):
            head += f" | {window}"
        elif (side := self.on_one_side(letter, scope)) and self.chance(0.1):
            head += f" | {side}"
        text = f"{name}[{head}](sin({value.text})*{over})"
        return Text(text, name == "softmax" and head == letter.name)

    # Branches

    def choice(self, scope: Scope, depth: int) -> Text:
        a, b = self.float(scope, depth), self.float(scope, depth)
        if self.chance(0.4):
            guarded = self.guarded(scope)
            if guarded:
                return self.where_guarded(*guarded, b)
        text = f"where({self.condition(scope, 2)}, {a.text}, {b.text})"
        return Text(text, a.positive and b.positive)

    def where_guarded(self, condition: str, read: Text, other: Text) -> Text:
        """An access that may be out of bounds, not made where it is."""
        draw = self.random.random()
        if draw < 0.5:
            return Text(f"where({condition}, {read.text}, {other.text})")
        if draw < 0.6:
            return Text(f"where(not ({condition}), {other.text}, {read.text})")
        if draw < 0.7:
            return Text(f"where({condition} and {read.text} > 0.8, {other.text}, 1)")
        return Text(f"[{condition}]*{read.text}*{other.inner()}")

    def indicator(self, scope: Scope, depth: int) -> Text:
        value = self.float(scope, depth)
        return Text(f"[{self.condition(scope, 1)}]*{value.inner()}")

    def safe(self, scope: Scope, depth: int) -> Text:
        """A function asked only where it is defined, or a sum over what is in bounds."""
        bound, inside = self.bound(scope, 1)
        guarded = self.guarded(inside)
        if guarded and self.chance(0.5):
            condition, read = guarded
            value = self.reading(Text(f"{read.text}*{self.leaf(inside).inner()}"), bound)
            return Text(f"sum[{bound[0].name} | {condition}]({value.text})")
        value = self.float(scope, depth)
        if "concat[" in value.text:
            # Written twice, its letter would have two sizes.
            value = self.leaf(scope)
        if self.exact:
            return Text(f"where({value.text} > 0, {value.inner()}**2, 0)")
        name = self.random.choice(("log", "sqrt", "rsqrt"))
        if self.chance(0.5):
            return Text(f"[{value.inner()} > 0.1]*{name}({value.text})")
        return Text(f"where({value.inner()} > 0.1, {name}({value.text}), {self.leaf(scope).text})")

    def joined(self, scope: Scope, depth: int) -> Text:
        """A reduction of tensors joined along a letter, which has a class of its own in each."""
        classes = [n for n in self.setting.single() if len(self.classes[n].letters) > 1]
        if not classes:
            return self.leaf(scope)
        parts = []
        self.joins += 1
        name = f"w{self.joins}"
        for of in self.random.choices(classes, k=self.random.choice((2, 2, 3))):
            inner = Letter(name, of)
            value = self.float([*scope, inner], depth - 1)
            parts.append(self.reading(value, [inner]))
        joined = f"concat[{name}]({', '.join(p.text for p in parts)})"
        kind = self.random.choice(("sum", "max", "amax"))
        positive = all(p.positive for p in parts)
        return Text(f"{kind}[{name}]({joined})", positive and self.setting.values == "plain")

"""Random operations in text notation, the same ones for the same seed.

Every class of indices has a size of its own, so that a transposition or a wrong batch axis
changes the result. Values stay in the domains of the functions and away from overflow; a
program may still stand next to a kink, so that a difference there means little.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

SIZES = {"i": 3, "j": 4, "k": 2, "l": 5}
LETTERS = {"i": "iab", "j": "jcd", "k": "kef", "l": "lgh"}
"""The letters of each class; only the first stands on the op line."""
WHOLE = ("noq", "rtu")
"""The letters of composite classes, in the order in which a program has them."""
GROUP = "*p"


@dataclass(frozen=True)
class Letter:
    """An index and the class that it belongs to: one of ``SIZES``, a composite or the group."""

    name: str
    of: str


@dataclass(frozen=True)
class Table:
    """Something that can be read: an input or an equation."""

    name: str
    axes: tuple[str, ...]
    """A class for each axis; ``(i j)`` for a composite of two."""
    kind: str = "float"
    target: str = ""
    """The class that the values of an integer table belong to."""
    positive: bool = False


@dataclass(frozen=True)
class Program:
    """A text with arrays to run it on."""

    seed: int
    text: str
    tensors: dict[str, np.ndarray]
    parameters: dict[str, float]
    detached: bool


@dataclass(frozen=True)
class Text:
    """An expression, and whether its value is certainly positive."""

    text: str
    positive: bool = False

    def inner(self) -> str:
        """The text as an operand."""
        simple = re.fullmatch(r"[\w.]+(\[[^][]*\]|\([^()]*\))?", self.text)
        return self.text if simple else f"({self.text})"


@dataclass
class _Writer:
    """Writes one program."""

    random: random.Random
    classes: list[str]
    rank: int
    """The number of axes of the group; -1 where there is none."""
    composites: list[str] = field(default_factory=list)
    """Composite classes that are read by letters of their own: ``(i j)``."""
    inputs: list[Table] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    detached: bool = False

    # Declarations

    def declare(self) -> None:
        """One vector for each class, which gives its size, and a few tensors more."""
        pick = self.random
        for of in self.classes:
            self.add(Table(f"v{of}", (of,), positive=True))
        for n in range(pick.randint(1, 3)):
            axes = tuple(pick.choices(self.classes, k=pick.choice((0, 1, 2, 2, 2, 3))))
            if self.rank >= 0 and pick.random() < 0.5:
                at = pick.randint(0, len(axes))
                axes = (*axes[:at], GROUP, *axes[at:])
            self.add(Table(f"X{n}", axes, positive=True))
        if self.rank >= 0:
            self.add(Table("Q", (GROUP,), positive=True))
        if pick.random() < 0.4:
            axes = tuple(pick.choices(self.classes, k=pick.choice((1, 1, 2))))
            self.add(Table("T", axes, "int", pick.choice(self.classes)))
        if pick.random() < 0.25:
            self.add(Table("U", (pick.choice(self.classes),), "int", pick.choice(self.classes)))
        if pick.random() < 0.3:
            self.add(Table("m", tuple(pick.choices(self.classes, k=pick.choice((1, 2)))), "bool"))
        for of in self.composites:
            self.add(Table(self.own(of), (of,), positive=True))
            others = pick.choices([*self.classes, of], k=pick.choice((0, 1)))
            self.add(Table(f"W{self.own(of)}", (of, *others), positive=True))
            if pick.random() < 0.3:
                self.add(Table(f"T{self.own(of)}", (pick.choice(self.classes),), "int", of))
        if len(self.classes) > 1 and pick.random() < 0.15:
            self.add(Table("R", (f"({' '.join(pick.sample(self.classes, 2))})",), positive=True))
        if pick.random() < 0.3:
            self.numbers.append("s")

    def add(self, table: Table) -> None:
        self.inputs.append(table)
        self.tables.append(table)

    def own(self, of: str) -> str:
        """The vector of a composite class."""
        return f"R{self.composites.index(of)}"

    def letters(self, of: str) -> str:
        """The letters of a class."""
        return LETTERS[of] if of in LETTERS else WHOLE[self.composites.index(of)]

    # Expressions

    def float(self, scope: Sequence[Letter], depth: int) -> Text:
        """A number, in terms of the letters in scope."""
        if depth <= 0:
            return self.leaf(scope)
        chosen = self.random.choices(
            (
                self.sum_, self.product, self.quotient, self.function, self.power, self.reduction,
                self.softmax, self.choice, self.indicator, self.pair, self.detach, self.leaf_,
            ),
            (20, 22, 10, 18, 10, 26, 6, 8, 5, 4, 1, 6),
        )[0]  # fmt: skip
        return chosen(scope, depth - 1)

    def leaf_(self, scope: Sequence[Letter], depth: int) -> Text:
        return self.leaf(scope)

    def leaf(self, scope: Sequence[Letter]) -> Text:
        draw = self.random.random()
        if draw < 0.04:
            return Text(self.random.choice(("2", "0.5", "3", "1/3", "pi")), True)
        if draw < 0.07 and self.numbers:
            return Text(self.random.choice(self.numbers), True)
        named = [letter for letter in scope if letter.of != GROUP]
        if draw < 0.1 and named:
            return Text(f"({self.random.choice(named).name} + 1)", True)
        if draw < 0.12 and named:
            return Text(f"size({self.random.choice(named).name})", True)
        tables = [t for t in self.tables if t.kind == "float" and self.fits(t, scope)]
        weights = [1 + 2 * len(t.axes) + 2 * t.name.startswith("e") for t in tables]
        table = self.random.choices(tables, weights)[0]
        return Text(self.access(table, scope), table.positive)

    def fits(self, table: Table, scope: Sequence[Letter]) -> bool:
        return GROUP not in table.axes or any(letter.of == GROUP for letter in scope)

    def access(self, table: Table, scope: Sequence[Letter], nested: bool = False) -> str:
        """The table read at letters in scope, or at constants, through integers, or shifted."""
        if not table.axes:
            return table.name
        return f"{table.name}[{','.join(self.position(a, scope, nested) for a in table.axes)}]"

    def position(self, axis: str, scope: Sequence[Letter], nested: bool) -> str:
        if axis == GROUP:
            return GROUP
        if axis.startswith("(") and not self.is_whole(axis, scope):
            parts = [self.letter(of, scope) for of in axis[1:-1].split()]
            if axis in self.composites and None in parts:
                return str(self.random.randrange(size_of(axis)))
            return f"({' '.join(part or '0' for part in parts)})"
        draw = self.random.random()
        through = [
            t
            for t in self.tables
            if t.kind == "int" and t.target == axis and self.fits(t, scope)
            if all(self.letter(of, scope) for of in t.axes if of != GROUP)
        ]
        if through and not nested and draw < 0.5:
            return self.access(self.random.choice(through), scope, nested=True)
        letter = self.letter(axis, scope)
        if letter is None:
            return str(self.random.randrange(size_of(axis)))
        if draw > 0.96 and not nested:
            return f"size({letter})-1-{letter}"
        return letter

    def is_whole(self, axis: str, scope: Sequence[Letter]) -> bool:
        """Whether a composite axis is read by one position."""
        if axis not in self.composites:
            return False
        return self.letter(axis, scope) is not None or self.random.random() < 0.2

    def letter(self, of: str, scope: Sequence[Letter]) -> str | None:
        """A letter of that class, the innermost first."""
        letters = [letter.name for letter in scope if letter.of == of]
        if not letters:
            return None
        return letters[-1] if self.random.random() < 0.7 else self.random.choice(letters)

    def sum_(self, scope: Sequence[Letter], depth: int) -> Text:
        a, b = self.float(scope, depth), self.float(scope, depth)
        if self.random.random() < 0.5:
            return Text(f"{a.text} + {b.text}", a.positive and b.positive)
        return Text(f"{a.text} - {b.inner()}")

    def product(self, scope: Sequence[Letter], depth: int) -> Text:
        a, b = self.float(scope, depth), self.float(scope, depth)
        return Text(f"{a.inner()}*{b.inner()}", a.positive and b.positive)

    def above(self, scope: Sequence[Letter], depth: int) -> Text:
        """A positive number."""
        value = self.float(scope, depth)
        return value if value.positive else Text(f"0.5 + {value.inner()}**2", True)

    def quotient(self, scope: Sequence[Letter], depth: int) -> Text:
        a, b = self.float(scope, depth), self.above(scope, depth)
        if self.random.random() < 0.5:
            return Text(f"{a.inner()}/(1 + {b.text})", a.positive)
        return Text(f"{a.inner()}/{b.inner()}", a.positive)

    def function(self, scope: Sequence[Letter], depth: int) -> Text:
        pick = self.random
        if pick.random() < 0.3:
            return Text(f"{pick.choice(('log', 'sqrt', 'rsqrt', 'log1p', 'lgamma'))}"
                        f"({self.above(scope, depth).text})")  # fmt: skip
        name = pick.choice(
            ["exp"] * 2
            + "tanh sigmoid sin cos softplus square erf atan relu abs logsigmoid expm1 sinh".split()
        )
        value = self.float(scope, depth)
        if name in ("exp", "expm1", "sinh") and pick.random() < 0.7:
            value = Text(f"sin({value.text})")
        return Text(f"{name}({value.text})", name in ("exp", "sigmoid", "softplus"))

    def power(self, scope: Sequence[Letter], depth: int) -> Text:
        pick = self.random
        if pick.random() < 0.5:
            value = self.float(scope, depth)
            exponent = pick.choice(("2", "2", "3"))
            return Text(f"{value.inner()}**{exponent}", value.positive)
        base = self.above(scope, depth)
        if pick.random() < 0.15:
            return Text(f"{base.inner()}**{self.leaf(scope).inner()}", True)
        exponent = pick.choice(("(1/2)", "(-1)", "(-1/2)", "1.5", "(-2)", "(1/3)"))
        return Text(f"{base.inner()}**{exponent}", True)

    def bind(self, scope: Sequence[Letter], of: str) -> tuple[Letter, list[Letter]]:
        """A letter of that class to sum over, and the scope inside; it may hide one outside."""
        if of == GROUP:
            return Letter(GROUP, GROUP), [*scope, Letter(GROUP, GROUP)]
        name = self.random.choice(self.letters(of))
        letter = Letter(name, of)
        return letter, [*(other for other in scope if other.name != name), letter]

    def reduction(self, scope: Sequence[Letter], depth: int) -> Text:
        pick = self.random
        classes = [*self.classes, *self.composites]
        if self.rank >= 0 and all(letter.of != GROUP for letter in scope):
            classes += [GROUP]
        count = 1 if pick.random() < 0.8 else 2
        bound: list[Letter] = []
        inside = list(scope)
        for of in pick.sample(classes, min(count, len(classes))):
            letter, inside = self.bind(inside, of)
            bound.append(letter)
        value = self.float(inside, depth)
        text, positive = value.text, value.positive
        for letter in bound:
            if not re.search(rf"\w\[([^][]*,)?{re.escape(letter.name)}[],]", text):
                text = f"{Text(text).inner()}*{self.over(letter)}"
        kind = pick.choices(
            ("sum", "mean", "prod", "max", "min", "amax", "amin", "logsumexp"),
            (12, 4, 1, 1, 1, 1, 1, 3),
        )[0]
        if kind in ("prod", "logsumexp"):
            text = f"sin({text})" if kind == "logsumexp" else f"1 + 0.1*sin({text})"
            positive = kind == "prod"
        head = ",".join(letter.name for letter in bound)
        if kind in ("sum", "prod") and pick.random() < 0.2:
            head += f" | {self.condition(inside, 1)}"
            positive = positive and kind == "prod"
        return Text(f"{kind}[{head}]({text})", positive and kind != "logsumexp")

    def over(self, letter: Letter) -> str:
        if letter.of in self.composites:
            return f"{self.own(letter.of)}[{letter.name}]"
        return "Q[*p]" if letter.of == GROUP else f"v{letter.of}[{letter.name}]"

    def softmax(self, scope: Sequence[Letter], depth: int) -> Text:
        if not scope:
            return self.leaf(scope)
        letter = self.random.choice(list(scope))
        value = self.float(scope, depth)
        name = self.random.choice(("softmax", "softmax", "log_softmax"))
        text = f"{name}[{letter.name}](sin({value.text})*{self.over(letter)})"
        return Text(text, name == "softmax")

    def choice(self, scope: Sequence[Letter], depth: int) -> Text:
        a, b = self.float(scope, depth), self.float(scope, depth)
        if self.random.random() < 0.3:
            shifted = self.shifted(scope)
            if shifted:
                return Text(f"where({shifted[0]}, {shifted[1]}, {b.text})")
        text = f"where({self.condition(scope, 2)}, {a.text}, {b.text})"
        return Text(text, a.positive and b.positive)

    def shifted(self, scope: Sequence[Letter]) -> tuple[str, str] | None:
        """A guard, and an access that it keeps in bounds."""
        letters = [letter for letter in scope if letter.of != GROUP]
        tables = [t for t in self.tables if t.kind == "float" and self.fits(t, scope)]
        tables = [t for t in tables if any(letter.of in t.axes for letter in letters)]
        if not tables:
            return None
        table = self.random.choice(tables)
        letter = self.random.choice([letter for letter in letters if letter.of in table.axes])
        condition, at = self.random.choice(
            (("{0} >= 1", "{0}-1"), ("{0}+1 < size({0})", "{0}+1"), ("{0} < 1", "{0}+1"))
        )
        done = False
        positions = []
        for axis in table.axes:
            if axis == letter.of and not done:
                positions.append(at.format(letter.name))
                done = True
            else:
                positions.append(self.position(axis, scope, True))
        return condition.format(letter.name), f"{table.name}[{','.join(positions)}]"

    def indicator(self, scope: Sequence[Letter], depth: int) -> Text:
        value = self.float(scope, depth)
        return Text(f"[{self.condition(scope, 1)}]*{value.inner()}")

    def pair(self, scope: Sequence[Letter], depth: int) -> Text:
        a, b = self.float(scope, depth), self.float(scope, depth)
        name = self.random.choice(("maximum", "minimum"))
        return Text(f"{name}({a.text}, {b.text})", a.positive and b.positive)

    def detach(self, scope: Sequence[Letter], depth: int) -> Text:
        self.detached = True
        value = self.float(scope, depth)
        return Text(f"detach({value.text})", value.positive)

    # Conditions

    def condition(self, scope: Sequence[Letter], depth: int) -> str:
        pick = self.random
        if depth > 0 and pick.random() < 0.3:
            a, b = self.condition(scope, depth - 1), self.condition(scope, depth - 1)
            return pick.choice((f"({a}) and ({b})", f"({a}) or ({b})", f"not ({a})"))
        made: list[Callable[[], str]] = []
        letters = [letter.name for letter in scope if letter.of != GROUP]
        relation = pick.choice(("==", "!=", "<", "<=", ">", ">="))
        if letters:
            made += [lambda: f"{pick.choice(letters)} {relation} 1"]
        if len(letters) > 1:
            made += [lambda: f" {relation} ".join(pick.sample(letters, 2))] * 3
        flags = [t for t in self.tables if t.kind == "bool" and self.fits(t, scope)]
        if flags:
            made += [lambda: self.access(pick.choice(flags), scope)] * 3
        ints = [t for t in self.tables if t.kind == "int" and self.fits(t, scope)]
        for table in ints:
            letter = self.letter(table.target, scope)
            if letter:
                made += [lambda t=table, s=letter: f"{self.access(t, scope, True)} == {s}"] * 2
        made += [lambda: f"{self.leaf(scope).text} {pick.choice('<>')} 0.8"]
        return pick.choice(made)()

    # Equations

    def equations(self) -> Iterator[str]:
        pick = self.random
        count = pick.choice((1, 1, 1, 2, 2, 3, 4))
        for n in range(count):
            last = n == count - 1
            if not last and pick.random() < 0.12:
                yield self.winner(n)
            elif pick.random() < 0.12 and any(t.kind == "int" for t in self.tables):
                yield self.scattered(n)
            else:
                yield self.plain(n, last)

    def left(self, most: int) -> list[Letter]:
        classes = self.random.sample(
            self.classes, self.random.randint(0, min(most, len(self.classes)))
        )
        scope = [Letter(of, of) for of in classes]
        if self.composites and self.random.random() < 0.3:
            of = self.random.choice(self.composites)
            at = self.random.randint(0, len(scope))
            scope.insert(at, Letter(self.letters(of)[0], of))
        if self.rank >= 0 and self.random.random() < 0.5:
            scope.insert(self.random.randint(0, len(scope)), Letter(GROUP, GROUP))
        return scope

    def plain(self, n: int, last: bool) -> str:
        scope = self.left(3)
        value = self.float(scope, self.random.choice((1, 2, 2, 3, 3, 4)))
        axes = [letter.name for letter in scope]
        named = [a for a in axes if a != GROUP]
        if last and axes == named and len(axes) > 1 and self.random.random() < 0.08:
            axes = [f"({' '.join(axes[:2])})", *axes[2:]]
        elif self.is_made(named, axes):
            (of,) = (of for of in self.composites if of[1:-1].split() == named[:2])
            axes = [of, *axes[2:]]
            others = (letter.of for letter in scope[2:])
            self.tables.append(Table(f"e{n}", (of, *others), positive=value.positive))
        elif last and self.random.random() < 0.05:
            axes.insert(self.random.randint(0, len(axes)), "0")
        else:
            of = tuple(letter.of for letter in scope)
            self.tables.append(Table(f"e{n}", of, positive=value.positive))
        left = f"e{n}[{','.join(axes)}]" if axes else f"e{n}"
        return f"{left} = {value.text}"

    def is_made(self, named: Sequence[str], axes: Sequence[str]) -> bool:
        """Whether the first two axes of an equation are written as one."""
        known = [of[1:-1].split() for of in self.composites]
        return list(named) == list(axes) and named[:2] in known and self.random.random() < 0.8

    def winner(self, n: int) -> str:
        scope = self.left(2)
        of = self.random.choice([*self.classes, *self.composites])
        letter, inside = self.bind(scope, of)
        value = self.float(inside, 2)
        left = ",".join(letter.name for letter in scope)
        self.tables.append(Table(f"e{n}", tuple(a.of for a in scope), "int", of))
        kind = self.random.choice(("argmax", "argmin"))
        body = f"{kind}[{letter.name}]({value.inner()}*{self.over(letter)})"
        return f"e{n}[{left}] = {body}" if left else f"e{n} = {body}"

    def scattered(self, n: int) -> str:
        """A sum over all positions that an integer table sends to the same place."""
        pick = self.random
        table = pick.choice([t for t in self.tables if t.kind == "int"])
        outside = [a for a in self.left(2) if a.of == GROUP or a.of not in table.axes]
        whole = table.target in self.composites
        target = Letter(self.letters(table.target)[0] if whole else table.target, table.target)
        scope = [a for a in outside if a.of not in (table.target, GROUP)]
        if GROUP in table.axes:
            scope.append(Letter(GROUP, GROUP))
        else:
            scope += [a for a in outside if a.of == GROUP]
        left = [target, *scope]
        inside = list(left)
        bound: list[Letter] = []
        at: list[str] = []
        for axis in table.axes:
            if axis == GROUP:
                at.append(GROUP)
                continue
            free = [a for a in self.letters(axis)[1:] if a not in at]
            letter = Letter(free[0], axis)
            bound.append(letter)
            inside.append(letter)
            at.append(letter.name)
        value = self.float(inside, 2)
        read = f"{table.name}[{','.join(at)}]" if at else table.name
        head = ",".join(a.name for a in left)
        self.tables.append(Table(f"e{n}", tuple(a.of for a in left)))
        if not bound:
            return f"e{n}[{head}] = [{read} == {target.name}]*{value.inner()}"
        over = ",".join(a.name for a in bound)
        if pick.random() < 0.5:
            return f"e{n}[{head}] = sum[{over} | {read} == {target.name}]({value.text})"
        return f"e{n}[{head}] = sum[{over}]([{read} == {target.name}]*{value.inner()})"

    # Data

    def line(self, tables: Sequence[Table]) -> str:
        shown = []
        own = [self.own(of) for of in self.composites]
        for table in tables:
            # The vector of a composite class gives its letters their size, as v does.
            on_line = self.whole if table.name in own else self.on_line
            axes = [on_line(axis) for axis in table.axes]
            text = f"{table.name}[{','.join(axes)}]" if axes else table.name
            shown.append(text + {"float": "", "int": ": int", "bool": ": bool"}[table.kind])
        numbers = "".join(f"{name}=0.7" for name in self.numbers)
        return ", ".join(shown) + (f"; {numbers}" if numbers else "")

    def on_line(self, axis: str) -> str:
        return self.whole(axis) if self.random.random() < 0.3 else axis

    def whole(self, axis: str) -> str:
        return self.letters(axis)[0] if axis in self.composites else axis

    def shape(self, table: Table) -> tuple[int, ...]:
        shape: list[int] = []
        for axis in table.axes:
            if axis == GROUP:
                shape += (2, 6)[: self.rank]
            elif axis.startswith("("):
                shape.append(size_of(axis))
            else:
                shape.append(SIZES[axis])
        return tuple(shape)

    def array(self, table: Table, generator: np.random.Generator) -> np.ndarray:
        shape = self.shape(table)
        if table.kind == "int":
            return generator.integers(0, size_of(table.target), shape)
        if table.kind == "bool":
            return generator.random(shape) < 0.6
        return generator.uniform(0.3, 1.3, shape)


def size_of(of: str) -> int:
    """The number of values of a class."""
    return prod(SIZES[part] for part in of.strip("()").split())


def random_program(seed: int, sample: int = 0) -> Program:
    """The program of that seed; ``sample`` draws other values for the same text."""
    pick = random.Random(seed)
    classes = pick.sample(list(SIZES), pick.choice((1, 2, 2, 3, 3)))
    rank = pick.choice((0, 1, 2)) if pick.random() < 0.25 else -1
    whole = random.Random(f"composite {seed}")
    composites: list[str] = []
    if len(classes) > 1 and whole.random() < 0.25:
        pairs = {f"({' '.join(whole.sample(classes, 2))})" for _ in range(whole.choice((1, 1, 2)))}
        composites = sorted(pairs)
    writer = _Writer(pick, classes, rank, composites)
    writer.declare()
    equations = list(writer.equations())
    names = [equation.split("[")[0].split(" ")[0] for equation in equations]
    outputs = [name for name in names[:-1] if pick.random() < 0.3] + names[-1:]
    body = "\n".join(equations)
    keep = {f"v{of}" for of in classes} | ({"Q"} if rank >= 0 else set())
    keep |= {writer.own(of) for of in composites}
    used = [t for t in writer.inputs if t.name in keep or re.search(rf"\b{t.name}\b", body)]
    text = f"op f({writer.line(used)}) -> {', '.join(outputs)}\n{body}"
    generator = np.random.default_rng((seed, sample))
    tensors = {table.name: writer.array(table, generator) for table in used}
    parameters = {name: 0.7 for name in writer.numbers}
    return Program(seed, text, tensors, parameters, writer.detached)

"""Equations: plain ones, winners, truth values, integers, scatters, windows, concatenations."""

import re
from collections.abc import Iterator

from kit.programs.expressions import Expressions
from kit.programs.parts import Class, Letter, Table, Text
from kit.programs.reading import Scope

FRESH = "xyz"
"""The letters of classes that equations make, with the number of the equation."""


class Equations(Expressions):
    """Writes the equations of a program, each a table that later ones read."""

    def equations(self) -> Iterator[str]:
        count = self.random.choice((1, 1, 1, 2, 2, 3, 4))
        for n in range(count):
            yield self.equation(n, n == count - 1)

    def equation(self, n: int, last: bool) -> str:
        draw = self.random.random()
        if draw < (0.03 if last else 0.12):
            return self.winner(n)
        if draw < (0.04 if last else 0.16):
            return self.truth(n)
        if 0.16 < draw < 0.2 and not last:
            made = self.ranks(n)
            if made:
                return made
        if 0.2 < draw < 0.28 and not last:
            made = self.whole_numbers(n)
            if made:
                return made
        if 0.28 < draw < 0.40 and any(t.kind == "int" for t in self.tables):
            made = self.scattered(n)
            if made:
                return made
        if 0.40 < draw < 0.53:
            made = self.window(n)
            if made:
                return made
        if 0.53 < draw < 0.58:
            made = self.concatenated(n)
            if made:
                return made
        return self.plain(n, last)

    def left(self, most: int) -> list[Letter]:
        """Letters for a left side, each the first of its class."""
        pick = self.random
        single = [
            c.name for c in self.classes.values() if not c.group and not c.parts and c.letters
        ]
        classes = pick.sample(single, pick.randint(0, min(most, len(single))))
        scope = [Letter(self.classes[of].letters[0], of) for of in classes]
        composites = self.setting.composites()
        if composites and self.chance(0.3):
            of = pick.choice(composites)
            scope.insert(pick.randint(0, len(scope)), Letter(self.classes[of].letters[0], of))
        layout = self.setting.layout
        if layout and self.chance(0.8):
            # Mostly in the order of the axes as given.
            kept = [of for of in layout if self.chance(0.7)]
            letters = [Letter(of, of) for of in kept]
            others = [a for a in scope if a.of not in layout]
            return letters + others if self.chance(0.5) else letters
        for group in self.setting.groups():
            if self.chance(0.5):
                scope.insert(pick.randint(0, len(scope)), Letter(group, group))
        return scope

    def keep(self, n: int, scope: Scope, text: Text, **more: str) -> str:
        """The equation, noted as a table."""
        axes = [letter.name for letter in scope]
        of = tuple(letter.of for letter in scope)
        self.tables.append(Table(f"e{n}", of, positive=text.positive, **more))
        return f"{_head(n, axes)} = {text.text}"

    def plain(self, n: int, last: bool) -> str:
        scope = self.left(3)
        value = self.reading(self.float(scope, self.random.choice((1, 2, 2, 3, 3, 4))), scope)
        axes = [letter.name for letter in scope]
        single = [a for a in scope if a.name in self.setting.single()]
        if self.is_made(scope):
            (of,) = (
                of for of in self.setting.composites() if self.classes[of].parts == tuple(axes[:2])
            )
            left = (of, *(a.of for a in scope[2:]))
            self.tables.append(Table(f"e{n}", left, positive=value.positive, split=True))
            return f"{_head(n, [of, *axes[2:]])} = {value.text}"
        if last and len(scope) > 1 and single == scope and self.chance(0.08):
            return f"{_head(n, [f'({axes[0]} {axes[1]})', *axes[2:]])} = {value.text}"
        if self.chance(0.06):
            self.classes["one"] = Class("one", 1, (), "1")
            at = self.random.randint(0, len(scope))
            left = tuple(a.of for a in scope)
            self.tables.append(Table(f"e{n}", (*left[:at], "one", *left[at:])))
            return f"{_head(n, [*axes[:at], '0', *axes[at:]])} = {value.text}"
        return self.keep(n, scope, value)

    def is_made(self, scope: Scope) -> bool:
        """Whether the first two axes of an equation are written as one."""
        known = [self.classes[of].parts for of in self.setting.composites()]
        names = tuple(a.name for a in scope)
        if any(self.classes[a.of].group for a in scope):
            return False
        return names[:2] in known and self.chance(0.8)

    def winner(self, n: int) -> str:
        scope = self.left(2)
        classes = [c.name for c in self.classes.values() if not c.group and c.letters and c.count]
        if not classes:
            return self.plain(n, False)
        of = self.random.choice(classes)
        letter, inside = self.bind(scope, of)
        value = self.float(inside, 2)
        scope = [a for a in scope if a.name != letter.name]
        head = letter.name
        window = self.windowed(letter, scope)
        if window and self.chance(0.6):
            head += f" | {window}"
        kind = self.random.choice(("argmax", "argmin"))
        body = f"{kind}[{head}]({value.inner()}*{self.over(letter).inner()})"
        return self.keep(n, scope, Text(body), kind="int", target=of)

    def truth(self, n: int) -> str:
        scope = self.left(2)
        if self.named(scope) and self.chance(0.4):
            text = self.quantified(scope)
        else:
            text = self.condition(scope, 1)
            for letter in scope:
                if not self.reads(text, letter) and not self.classes[letter.of].group:
                    text = f"({text}) and {self.over(letter).text} < 9"
        return self.keep(n, scope, Text(text), kind="bool")

    def ranks(self, n: int) -> str | None:
        """The number of positions whose value comes before that of each.

        The value is a product at most: a function rounds by its place in memory.
        """
        classes = [of for of in self.setting.single() if len(self.classes[of].letters) > 1]
        if not classes:
            return None
        of = self.random.choice(classes)
        letter = Letter(self.classes[of].letters[0], of)
        scope = [*(a for a in self.left(2) if a.of != of), letter]
        value = self.float(scope, 0).inner()
        if not self.reads(value, letter):
            value = f"{Text(value).inner()}*{self.over(letter).inner()}"
        free = [a for a in self.classes[of].letters[1:] if not re.search(rf"\b{a}\b", value)]
        if not free or "concat" in value:
            return None
        there = re.sub(rf"\b{letter.name}\b", free[0], value)
        before = f"{there} {self.random.choice('<>')} {value}"
        tied = f"{there} == {value} and {free[0]} < {letter.name}"
        body = f"sum[{free[0]}]([{before} or {tied}])"
        return self.keep(n, scope, Text(body), kind="int", target=of)

    def whole_numbers(self, n: int) -> str | None:
        """Positions computed from integers: ``p[n,k] = off[n] + k``."""
        made = [t for t in self.tables if t.kind == "int" and t.low == 0]
        if not made:
            return None
        table = self.random.choice([t for t in made if t.span] or made)
        axes = tuple(dict.fromkeys(table.axes))
        scope = [Letter(self.classes[of].letters[0], of) for of in axes]
        read = self.access(table, scope, nested=True)
        if table.span and table.span not in axes:
            scope.append(Letter(self.classes[table.span].letters[0], table.span))
            body = f"{read} + {scope[-1].name}"
        else:
            size = self.classes[table.target].count
            forms = ("maximum({0}-1, 0)", f"minimum({{0}}+1, {size - 1})", f"{size - 1}-{{0}}",
                     f"where({{0}} == 0, {size - 1}, {{0}})", f"clamp({{0}}, 0, {size - 1})",
                     "{0}")  # fmt: skip
            body = self.random.choice(forms).format(read)
        return self.keep(n, scope, Text(body), kind="int", target=table.target)

    def scattered(self, n: int) -> str | None:
        """A sum over all positions that an integer table sends to the same place."""
        pick = self.random
        table = pick.choice([t for t in self.tables if t.kind == "int"])
        if not self.classes[table.target].letters:
            return None
        target = Letter(self.classes[table.target].letters[0], table.target)
        outside = [a for a in self.left(2) if a.of not in (*table.axes, table.target)]
        groups = [Letter(of, of) for of in dict.fromkeys(table.axes) if self.classes[of].group]
        left = [target, *outside, *groups]
        inside = list(left)
        bound: list[Letter] = []
        at: list[str] = []
        for axis in table.axes:
            if self.classes[axis].group:
                at.append(axis)
                continue
            free = [a for a in self.classes[axis].letters[1:] if a not in at]
            if not free:
                return None
            letter = Letter(free[0], axis)
            bound.append(letter)
            inside.append(letter)
            at.append(letter.name)
        value = self.float(inside, 2)
        if not self.classes[target.of].sized:
            value = self.reading(value, [target])
        read = f"{table.name}[{','.join(at)}]" if at else table.name
        over = ",".join(a.name for a in bound)
        if not bound:
            body = f"[{read} == {target.name}]*{value.inner()}"
        elif self.chance(0.5):
            body = f"sum[{over} | {read} == {target.name}]({value.text})"
        elif self.chance(0.2):
            kind = pick.choice(("max", "prod", "amin") if self.exact else
                               ("mean", "max", "logsumexp", "prod", "amin"))  # fmt: skip
            body = f"{kind}[{over} | {read} == {target.name}]({value.text})"
        else:
            body = f"sum[{over}]([{read} == {target.name}]*{value.inner()})"
        return self.keep(n, left, Text(body))

    # Classes of their own

    def fresh(self, n: int, size: int, first: str) -> Letter:
        """The letter of a new class of that size, the first of its letters."""
        name = f"{first}{n}"
        self.classes[name] = Class(name, size, (name,), "({0} + 1)")
        return Letter(name, name)

    def window(self, n: int) -> str | None:
        """A tensor read at ``s*t + d*k + c``: convolution, pooling, differences, strides."""
        tables = [t for t in self.floats([Letter(of, of) for of in self.setting.groups()])
                  if any(self.is_long(of) for of in t.axes)]  # fmt: skip
        if not tables:
            return None
        table = self.random.choice(tables)
        scope = [Letter(of, of) for of in self.setting.groups() if of in table.axes]
        bound: list[Letter] = []
        positions: list[str] = []
        for axis in table.axes:
            moved = len([a for a in scope if a.name[0] in FRESH])
            if self.is_long(axis) and (moved == 0 or (moved == 1 and self.chance(0.3))):
                letters, at = self.affine(n, axis, FRESH[moved], bound)
                scope.append(letters[0])
                bound += letters[1:]
                positions.append(at)
                continue
            letter = (
                Letter(self.classes[axis].letters[0], axis) if self.classes[axis].letters else None
            )
            if letter and letter not in scope and letter not in bound and self.chance(0.7):
                (bound if self.chance(0.4) and not self.classes[axis].group else scope).append(
                    letter
                )
            positions.append(self.position(axis, [*scope, *bound], nested=True))
        read = f"{table.name}[{','.join(positions)}]"
        value = self.product_with(read, [*scope, *bound])
        if bound:
            kinds = ("sum", "sum", "max", "amax") if self.exact else (
                "sum", "sum", "sum", "mean", "max", "amax", "logsumexp")  # fmt: skip
            kind = self.random.choice(kinds)
            for letter in bound:
                if not self.reads(value, letter):
                    value = f"{Text(value).inner()}*{self.over(letter).inner()}"
            value = f"{kind}[{','.join(a.name for a in bound)}]({value})"
        order = self.random.sample(scope, len(scope)) if self.chance(0.2) else scope
        return self.keep(n, order, Text(value))

    def is_long(self, of: str) -> bool:
        """Whether a window fits on an axis of that class."""
        found = self.classes[of]
        return not found.group and not found.parts and found.count >= 2

    def affine(self, n: int, axis: str, first: str, used: Scope) -> tuple[list[Letter], str]:
        """Letters that move along an axis, the first of a class of its own, and the position."""
        size = self.classes[axis].count
        kernels = [
            of
            for of in self.setting.single()
            if of != axis and self.classes[of].count and self.classes[of].over.startswith("v")
            if all(a.of != of for a in used)
        ]
        tries = []
        for stride, dilation, offset in ((1, 1, 0), (1, 1, 0), (2, 1, 0), (1, 2, 0), (1, 1, 1),
                                         (2, 2, 0), (2, 1, 1), (3, 1, 0)):  # fmt: skip
            for of in ("", *kernels):
                reach = size - 1 - offset - (dilation * (self.classes[of].count - 1) if of else 0)
                if reach >= 0:
                    tries.append((stride, dilation, offset, of, reach // stride + 1))
        tries = [t for t in tries if t[3]] or tries if self.chance(0.8) else tries
        stride, dilation, offset, of, count = self.random.choice(tries)
        letter = self.fresh(n, count, first)
        letters = [letter]
        at = letter.name if stride == 1 else f"{stride}*{letter.name}"
        if of:
            letters.append(Letter(self.classes[of].letters[-1], of))
            inner = letters[1].name
            if self.chance(0.15):
                inner = f"(size({inner})-1-{inner})"
            at += f" + {inner}" if dilation == 1 else f" + {dilation}*{inner}"
        if offset:
            at += f" + {offset}"
        if at == letter.name:
            # Alone it would have the size of the axis.
            at, offset = f"{letter.name} + 0*size({axis})", 0
        return letters, at

    def product_with(self, read: str, scope: Scope) -> str:
        draw = self.random.random()
        if draw < 0.2:
            return read
        other = self.float(scope, self.random.choice((0, 0, 1)))
        return f"{read}*{other.inner()}" if draw < 0.8 else f"{other.text} - {read}"

    def concatenated(self, n: int) -> str | None:
        """Tensors joined along a letter."""
        scope = self.left(2)
        classes = [
            c.name
            for c in self.classes.values()
            if not c.group and c.letters and not c.parts and self.read_at(c.name, scope, "x")
        ]
        if not classes:
            return None
        parts, total = [], 0
        for of in self.random.choices(classes, k=self.random.choice((2, 2, 3))):
            inner = Letter(f"x{n}", of)
            outside = [a for a in scope if a.of != of] if self.chance(0.8) else scope
            value = self.float([*outside, inner], self.random.choice((0, 1, 2)))
            over = self.read_at(of, scope, inner.name)
            text = value.text if self.reads(value.text, inner) else f"{value.inner()}*{over}"
            parts.append(text)
            total += self.classes[of].count
        letter = self.fresh(n, total, "x")
        at = self.random.randint(0, len(scope))
        left = [*scope[:at], letter, *scope[at:]]
        return self.keep(n, left, Text(f"concat[{letter.name}]({', '.join(parts)})"))

    def read_at(self, of: str, scope: Scope, name: str) -> str:
        """A table that has the class as an axis, read there at that name; it gives it its size."""
        if self.classes[of].over.startswith("v"):
            return self.classes[of].over.format(name)
        for table in self.tables:
            if table.kind == "float" and table.axes.count(of) == 1 and self.fits(
                table, [*scope, Letter(name, of)]
            ):  # fmt: skip
                at = [name if a == of else self.position(a, scope, True) for a in table.axes]
                return f"{table.name}[{','.join(at)}]"
        return ""


def _head(n: int, axes: list[str]) -> str:
    return f"e{n}[{','.join(axes)}]" if axes else f"e{n}"

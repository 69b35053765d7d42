"""Accesses: tables read at letters in scope, at constants, through integers, or shifted."""

import random
from collections.abc import Iterator, Sequence

from kit.programs.parts import Class, Letter, Table, Text
from kit.programs.setting import Setting

Scope = Sequence[Letter]


class Reader:
    """What can be read so far, and how."""

    def __init__(self, pick: random.Random, setting: Setting, alike: random.Random) -> None:
        """``alike`` draws the functions that stand for others, beside all other draws."""
        self.random = pick
        self.alike = alike
        self.setting = setting
        self.classes: dict[str, Class] = dict(setting.classes)
        self.tables: list[Table] = list(setting.inputs)
        self.exact = setting.values == "exact"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # What fits

    def fits(self, table: Table, scope: Scope) -> bool:
        """Whether every axis has a position."""
        return all(self.reachable(of, scope) for of in table.axes)

    def reachable(self, of: str, scope: Scope) -> bool:
        """Whether there is a position of that class: groups have letters only."""
        if any(letter.of == of for letter in scope):
            return True
        return not self.classes[of].group and self.classes[of].count > 0

    def floats(self, scope: Scope) -> list[Table]:
        return [t for t in self.tables if t.kind == "float" and self.fits(t, scope)]

    def integers(self, scope: Scope, target: str = "") -> list[Table]:
        """Integer tables, those of one class of positions, that letters in scope reach."""
        return [
            t
            for t in self.tables
            if t.kind == "int" and target in ("", t.target)
            if all(any(letter.of == of for letter in scope) for of in t.axes)
        ]

    def letter(self, of: str, scope: Scope) -> str | None:
        """A letter of that class, the innermost first."""
        letters = [letter.name for letter in scope if letter.of == of]
        if not letters:
            return None
        return letters[-1] if self.chance(0.7) else self.random.choice(letters)

    def named(self, scope: Scope) -> list[Letter]:
        """The letters in scope that are no groups."""
        return [letter for letter in scope if not self.classes[letter.of].group]

    def constant(self, of: str) -> str:
        """A position of that class that no letter moves."""
        count = self.classes[of].count
        number = self.setting.parameter("n0")
        if number is not None and count > 1 and self.chance(0.4):
            number.used = True
            return "n0"
        return str(self.random.randrange(count)) if self.chance(0.9) else f"{count}-1"

    # Accesses

    def access(self, table: Table, scope: Scope, nested: bool = False) -> str:
        """The table at some position of each axis; nested ones are read at plain letters."""
        if not table.axes:
            return table.name
        split = table.split
        at = (self.position(a, scope, nested, split) for a in table.axes)
        return f"{table.name}[{','.join(at)}]"

    def position(self, of: str, scope: Scope, nested: bool, split: bool = False) -> str:
        """A position on an axis; ``split`` where the parts of a composite have known sizes."""
        if self.classes[of].group:
            return of
        if self.classes[of].parts and not self.is_whole(of, scope):
            return self.composite(of, scope, split)
        letter = self.letter(of, scope)
        if not nested and self.chance(0.5):
            through = list(self.through(of, scope))
            if through:
                return self.random.choice(through)
        if letter is None:
            return self.constant(of)
        draw = self.random.random()
        if draw > 0.96 and not nested:
            return self.turned(letter, of, scope)
        if draw < 0.02 and not nested and self.classes[of].count:
            return self.constant(of)
        return letter

    def turned(self, letter: str, of: str, scope: Scope) -> str:
        """A position counted from the end, or on a ring: beside another letter or a number."""
        if self.alike.random() < 0.5:
            return f"size({letter})-1-{letter}"
        others = [a.name for a in scope if a.of == of and a.name != letter]
        moved = "".join(
            f" {self.alike.choice('+-')} {self.alike.choice(others) if others else 1}"
            for _ in range(self.alike.choice((1, 1, 2)))
        )
        return f"({self.alike.choice(('', '-'))}{letter}{moved}) % size({letter})"

    def is_whole(self, of: str, scope: Scope) -> bool:
        """Whether a composite axis is read by one position."""
        return self.letter(of, scope) is not None or self.chance(0.2)

    def composite(self, of: str, scope: Scope, split: bool) -> str:
        """``(i 0)``: a letter or a constant for each part."""
        parts = [self.letter(part, scope) for part in self.classes[of].parts]
        joined = any(p and p[0] in "xw" and None in parts[n:] for n, p in enumerate(parts))
        if None in parts and (joined or not split or self.chance(0.3)):
            return self.constant(of)
        sizes = [self.classes[part].count for part in self.classes[of].parts]
        shown = [
            p or str(self.random.randrange(n) if self.chance(0.5) else 0)
            for p, n in zip(parts, sizes, strict=True)
        ]
        return f"({' '.join(shown)})"

    def through(self, of: str, scope: Scope) -> Iterator[str]:
        """Positions that integer tables give."""
        for table in self.integers(scope, of):
            if table.low < 0:
                continue
            read = self.access(table, scope, nested=self.chance(0.8))
            inner = self.letter(table.span, scope) if table.span else None
            yield read if inner is None else f"{read} + {inner}"
            if self.chance(0.2) and self.classes[of].letters:
                yield f"size({self.classes[of].letters[0]})-1-{read}"

    # Leaves

    def leaf(self, scope: Scope) -> Text:
        """A number or an element of a table."""
        draw = self.random.random()
        if draw < 0.04:
            numbers = ("2", "0.5", "3", "-2", "1.5") if self.exact else (
                "2", "0.5", "3", "1/3", "pi", "1e-2", "10^(-1)")  # fmt: skip
            number = self.random.choice(numbers)
            return Text(number, not number.startswith("-"))
        number = self.setting.parameter("s")
        if draw < 0.08 and number is not None:
            number.used = True
            return Text("s", True)
        named = [letter.name for letter in self.named(scope)]
        if draw < 0.1 and named:
            first, second = self.random.choice(named), self.random.choice(named)
            return Text(f"({first} + 1)", True) if first == second else Text(f"({first}-{second})")
        if draw < 0.12 and named:
            return Text(f"size({self.random.choice(named)})")
        if draw < 0.13 and self.setting.parameter("groups") is not None:
            return Text("groups", True)
        if draw < 0.16:
            numbers = [t for t in self.integers(scope) if t.axes or t.low == 0]
            if numbers:
                return Text(self.access(self.random.choice(numbers), scope, nested=True))
        tables = self.floats(scope)
        if not tables:
            return Text("1.5", True)
        weights = [1 + 2 * len(t.axes) + 2 * t.name.startswith("e") for t in tables]
        table = self.random.choices(tables, weights)[0]
        return Text(self.access(table, scope), table.positive)

    def guarded(self, scope: Scope) -> tuple[str, Text] | None:
        """A condition, and an access that is in bounds where it holds."""
        letters = [a for a in self.named(scope) if not self.classes[a.of].parts]
        asked = [t for t in self.integers(scope) if t.low < 0]
        tables = [
            t
            for t in self.floats(scope)
            if any(a.of in t.axes for a in letters) or any(u.target in t.axes for u in asked)
        ]
        if not tables:
            return None
        table = self.random.choice(tables)
        moved = [a for a in letters if a.of in table.axes]
        through = [t for t in asked if t.target in table.axes]
        if through and (not moved or self.chance(0.6)):
            of, (condition, at) = through[0].target, self.ignoring(through[0], scope)
        else:
            of, (condition, at) = self.shifted(moved)
        done = False
        positions = []
        for axis in table.axes:
            positions.append(at if axis == of and not done else self.position(axis, scope, True))
            done = done or axis == of
        return condition, Text(f"{table.name}[{','.join(positions)}]", table.positive)

    def ignoring(self, table: Table, scope: Scope) -> tuple[str, str]:
        read = self.access(table, scope, nested=True)
        return self.random.choice((f"{read} >= 0", f"{read} != -1")), read

    def shifted(self, letters: Scope) -> tuple[str, tuple[str, str]]:
        """A class, and a guard with a position that it keeps in bounds."""
        letter = self.random.choice(letters)
        forms = [
            ("{0} >= 1", "{0}-1"),
            ("{0}+1 < size({0})", "{0}+1"),
            ("2*{0} < size({0})", "2*{0}"),
            ("{0}-2 >= 0", "{0}-2"),
        ]
        if self.classes[letter.of].count > 1:
            forms += [("{0} < 1", "{0}+1")]
        others = [a for a in letters if a.of == letter.of and a != letter]
        if others:
            forms += [
                ("{0}-{1} >= 0", "{0}-{1}"),
                ("{0}+{1} < size({0})", "{0}+{1}"),
                ("{0}+{1} >= 1 and {0}+{1}-1 < size({0})", "{0}+{1}-1"),
            ]
        other = self.random.choice(others).name if others else ""
        condition, at = self.random.choice(forms)
        return letter.of, (condition.format(letter.name, other), at.format(letter.name, other))

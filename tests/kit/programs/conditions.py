"""Conditions: on indices, on integers and truth values, on numbers."""

from collections.abc import Callable

from kit.programs.parts import Letter
from kit.programs.reading import Reader, Scope

RELATIONS = ("==", "!=", "<", "<=", ">", ">=")
WINDOWS = (
    "{0} <= {1}",
    "{0} <= {1}",
    "{0} >= {1}",
    "{0} < {1}",
    "{0} > {1}",
    "{0} != {1}",
    "{0} == {1}",
    "{1}-2 <= {0} and {0} <= {1}",
    "{0} >= {1}-1 and {0} <= {1}+1",
)
"""What a bound letter is to another of its class: cumulative, one apart, all but one."""


class Conditions(Reader):
    """Writes conditions."""

    def condition(self, scope: Scope, depth: int) -> str:
        pick = self.random
        if depth > 0 and self.chance(0.3):
            a, b = self.condition(scope, depth - 1), self.condition(scope, depth - 1)
            return pick.choice((f"({a}) and ({b})", f"({a}) or ({b})", f"not ({a})"))
        made: list[Callable[[], str]] = []
        letters = [letter.name for letter in self.named(scope)]
        relation = pick.choice(RELATIONS)
        if letters:
            made += [lambda: f"{pick.choice(letters)} {relation} 1"]
            if self.setting.parameter("n0") is not None:
                made += [lambda: self.against_number(pick.choice(letters), relation)]
        if len(letters) > 1:
            made += [lambda: f" {relation} ".join(pick.sample(letters, 2))] * 3
        flags = [t for t in self.tables if t.kind == "bool" and self.fits(t, scope)]
        if flags:
            made += [lambda: self.access(pick.choice(flags), scope)] * 3
        for table in self.integers(scope):
            letter = self.letter(table.target, scope)
            if letter:
                made += [lambda t=table, s=letter: f"{self.access(t, scope, True)} == {s}"] * 2
        made += [lambda: self.of_values(scope, relation)]
        if depth > 0 and letters:
            made += [lambda: self.quantified(scope)]
        return pick.choice(made)()

    def against_number(self, letter: str, relation: str) -> str:
        number = self.setting.parameter("n0")
        assert number is not None
        number.used = True
        return f"{letter} {relation} n0"

    def of_values(self, scope: Scope, relation: str) -> str:
        """Equality of computed numbers is a matter of rounding, unless they are exact."""
        left = self.leaf(scope).text
        if self.exact:
            return f"{left} {relation} {self.leaf(scope).text}"
        return f"{left} {self.random.choice('<>')} 0.8"

    def quantified(self, scope: Scope) -> str:
        """Whether something holds for one or for all values of a letter."""
        letter = self.random.choice(self.named(scope))
        free = [n for n in self.classes[letter.of].letters if all(n != a.name for a in scope)]
        if not free:
            return f"{letter.name} >= 1"
        bound = Letter(free[0], letter.of)
        condition = self.condition([*scope, bound], 0)
        over = self.classes[bound.of].over.format(bound.name)
        return f"{self.random.choice(('any', 'all'))}[{bound.name}]({condition} and {over} < 9)"

    def windowed(self, letter: Letter, scope: Scope) -> str | None:
        """What a letter is to another one of its class outside."""
        others = [a for a in scope if a.of == letter.of and a.name != letter.name]
        if not others or self.classes[letter.of].group:
            return None
        window = self.random.choice(WINDOWS).format(letter.name, self.random.choice(others).name)
        if self.chance(0.15):
            return f"{window} and ({self.condition([*scope, letter], 0)})"
        return window

"""Formulas in sizes for numbers of elements, operations or bytes.

    2·n·m·k + n·m

A size is a letter; a known size is a number. Only integers occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from derive.algebra.expr import Call, Expr, Param, Size
from derive.algebra.poly import Poly, Term, atom, base_and_power, constant
from derive.program.shape_rules import formula, number, whole

_UP = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Amount:
    """A formula in the sizes of indices, such as ``2·i·j·k``. ``str(amount)`` is its text.

    ``letters`` has the letters of the operation in the order in which they are printed.
    """

    value: Poly
    letters: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the terms in order of descending degree, then of their letters."""
        terms = sorted(self.value.terms, key=lambda t: (-_degree(t), self._places(t)))
        shown = [(t.coef < 0, self._term(t)) for t in terms]
        first = "".join(f"{'−' if negative else ''}{text}" for negative, text in shown[:1])
        rest = "".join(f" {'−' if negative else '+'} {text}" for negative, text in shown[1:])
        return first + rest or "0"

    def at(self, sizes: Mapping[str, int]) -> int:
        """Return the value for these sizes, which must include all letters of `needs`."""
        return number(self.given(sizes).value)

    def given(self, sizes: Mapping[str, int]) -> Amount:
        """Return the formula with these sizes replaced by numbers."""

        def size(e: Expr) -> Poly:
            known = set(_formula_letters(e)) & set(sizes)
            return constant(sizes[known.pop()]) if known else atom(e)

        return Amount(formula(self.value, size), self.letters)

    def needs(self) -> set[str]:
        """Return the letters in the formula."""
        return set(_formula_letters(self.value))

    def _places(self, t: Term) -> list[tuple[int, str]]:
        found = []
        for factor in t.factors:
            base, power = base_and_power(factor)
            found += [self._place(base)] * int(power)
        return sorted(found)

    def _place(self, base: Expr) -> tuple[int, str]:
        name = base.extent if isinstance(base, Size) else ""
        return (self.letters.index(name) if name in self.letters else len(self.letters), name)

    def _term(self, t: Term) -> str:
        parts = [] if abs(t.coef) == 1 and t.factors else [str(abs(t.coef))]
        for factor in sorted(t.factors, key=lambda f: self._place(base_and_power(f)[0])):
            base, power = base_and_power(factor)
            parts.append(self._atom(base) + ("" if power == 1 else str(power).translate(_UP)))
        return "·".join(parts)

    def _atom(self, e: Expr) -> str:
        match e:
            case Size(name) | Param(name):
                return name
            case Call("floordiv", (a, b)):
                return f"⌊{self._inside(a, '({})')}/{self._inside(b, '({})')}⌋"
            case Call(function, args):
                name = {"minimum": "min", "maximum": "max"}.get(function, function)
                return f"{name}({', '.join(map(self._inside, args))})"
        return f"({self._inside(e)})"

    def _inside(self, e: Expr, several: str = "{}") -> str:
        shown = str(Amount(whole(e), self.letters))
        alone = isinstance(e, Poly) and len(e.terms) > 1
        return several.format(shown) if alone else shown


def size_of(letter: str) -> Poly:
    """The size with this letter."""
    return atom(Size(letter))


def degree(p: Poly) -> int:
    """The degree in the sizes: the number of axes of a tensor with this many elements."""
    return max((_degree(t) for t in p.terms), default=0)


def _degree(t: Term) -> int:
    return int(sum(_sizes_in(base) * power for base, power in map(base_and_power, t.factors)))


def _sizes_in(e: Expr) -> int:
    match e:
        case Size():
            return 1
        case Call("floordiv", (a, _)):
            return degree(whole(a))
        case Call(_, args):
            return max(degree(whole(a)) for a in args)
    return degree(e) if isinstance(e, Poly) else 0


def covers(large: Poly, small: Poly) -> bool:
    """True if ``large`` is at least ``small`` term by term, for all sizes of at least 1."""
    left = list(large.terms)
    for t in small.terms:
        found = next((x for x in left if x.coef >= t.coef and _divides(t, x)), None)
        if found is None:
            return False
        left.remove(found)
    return all(t.coef > 0 for t in left)


def _divides(a: Term, b: Term) -> bool:
    powers = dict(map(base_and_power, b.factors))
    return all(powers.get(base, 0) >= power for base, power in map(base_and_power, a.factors))


def _formula_letters(e: Expr) -> Iterable[str]:
    if isinstance(e, Size | Param):
        yield e.extent if isinstance(e, Size) else e.name
    for part in e.parts():
        yield from _formula_letters(part)

"""Numbers that are formulas in sizes: how many elements, operations or bytes.

    2·n·m·k + n·m

A size is a letter; where it is known it is a number. Only whole numbers occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from derive.algebra.expr import Call, Expr, Num, Param, Size
from derive.algebra.poly import (
    Poly,
    Term,
    add,
    atom,
    base_and_power,
    constant,
    make_term,
    mul,
    poly,
)

__all__ = ["Amount", "covers", "degree", "floor_divided", "size_of", "whole"]

_UP = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Amount:
    """A formula in sizes; ``letters`` lists those of the operation in the order to print them."""

    value: Poly
    letters: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Terms by descending degree, then as their letters come."""
        terms = sorted(self.value.terms, key=lambda t: (-_degree(t), self._places(t)))
        shown = [(t.coef < 0, self._term(t)) for t in terms]
        first = "".join(f"{'−' if negative else ''}{text}" for negative, text in shown[:1])
        rest = "".join(f" {'−' if negative else '+'} {text}" for negative, text in shown[1:])
        return first + rest or "0"

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number for these sizes."""
        return _number(self.value, sizes)

    def given(self, sizes: Mapping[str, int]) -> Amount:
        """The formula that is left for these sizes."""
        return Amount(_filled(self.value, sizes), self.letters)

    def needs(self) -> set[str]:
        """The letters that the number depends on."""
        return set(_letters(self.value))

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


def whole(e: Expr | int) -> Poly:
    """A number, a size or a formula of them in the flat form."""
    if isinstance(e, Poly):
        return e
    if isinstance(e, int):
        return constant(e)
    return constant(e.value) if isinstance(e, Num) else atom(e)


def size_of(letter: str) -> Poly:
    """The size that has this letter."""
    return atom(Size(letter))


def degree(p: Poly) -> int:
    """How many sizes are multiplied: the number of axes of as many elements."""
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


def floor_divided(a: Poly, b: Poly) -> Poly:
    """⌊a/b⌋, what b divides taken out of the quotient."""
    if len(b.terms) != 1:
        return constant(1) if a is b else atom(Call("floordiv", (a, b)))
    out = []
    rest = []
    for t in a.terms:
        quotient = _quotient(t, b.terms[0])
        if quotient is None:
            rest.append(t)
        else:
            out.append(quotient)
    left = poly(rest)
    if not left.terms:
        return poly(out)
    if all(not t.factors for t in (*left.terms, *b.terms)):
        return add(poly(out), constant(left.terms[0].coef // b.terms[0].coef))
    return add(poly(out), atom(Call("floordiv", (left, b))))


def covers(large: Poly, small: Poly) -> bool:
    """Whether term by term the one is at least the other, all sizes being at least 1."""
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


def _quotient(a: Term, b: Term) -> Term | None:
    """a/b where that is a whole formula."""
    coef = a.coef / b.coef
    powers = dict(map(base_and_power, a.factors))
    for base, power in map(base_and_power, b.factors):
        if powers.get(base, 0) < power:
            return None
    inverse = [atom(base, -power) for base, power in map(base_and_power, b.factors)]
    (made,) = mul(poly([make_term(coef, (), a.factors)]), *inverse).terms
    return made if coef.denominator == 1 else None


def _number(p: Poly, sizes: Mapping[str, int]) -> int:
    total = Fraction(0)
    for t in p.terms:
        factors = map(base_and_power, t.factors)
        total += t.coef * prod(_value(base, sizes) ** int(power) for base, power in factors)
    return int(total)


def _value(e: Expr, sizes: Mapping[str, int]) -> int:
    match e:
        case Size(name) | Param(name):
            return sizes[name]
        case Call("floordiv", (a, b)):
            return _number(whole(a), sizes) // _number(whole(b), sizes)
        case Call("maximum", args):
            return max(_number(whole(a), sizes) for a in args)
        case Call("minimum", args):
            return min(_number(whole(a), sizes) for a in args)
    return _number(whole(e), sizes)


def _filled(p: Poly, sizes: Mapping[str, int]) -> Poly:
    """p with numbers for the sizes that are known."""
    terms = []
    for t in p.terms:
        factors = [
            _known(base, sizes) for base, n in map(base_and_power, t.factors) for _ in range(int(n))
        ]
        terms.append(mul(constant(t.coef), *factors))
    return add(constant(0), *terms)


def _known(e: Expr, sizes: Mapping[str, int]) -> Poly:
    match e:
        case Size(name) | Param(name):
            return constant(sizes[name]) if name in sizes else atom(e)
        case Call("floordiv", (a, b)):
            return floor_divided(_filled(whole(a), sizes), _filled(whole(b), sizes))
        case Call(function, args):
            parts = [_filled(whole(a), sizes) for a in args]
            if any(set(_letters(part)) for part in parts):
                return atom(Call(function, tuple(parts)))
            return constant(_value(Call(function, tuple(parts)), sizes))
    return _filled(whole(e), sizes) if isinstance(e, Poly) else atom(e)


def _letters(e: Expr) -> Iterable[str]:
    if isinstance(e, Size | Param):
        yield e.extent if isinstance(e, Size) else e.name
    for part in e.parts():
        yield from _letters(part)

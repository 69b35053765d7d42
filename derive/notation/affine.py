"""Affine positions: c0 + c1*i1 + c2*i2 + ..., the coefficients polynomials in sizes and parameters.

Sizes and parameters are taken to be positive wherever a sign matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Expr,
    Index,
    Mul,
    Not,
    Num,
    Param,
    Rel,
    Size,
    num,
    sort_key,
)
from derive.notation.build import difference, product, total

__all__ = ["Affine", "Polynomial", "affine", "room"]

Monomial = tuple[Expr, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of integer multiples of products of sizes and parameters."""

    terms: Mapping[Monomial, Fraction]

    @staticmethod
    def of(value: Expr | int) -> Polynomial:
        """A number, size or parameter."""
        if isinstance(value, Num):
            return Polynomial({(): value.value} if value.value else {})
        if isinstance(value, Expr):
            return Polynomial({(value,): Fraction(1)})
        return Polynomial.of(num(value))

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for key, value in other.terms.items():
            terms[key] = terms.get(key, Fraction(0)) + value
        return Polynomial({k: v for k, v in terms.items() if v})

    def __neg__(self) -> Polynomial:
        return Polynomial({k: -v for k, v in self.terms.items()})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        result = Polynomial({})
        for a, x in self.terms.items():
            for b, y in other.terms.items():
                key = tuple(sorted((*a, *b), key=sort_key))
                result = result + Polynomial({key: x * y})
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    @property
    def number(self) -> Fraction | None:
        """Its value if it is a number."""
        if not self.terms:
            return Fraction(0)
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def sign(self) -> int | None:
        """1, 0 or -1, or None where it depends."""
        signs = {1 if value > 0 else -1 for value in self.terms.values()}
        return 0 if not signs else signs.pop() if len(signs) == 1 else None

    def map(self, f: Callable[[Expr], Expr]) -> Polynomial:
        """With each size and parameter replaced."""
        result = Polynomial({})
        for key, value in self.terms.items():
            term = Polynomial({(): value})
            for atom in key:
                term = term * Polynomial.of(f(atom))
            result = result + term
        return result

    def expr(self) -> Expr:
        """As an expression: what is added, what is subtracted, the number last."""
        order = sorted(
            self.terms.items(), key=lambda t: (t[0] == (), t[1] < 0, tuple(map(sort_key, t[0])))
        )
        return total(product((num(value), *key)) for key, value in order) if order else num(0)


@dataclass(frozen=True)
class Affine:
    """constant + the sum of coefficient*index + integers read from tensors or made by ``int``."""

    coefficients: Mapping[Index, Polynomial]
    constant: Polynomial
    tensors: tuple[Expr, ...] = ()

    def __add__(self, other: Affine) -> Affine:
        found = dict(self.coefficients)
        for index, value in other.coefficients.items():
            found[index] = found.get(index, Polynomial({})) + value
        return Affine(
            {i: c for i, c in found.items() if c.terms},
            self.constant + other.constant,
            self.tensors + other.tensors,
        )

    def scaled(self, by: Polynomial) -> Affine:
        """by*self."""
        found = {i: c * by for i, c in self.coefficients.items()}
        return Affine({i: c for i, c in found.items() if c.terms}, self.constant * by, self.tensors)

    @property
    def largest(self) -> Fraction:
        """The largest number in it, without its sign."""
        parts = (self.constant, *self.coefficients.values())
        return max((abs(x) for part in parts for x in part.terms.values()), default=Fraction(0))

    def least(self, size: Callable[[Index], Polynomial]) -> Polynomial | None:
        """The smallest value over all indices; None where signs are unknown."""
        return self._extreme(-1, size)

    def greatest(self, size: Callable[[Index], Polynomial]) -> Polynomial | None:
        """The largest value over all indices; None where signs are unknown."""
        return self._extreme(1, size)

    def _extreme(self, sign: int, size: Callable[[Index], Polynomial]) -> Polynomial | None:
        result = self.constant
        for index, coefficient in self.coefficients.items():
            if coefficient.sign is None:
                return None
            if coefficient.sign == sign:
                result = result + coefficient * (size(index) - Polynomial.of(1))
        return result


def affine(e: Expr) -> Affine | None:
    """e as an affine position, or None if it is not an integer combination."""
    found = _affine(e)
    if found is None:
        return None
    numbers = [
        value
        for part in (found.constant, *found.coefficients.values())
        for value in part.terms.values()
    ]
    return found if all(value.denominator == 1 for value in numbers) else None


def _affine(e: Expr) -> Affine | None:
    match e:
        case Num() | Size() | Param():
            return Affine({}, Polynomial.of(e))
        case Index(_, _, False):
            return Affine({e: Polynomial.of(1)}, Polynomial({}))
        case Access() | Call("int"):
            return Affine({}, Polynomial({}), (e,))
        case Add(args):
            return _sum(args)
        case Mul(args):
            result = Affine({}, Polynomial.of(1))
            for arg in args:
                factor = _affine(arg)
                if factor is None:
                    return None
                if _plain(factor):
                    result = result.scaled(factor.constant)
                elif _plain(result):
                    result = factor.scaled(result.constant)
                else:
                    return None
            return result
    return None


def _plain(a: Affine) -> bool:
    return not a.coefficients and not a.tensors


def _sum(args: Iterable[Expr]) -> Affine | None:
    result = Affine({}, Polynomial({}))
    for arg in args:
        term = _affine(arg)
        if term is None:
            return None
        result = result + term
    return result


_TURNED = {">": "<", ">=": "<="}
_DENIED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def room(c: Expr) -> Expr | None:
    """What is an integer of at least 0 just where a comparison of integers holds."""
    match c:
        case Not(Rel("<" | "<=" | ">" | ">=" as op, left, right)):
            return room(Rel(_DENIED[op], left, right))
        case Rel(">" | ">=" as op, left, right):
            return room(Rel(_TURNED[op], right, left))
        case Rel("<" | "<=" as op, left, right):
            return difference(difference(right, left), num(1 if op == "<" else 0))
    return None

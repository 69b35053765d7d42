"""Polynomials of indices, sizes and integers, for positions and sizes.

    c0 + c1*i1 + c2*i2 + ...,  the coefficients polynomials in sizes and parameters

is an affine position. Sizes and parameters are assumed positive wherever a sign matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from derive.algebra import expr as ex
from derive.algebra.poly import FactoredSum, Poly, Term, add, atom, constant, mul, scale

Monomial = tuple[ex.Expr, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of multiples of products of atoms: indices, sizes, parameters."""

    terms: Mapping[Monomial, Fraction]

    @staticmethod
    def of(value: ex.Expr | int) -> Polynomial:
        """A number or an atom."""
        if isinstance(value, ex.Num):
            return Polynomial({(): value.value} if value.value else {})
        if isinstance(value, ex.Expr):
            return Polynomial({(value,): Fraction(1)})
        return Polynomial.of(ex.num(value))

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for key, value in other.terms.items():
            terms[key] = terms[key] + value if key in terms else value
        return Polynomial({k: v for k, v in terms.items() if v})

    def __neg__(self) -> Polynomial:
        return Polynomial({k: -v for k, v in self.terms.items()})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        result = Polynomial({})
        for a, x in self.terms.items():
            for b, y in other.terms.items():
                key = tuple(sorted((*a, *b), key=ex.sort_key)) if a and b else a or b
                result = result + Polynomial({key: x * y})
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    @property
    def number(self) -> Fraction | None:
        """The value if the polynomial is a number, or None."""
        if not self.terms:
            return Fraction(0)
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def sign(self) -> int | None:
        """1, 0 or -1, or None if the coefficients differ in sign."""
        signs = {1 if value > 0 else -1 for value in self.terms.values()}
        return 0 if not signs else signs.pop() if len(signs) == 1 else None

    @property
    def is_whole(self) -> bool:
        """True if the value is an integer whenever the atoms are, by the coefficients."""
        return all(value.denominator == 1 for value in self.terms.values())

    @property
    def indices(self) -> list[ex.Index]:
        """The indices in it, each once."""
        found = (part for key in self.terms for part in key if isinstance(part, ex.Index))
        return list(dict.fromkeys(found))

    def map(self, f: Callable[[ex.Expr], ex.Expr]) -> Polynomial:
        """The polynomial with each atom replaced."""
        return self.at(lambda part: Polynomial.of(f(part)))

    def at(self, f: Callable[[ex.Expr], Polynomial]) -> Polynomial:
        """The polynomial with a polynomial substituted for each atom."""
        result = Polynomial({})
        for key, value in self.terms.items():
            term = Polynomial({(): value})
            for part in key:
                term = term * f(part)
            result = result + term
        return result

    def affine(self) -> Affine | None:
        """The sum of multiples of indices; None if indices or integers read are multiplied."""
        coefficients: dict[ex.Index, Polynomial] = {}
        constant: dict[Monomial, Fraction] = {}
        for key, value in self.terms.items():
            variables = [part for part in key if isinstance(part, ex.Index | ex.Access | ex.Call)]
            if len(variables) > 1:
                return None
            i = variables[0] if variables else None
            if not isinstance(i, ex.Index):
                constant[key] = value
                continue
            part = Polynomial({tuple(p for p in key if p is not i): value})
            coefficients[i] = coefficients.get(i, Polynomial({})) + part
        return Affine(coefficients, Polynomial(constant))

    def unit(self, i: ex.Index) -> int | None:
        """The coefficient of i if it is 1 or -1 and i has no other occurrence."""
        alone = self.terms.get((i,))
        if alone not in (1, -1) or sum(i in key for key in self.terms) > 1:
            return None
        return int(alone)

    def solved(self, i: ex.Index) -> Polynomial | None:
        """The value of i where self = 0, if the coefficient of i is 1 or -1."""
        alone = self.unit(i)
        if alone is None:
            return None
        # alone*i + rest = 0, so i = -alone*rest.
        return (Polynomial({(i,): Fraction(alone)}) - self) * Polynomial.of(alone)

    def expr(self) -> ex.Expr:
        """The nested expression: positive terms, negative terms, the number last."""
        order = sorted(
            self.terms.items(), key=lambda t: (t[0] == (), t[1] < 0, tuple(map(ex.sort_key, t[0])))
        )
        products = ((ex.num(c), *key) if c != 1 else key for key, c in order)
        return ex.sum_of([*map(ex.product_of, products)])

    def poly(self) -> Poly:
        """The flat sum."""
        parts = (
            scale(mul(*map(atom, key)) if key else constant(1), c) for key, c in self.terms.items()
        )
        return add(constant(0), *parts)


@dataclass(frozen=True)
class Affine:
    """constant + the sum of coefficient*index; integers read from tensors are in the constant."""

    coefficients: Mapping[ex.Index, Polynomial]
    constant: Polynomial

    @property
    def tensors(self) -> tuple[ex.Expr, ...]:
        """The integers in it that are read from tensors or result from ``int``."""
        parts = (part for key in self.constant.terms for part in key)
        return tuple(part for part in parts if isinstance(part, ex.Access | ex.Call))

    @property
    def largest(self) -> Fraction:
        """The largest absolute value of its numbers."""
        parts = (self.constant, *self.coefficients.values())
        return max((abs(x) for part in parts for x in part.terms.values()), default=Fraction(0))

    def least(self, size: Callable[[ex.Index], Polynomial]) -> Polynomial | None:
        """The smallest value over all indices; None if a sign is unknown."""
        return self._extreme(-1, size)

    def greatest(self, size: Callable[[ex.Index], Polynomial]) -> Polynomial | None:
        """The largest value over all indices; None if a sign is unknown."""
        return self._extreme(1, size)

    def _extreme(self, sign: int, size: Callable[[ex.Index], Polynomial]) -> Polynomial | None:
        result = self.constant
        for index, coefficient in self.coefficients.items():
            if coefficient.sign is None:
                return None
            if coefficient.sign == sign:
                result = result + coefficient * (size(index) - Polynomial.of(1))
        return result


Atom = Callable[[ex.Expr], Polynomial | None]
"""Map a node that is no sum and no product to a polynomial; None if it is no integer."""

_MOST_POWER = 4


def polynomial(e: ex.Expr, of_atom: Atom, most: int) -> Polynomial | None:
    """e, nested or flat, as a polynomial of at most ``most`` terms."""

    def total(args: Iterable[ex.Expr]) -> Polynomial | None:
        result = Polynomial({})
        for a in args:
            part = polynomial(a, of_atom, most)
            if part is None:
                return None
            result = result + part
        return result

    def product(coef: Fraction, args: Iterable[ex.Expr]) -> Polynomial | None:
        result = Polynomial({(): coef} if coef else {})
        for a in args:
            part = polynomial(a, of_atom, most)
            if part is None or len(part.terms) * len(result.terms) > 4 * most:
                return None
            result = result * part
        return result

    match e:
        case ex.Num():
            return Polynomial.of(e)
        case ex.Add(args):
            return total(args)
        case Poly(terms):
            return total(terms) if len(terms) <= most else None
        case FactoredSum(body):
            return polynomial(body, of_atom, most)
        case ex.Mul(args):
            return product(Fraction(1), args)
        case Term(coef, (), factors):
            return product(coef, factors)
        case ex.Pow(base, ex.Num(n)) if n.denominator == 1 and 0 < n <= _MOST_POWER:
            return product(Fraction(1), (base,) * int(n))
    return of_atom(e)


_MOST_TERMS = 100
"""The most terms of a position that are analyzed."""


def affine(e: ex.Expr) -> Affine | None:
    """e as an affine position, or None if it is not an integer combination."""
    found = polynomial(e, _of_position, _MOST_TERMS)
    return found.affine() if found is not None and found.is_whole else None


def _of_position(e: ex.Expr) -> Polynomial | None:
    match e:
        case ex.Size() | ex.Param() | ex.Index(_, _, False) | ex.Access() | ex.Call("int"):
            return Polynomial.of(e)
    return None


def remainder(e: ex.Expr) -> tuple[ex.Expr, ex.Expr] | None:
    """Return (x, n) if e is x - n*floor(x/n) of integers, which is x mod n; else None."""
    for part in ex.walk(e):
        match part:
            case ex.Call("int", (ex.Call("floordiv", (x, n)),)) | ex.Call("floordiv", (x, n)):
                if form(e) == form(x) - form(n) * Polynomial.of(part):
                    return x, n
    return None


def form(e: ex.Expr) -> Polynomial:
    """Return a tree as a polynomial."""
    if isinstance(e, ex.Add):
        return sum(map(form, e.args), start=Polynomial({}))
    whole = Polynomial.of(1)
    for a in ex.factors_of(e):
        whole = whole * (Polynomial.of(a) if a is e or not isinstance(a, ex.Add) else form(a))
    return whole


def room(c: ex.Expr) -> ex.Expr | None:
    """An integer that is at least 0 exactly where a comparison of integers holds."""
    match c:
        case ex.Not(ex.Rel("<" | "<=" | ">" | ">=" as op, left, right)):
            return room(ex.Rel(ex.DENIED[op], left, right))
        case ex.Rel(">" | ">=" as op, left, right):
            return room(ex.Rel(ex.MIRRORED[op], right, left))
        case ex.Rel("<" | "<=" as op, left, right):
            return right - left - int(op == "<")
    return None

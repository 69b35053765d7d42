"""The flat form: a sum of products, each with its own bound indices.

    Poly = sum over terms of  coef * Sum_binders product of factors

Products are distributed over sums. Bound indices are pulled to the front of their term and have
canonical names (``_0``, ``_1``, ...). So terms that are equal up to the names of bound indices are
the same object, and like terms merge. Powers of sums stay opaque: a factor ``Pow(Poly, p)`` is
never expanded. A factor is an atom or ``Pow(atom, Num)``.

Arguments of functions and sides of comparisons are `Poly`; positions of an access are plain atoms
where possible. Deltas are kept: a separate pass eliminates them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import count, islice, permutations, product
from math import ceil, factorial, floor, prod
from typing import Any

from derive.algebra.expr import (
    Call,
    Const,
    Delta,
    Expr,
    Index,
    Iverson,
    Num,
    Pow,
    Size,
    free_indices,
    interned,
    node,
    num,
    sort_key,
    tensors,
)
from derive.algebra.logic import is_denial, negate, without_decided
from derive.algebra.substitution import substitution
from derive.budget import tick

# -------------------------------------------------------------------------------------------- surds
# Powers of rationals: exact values, and roots as roots of integers.

_LARGEST_POWER = 1024
"""Larger powers are not evaluated: their digits would fill the memory."""


def is_root(value: Fraction, exponent: Fraction) -> bool:
    """True if the power can be written with roots of integers."""
    return value > 0 and exponent.denominator > 1 and abs(exponent) < _LARGEST_POWER


def add_root(roots: dict[int, Fraction], value: Fraction, exponent: Fraction) -> None:
    """Multiply by value ** exponent: (2/3)**e is 2**e * 3**-e."""
    for n, e in ((value.numerator, exponent), (value.denominator, -exponent)):
        if n > 1:
            roots[n] = roots.get(n, Fraction(0)) + e


def rational_power(value: Fraction, exponent: Fraction) -> Fraction | None:
    """value ** exponent if it is rational, else None."""
    if abs(exponent.numerator) > _LARGEST_POWER:
        return None
    if exponent.denominator == 1:
        if value == 0 and exponent < 0:
            return None
        return Fraction(value**exponent.numerator)
    if value <= 0:
        return Fraction(0) if value == 0 and exponent > 0 else None
    n = _exact_root(value.numerator, exponent.denominator)
    d = _exact_root(value.denominator, exponent.denominator)
    return None if n is None or d is None else Fraction(n, d) ** exponent.numerator


def _exact_root(n: int, k: int) -> int | None:
    """The integer k-th root of n >= 1, or None, by Newton's steps from above."""
    if n.bit_length() <= k:
        return 1 if n == 1 else None
    root = 1 << -(-n.bit_length() // k)
    while (nearer := ((k - 1) * root + n // root ** (k - 1)) // k) < root:
        root = nearer
    return root if root**k == n else None


# --------------------------------------------------------------------------------------------- poly

_UNIT = Fraction(1)

_MOST_PERMUTATIONS = 120
"""With more orders of similar binders than this, equal terms may not be recognized (safe)."""


@node
class Term(Expr):
    """coef * Sum_binders product(factors); made by `make_term` only."""

    coef: Fraction
    binders: tuple[Index, ...]
    factors: tuple[Expr, ...]

    def __new__(cls, coef: Fraction, binders: tuple[Index, ...], factors: tuple[Expr, ...]) -> Term:
        content = (cls, *coef.as_integer_ratio(), binders, factors)
        return interned(cls, content, (coef, binders, factors))  # type: ignore[no-any-return]

    def bound(self) -> tuple[Index, ...]:
        return self.binders

    def map(self, f: Any) -> Expr:
        binders = tuple(map(f, self.binders))
        factors = tuple(map(f, self.factors))
        if binders == self.binders and factors == self.factors:
            return self
        return make_term(self.coef, binders, factors)


@node
class Poly(Expr):
    """The sum of its terms; made by `poly` only."""

    terms: tuple[Term, ...]

    def map(self, f: Any) -> Expr:
        terms = tuple(map(f, self.terms))
        if terms == self.terms:
            return self
        return add(*map(_distribute_term, terms))

    def __repr__(self) -> str:
        sums = (f"Σ{list(t.binders)}" if t.binders else "" for t in self.terms)
        pairs = zip(self.terms, sums, strict=True)
        return " + ".join(f"{t.coef}{sum_}{list(t.factors)}" for t, sum_ in pairs) or "0"


@node
class FactoredSum(Expr):
    """A sum of numbers and parameters that is kept together as one factor."""

    body: Poly


ZERO = Poly(())

_MASKS = (Delta, Iverson)


def is_mask(factor: Expr) -> bool:
    """True if the factor is 0 or 1 and guards the others: a delta or an Iverson bracket."""
    return isinstance(factor, _MASKS)


def _constant_term(e: Expr) -> Fraction | None:
    if isinstance(e, Poly):
        constant = not any(t.binders or t.factors for t in e.terms)
        return sum((t.coef for t in e.terms), Fraction(0)) if constant else None
    return e.value if isinstance(e, Num) else None


def base_and_power(factor: Expr) -> tuple[Expr, Fraction]:
    """The base of a factor and its rational power."""
    if isinstance(factor, Pow) and isinstance(factor.exponent, Num):
        return factor.base, factor.exponent.value
    return factor, _UNIT


def raised(base: Expr, exponent: Fraction) -> Expr:
    """base ** exponent as a factor."""
    return base if exponent is _UNIT or exponent == 1 else Pow(base, Num(exponent))


def make_term(coef: Fraction, binders: Sequence[Index], factors: Sequence[Expr]) -> Term:
    """The canonical term: equal powers merged, unused binders counted, dummies renamed.

    A root of a number becomes a root of an integer, to a power below 1.

    Sum_i 1 = size(i). A product with [c] and [not c], or with a false condition, is 0.
    """
    tick()
    if not _is_merged(factors):
        coef, factors = _merge_powers(coef, factors)
    if not coef:
        return _NO_TERM
    if binders:
        used = frozenset().union(*map(free_indices, factors))
        unused = [Size(i.extent) for i in binders if i not in used]
        if unused:
            return make_term(coef, [i for i in binders if i in used], (*factors, *unused))
    elif len(factors) < 2:
        return Term(coef, (), tuple(factors))
    return Term(coef, *_canonical_binders(tuple(binders), tuple(factors)))


_NO_TERM = Term(Fraction(0), (), ())


def _is_merged(factors: Sequence[Expr]) -> bool:
    """True if no two factors have the same base, and none is a number or a mask."""
    met: set[Expr] = set()
    for f in factors:
        base = f.base if isinstance(f, Pow) else f
        if base in met or isinstance(base, _MERGING):
            return False
        met.add(base)
    return True


_MERGING = (Num, *_MASKS)


def _merge_powers(coef: Fraction, factors: Sequence[Expr]) -> tuple[Fraction, list[Expr]]:
    """The coefficient and the powers of a product; 0 if two of its brackets exclude each other."""
    powers: dict[Expr, Fraction] = {}
    roots: dict[int, Fraction] = {}
    for factor in factors:
        base, exponent = base_and_power(factor)
        if isinstance(base, Num):
            exact = rational_power(base.value, exponent)
            if exact is not None:
                coef *= exact
                continue
            if is_root(base.value, exponent):
                add_root(roots, base.value, exponent)
                continue
        if is_mask(base):
            mask = without_decided(base, _constant_term)
            if mask is False:
                return Fraction(0), []
            if isinstance(mask, Expr):
                powers[mask] = _UNIT
        elif base in powers:
            powers[base] += exponent
        else:
            powers[base] = exponent
    for n, e in roots.items():
        # 2/sqrt(2) is sqrt(2).
        coef *= Fraction(n) ** floor(e)
        powers[num(n)] = e - floor(e)
    if len(powers) < len(factors):
        powers = {base: exponent for base, exponent in powers.items() if exponent}
    brackets = [base for base in powers if isinstance(base, Iverson)]
    if len(brackets) > 1 and any(Iverson(negate(b.condition)) in powers for b in brackets):
        coef = Fraction(0)
    return coef, [raised(base, exponent) for base, exponent in powers.items()]


def _dummies(taken: Container[str]) -> Iterator[str]:
    """The names of bound indices that are not taken."""
    return (name for n in count() if (name := f"_{n}") not in taken)


@lru_cache(maxsize=4096)
def _canonical_binders(
    binders: tuple[Index, ...], factors: tuple[Expr, ...]
) -> tuple[tuple[Index, ...], tuple[Expr, ...]]:
    """Binders renamed and factors sorted so that alpha-equivalent terms become identical."""
    if not binders:
        return (), tuple(sorted(factors, key=sort_key)) if len(factors) > 1 else factors
    bound = frozenset(binders)
    taken = {i.name for f in factors for i in free_indices(f) if i not in bound}
    names = list(islice(_dummies(taken), len(binders)))
    best: tuple[Any, tuple[Index, ...], tuple[Expr, ...]] | None = None
    for order in _orders(binders, factors):
        renamed = tuple(
            Index(name, i.extent, i.group) for name, i in zip(names, order, strict=True)
        )
        mapping: dict[Index, Expr] = dict(zip(order, renamed, strict=True))
        new = sorted(map(substitution(mapping), factors), key=sort_key)
        key = [sort_key(f) for f in new]
        if best is None or key < best[0]:
            best = (key, renamed, tuple(new))
    assert best is not None
    return best[1], best[2]


def _orders(binders: tuple[Index, ...], factors: tuple[Expr, ...]) -> Iterable[tuple[Index, ...]]:
    """The orders of the binders to try: permutations among binders with equal uses."""
    if len(binders) == 1:
        return [binders]
    bound = frozenset(binders)
    alike = Counter((i.extent, i.group) for i in binders)
    classes: dict[Any, list[Index]] = {}
    for i in binders:
        uses = []
        if alike[(i.extent, i.group)] > 1:
            uses = sorted(_skeleton(f, i, bound) for f in factors if i in free_indices(f))
        classes.setdefault((i.extent, i.group, tuple(uses)), []).append(i)
    groups = [classes[key] for key in sorted(classes)]
    if prod(factorial(len(group)) for group in groups) > _MOST_PERMUTATIONS:
        return [tuple(i for group in groups for i in group)]
    return (
        tuple(i for part in parts for i in part)
        for parts in product(*(permutations(group) for group in groups))
    )


def _skeleton(e: Expr, this: Index, bound: frozenset[Index]) -> Any:
    """The structure of e, with bound indices distinguished only as this one and the others."""
    if isinstance(e, Index):
        if e is this:
            return ("!",)
        return ("?", e.extent) if e in bound else ("=", sort_key(e))
    if not (free_indices(e) & bound):
        return ("=", sort_key(e))
    names = ("tensor", "function", "op", "coef")
    head = [type(e).__name__, *(str(getattr(e, name)) for name in names if hasattr(e, name))]
    children = [_skeleton(part, this, bound) for part in e.parts()]
    if isinstance(e, Poly | Term):
        children.sort()
    return (*head, *children)


def _without_complements(terms: list[Term]) -> list[Term]:
    """The terms with [c]*t + [not c]*t merged into t."""
    brackets = {f: None for t in terms for f in t.factors if isinstance(f, Iverson)}
    for f in brackets if len(brackets) > 1 else ():
        other = Iverson(negate(f.condition)) if is_denial(f.condition) else None
        if other in brackets:
            known = {(t.coef, t.binders, frozenset(t.factors)): t for t in terms}
            for (coef, binders, factors), t in known.items():
                x = known.get((coef, binders, factors - {f} | {other})) if f in factors else None
                if x is not None:
                    whole = make_term(coef, binders, [g for g in t.factors if g is not f])
                    return list(poly([*(y for y in terms if y not in (t, x)), whole]).terms)
    return terms


def poly(terms: Iterable[Term]) -> Poly:
    """The canonical sum: like terms merged, zero terms dropped, the rest sorted."""
    terms = tuple(terms)
    if len(terms) == 1:
        return Poly(terms) if terms[0].coef else ZERO
    merged: dict[tuple[Any, Any], Term] = {}
    for t in terms:
        key = (t.binders, t.factors)
        merged[key] = Term(merged[key].coef + t.coef, *key) if key in merged else t
    kept = [t for t in merged.values() if t.coef]
    kept = _without_complements(kept) if len(kept) > 1 else kept
    if len(kept) > 1:
        kept.sort(key=_place_in_sum)
    return Poly(tuple(kept))


def _place_in_sum(t: Term) -> tuple[Any, ...]:
    """The sort key of a term: binders and factors, then the coefficient."""
    _, coef, *rest = sort_key(t)
    return (*rest, coef)


def constant(value: int | Fraction) -> Poly:
    """A number as a Poly."""
    return poly([Term(value if isinstance(value, Fraction) else Fraction(value), (), ())])


ONE = constant(1)


def atom(e: Expr, exponent: int | Fraction = 1) -> Poly:
    """One factor as a Poly."""
    return _single(e if exponent == 1 else raised(e, Fraction(exponent)))


@lru_cache(maxsize=2**12)
def _single(factor: Expr) -> Poly:
    return poly([make_term(_UNIT, (), (factor,))])


def as_poly(e: Expr) -> Poly:
    """An expression as a sum."""
    return e if isinstance(e, Poly) else atom(e)


def as_atom(p: Poly) -> Expr:
    """The single atom that p consists of, or p itself: the form of a position."""
    if not p.terms:
        return num(0)
    if len(p.terms) == 1:
        (t,) = p.terms
        if not t.factors:
            return Num(t.coef)
        if t.coef == 1 and not t.binders and len(t.factors) == 1:
            if not isinstance(t.factors[0], Pow):
                return t.factors[0]
    return p


def add(*polys: Poly) -> Poly:
    """p + q + ..."""
    some = [p for p in polys if p.terms]
    if len(some) <= 1:
        return some[0] if some else ZERO
    return poly([t for p in some for t in p.terms])


def scale(p: Poly, c: int | Fraction) -> Poly:
    """c * p."""
    return poly(Term(t.coef * c, t.binders, t.factors) for t in p.terms)


def mul(*polys: Poly) -> Poly:
    """p * q * ..., distributed over the terms."""
    result = ONE
    for p in polys:
        if result is ONE:
            result = p
        elif p is not ONE:
            result = add(*(_multiply_terms(a, b) for a in result.terms for b in p.terms))
    return result


def _multiply_terms(a: Term, b: Term) -> Poly:
    if b.binders:
        b_binders, b_factors = rename_binders(b, frozenset(a.binders) | free_indices(a))
    else:
        b_binders, b_factors = b.binders, b.factors
    if a.binders:
        outer = frozenset(b_binders) | frozenset().union(*(free_indices(f) for f in b_factors))
        a_binders, a_factors = rename_binders(a, outer)
    else:
        a_binders, a_factors = a.binders, a.factors
    coef = a.coef if b.coef == 1 else a.coef * b.coef
    return _distribute_term(make_term(coef, a_binders + b_binders, a_factors + b_factors))


def rename_binders(t: Term, taken: frozenset[Index]) -> tuple[tuple[Index, ...], tuple[Expr, ...]]:
    """The binders and factors of t, with binders in ``taken`` renamed."""
    names = {i.name for i in taken}
    names |= {i.name for i in t.binders} | {i.name for i in free_indices(t)}
    unused = _dummies(names)
    mapping = {i: Index(next(unused), i.extent, i.group) for i in t.binders if i in taken}
    binders = tuple(mapping.get(i, i) for i in t.binders)
    return binders, tuple(map(substitution(mapping), t.factors)) if mapping else t.factors


def _distribute_term(t: Expr) -> Poly:
    """A term as a Poly, distributed over a sum among its factors with power 1."""
    assert isinstance(t, Term)
    for n, factor in enumerate(t.factors):
        if isinstance(factor, Poly):
            rest = Term(t.coef, (), t.factors[:n] + t.factors[n + 1 :])
            inner = add(*(_multiply_terms(rest, other) for other in factor.terms))
            return sum_over(inner, t.binders)
    return poly([t])


def sum_over(p: Poly, indices: Sequence[Index]) -> Poly:
    """Sum_indices p."""
    if not indices:
        return p
    terms = []
    for t in p.terms:
        binders, factors = rename_binders(t, frozenset(indices)) if t.binders else ((), t.factors)
        terms.append(make_term(t.coef, (*indices, *binders), factors))
    return poly(terms)


def power(p: Poly, exponent: Fraction) -> Poly:
    """p ** exponent.

    (a*b)^n = a^n*b^n for integer n. For other exponents only positive factors are pulled out, since
    (x^2)^(1/2) is |x|. A power of a sum stays one opaque factor, without the number and the sizes
    in front of a sum over indices.
    """
    if exponent == 1:
        return p
    if exponent == 0:
        return ONE
    if not p.terms:
        return p if exponent > 0 else atom(num(0), exponent)
    (t, *more) = p.terms
    if t.binders and not more and exponent.denominator == 1:
        sizes = [f for f in t.factors if isinstance(base_and_power(f)[0], Size)]
        if sizes or t.coef != 1:
            rest = [f for f in t.factors if f not in sizes]
            total = as_atom(poly([make_term(Fraction(1), t.binders, rest)]))
            return mul(power(poly([make_term(t.coef, (), sizes)]), exponent), atom(total, exponent))
    if more or t.binders or (exponent < 0 and any(is_mask(f) for f in t.factors)):
        numbers = more and not t.binders and not tensors(p) and not free_indices(p)
        return poly(
            [make_term(Fraction(1), (), (raised(FactoredSum(p) if numbers else p, exponent),))]
        )
    if exponent.denominator == 1:
        parts = [raised(Num(t.coef), exponent)]
        for factor in t.factors:
            base, inner = base_and_power(factor)
            parts.append(raised(base, inner * exponent))
        return _distribute_term(make_term(Fraction(1), (), parts))
    return _fractional_power(t, exponent)


def _fractional_power(t: Term, exponent: Fraction) -> Poly:
    """A fractional power of a product, with its positive factors pulled out."""
    outside: list[Expr] = []
    inside: list[Expr] = []
    for factor in t.factors:
        base, inner = base_and_power(factor)
        if is_positive(base) or is_mask(base) or inner.denominator != 1:
            outside.append(raised(base, inner * exponent))
        else:
            inside.append(factor)
    sign = Fraction(1 if t.coef > 0 else -1)
    if sign == -1 and t.factors and not inside:
        # (-1)^(1/2) is nan also where a condition excludes the whole.
        return poly([make_term(Fraction(1), (), (raised(poly([t]), exponent),))])
    root = raised(Num(abs(t.coef)), exponent)
    if sign == 1 and len(inside) == 1 and not isinstance(inside[0], Pow):
        outside.append(raised(inside[0], exponent))
    elif inside or sign == -1:
        remainder = poly([make_term(sign, (), inside)])
        # (a*b)^(-3/2) = (a*b)^(-1/2) / (a*b), so that the divisors may cancel individually.
        n = ceil(exponent) if sign == 1 and len(inside) > 1 and exponent < -1 else 0
        outside.append(raised(remainder, exponent - n))
        outside += [raised(base, i * n) for base, i in map(base_and_power, inside) if n]
    return poly([make_term(Fraction(1), (), [root, *outside])])


def is_positive(base: Expr) -> bool:
    """True if the atom is known to be positive."""
    if isinstance(base, Num):
        return base.value > 0
    known = isinstance(base, Call) and base.function in ("exp", "sigmoid")
    return known or isinstance(base, Const | Size)

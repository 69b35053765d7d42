"""Simplify sums for display: gathers, means, and common factors.

    sum[v]([s == v]*x[v])               x[s]                (0 where s is no v)
    a*sum[k](w*x) + sum[k](w*y)         sum[k](w*(a*x + y))
    1/size(k)*sum[k](x)                 mean[k](x)          (nan where k has no values)

The code keeps the left sides, so no difference with more axes than its operands is formed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from derive.algebra.expr import (
    Access,
    Add,
    Expr,
    Index,
    Iverson,
    Mul,
    Num,
    Pow,
    Reduce,
    Rel,
    Size,
    factors_of,
    free_indices,
    indices_of,
    num,
    product_of,
    sum_of,
    walk,
)
from derive.algebra.substitution import rename_apart, replace_inside_out, substitute
from derive.show.identities import beside_deltas


def with_means(e: Expr) -> Expr:
    """Replace sums over k divided by size(k) by means; nan where k has no values."""
    return replace_inside_out(e, _sum_as_mean)


def _sum_as_mean(e: Expr) -> Expr:
    for total in factors_of(e) if isinstance(e, Mul) else ():
        if isinstance(total, Reduce) and total.kind == "sum" and total.condition is None:
            left = list(factors_of(e))
            below = [Pow(Size(i.extent), num(-1)) for i in total.indices]
            if all(below.count(b) <= left.count(b) for b in below):
                for b in below:
                    left.remove(b)
                left[left.index(total)] = Reduce("mean", total.indices, total.body)
                return _sum_as_mean(product_of(left))
    return e


# Gathers


def gathered(e: Expr, integers: Collection[str]) -> Expr:
    """Replace a sum over v with a factor [s = v], s an integer tensor, by its term at v = s."""
    reads: set[Expr] = set()

    def visit(part: Expr) -> Expr:
        if isinstance(part, Mul) and not reads.isdisjoint(part.args):
            # A product prints its sums last; the gathered factors now go first.
            args = sorted(part.args, key=lambda a: (not isinstance(a, Num), a not in reads))
            return product_of([f for a in args for f in factors_of(a)])
        found = _gather_reduce(part, integers)
        if found is not part and not isinstance(found, Reduce):
            reads.add(found)
        return found

    return replace_inside_out(e, visit)


def _gather_reduce(e: Expr, integers: Collection[str]) -> Expr:
    if not isinstance(e, Reduce) or e.kind != "sum" or e.condition is not None:
        return e
    for bracket in factors_of(e.body):
        for v, s in _named_positions(bracket, e.indices):
            if s.tensor not in integers:
                continue
            rest = product_of([a for a in factors_of(e.body) if a is not bracket])
            if _is_read_at(rest, v):
                body, left = substitute(rest, {v: s}), tuple(i for i in e.indices if i is not v)
                return _gather_reduce(Reduce("sum", left, body), integers) if left else body
    return e


def _named_positions(bracket: Expr, indices: Sequence[Index]) -> Iterator[tuple[Index, Access]]:
    """Yield (v, s) if the bracket is [s = v] for an index v and a tensor s."""
    c = bracket.condition if isinstance(bracket, Iverson) else None
    if isinstance(c, Rel) and c.op == "==":
        for v, s in ((c.left, c.right), (c.right, c.left)):
            if v in indices and isinstance(s, Access) and v not in free_indices(s):
                assert isinstance(v, Index)
                yield v, s


def _is_read_at(e: Expr, v: Index) -> bool:
    """True if a factor is a tensor read at v, so that it implies that s is a valid v."""
    return any(isinstance(a, Access) and v in a.positions for a in factors_of(e))


# What sums share


@dataclass(frozen=True)
class _Sum:
    """A product of outside factors and a sum, or mean, of inside factors."""

    kind: str
    indices: tuple[Index, ...]
    outside: list[Expr]
    inside: list[Expr]


def merged(e: Expr) -> Expr:
    """Merge sums that share factors, where the remainders are short."""
    read = replace_inside_out(e, _read_beside_deltas)
    found = replace_inside_out(
        read, lambda part: _merge_sum_pair(part) if isinstance(part, Add) else part
    )
    return e if found is read else found


def _read_beside_deltas(e: Expr) -> Expr:
    return product_of(beside_deltas(e.args)) if isinstance(e, Mul) else e


def _merge_sum_pair(e: Add) -> Expr:
    sums = {n: s for n, a in enumerate(e.args) if (s := _as_sum(a)) is not None}
    for one, two in permutations(sums, 2):
        whole = _one_sum(sums[one], sums[two]) if one < two else None
        if whole is not None:
            rest = [a for n, a in enumerate(e.args) if n not in (one, two)]
            made = sum_of([*rest, whole])
            return _merge_sum_pair(made) if isinstance(made, Add) else made
    return _number_apart(e)


def _number_apart(e: Add) -> Expr:
    """Factor out a common number: 4*a - 4*b is 4*(a - b)."""
    numbers = [a.args[0] if isinstance(a, Mul) else a for a in e.args]
    sizes = {abs(n.value) if isinstance(n, Num) else Fraction(1) for n in numbers}
    size = sizes.pop()
    if sizes or size == 1:
        return e
    signs = (Num(n.value / size) for n in numbers if isinstance(n, Num))
    rest = [factors_of(a)[1:] for a in e.args]
    terms = (
        product_of([*((n,) if n.value < 0 else ()), *f]) for n, f in zip(signs, rest, strict=True)
    )
    return Mul((Num(size), Add(tuple(terms))))


def _as_sum(e: Expr) -> _Sum | None:
    found = [a for a in factors_of(e) if isinstance(a, Reduce)]
    if len(found) != 1 or found[0].kind not in ("sum", "mean") or found[0].condition is not None:
        return None
    outside = [a for a in factors_of(e) if a is not found[0]]
    return _Sum(found[0].kind, found[0].indices, outside, list(factors_of(found[0].body)))


def _one_sum(a: _Sum, b: _Sum) -> Expr | None:
    """Return a + b as one sum, or None."""
    if a.kind != b.kind or len(a.indices) != len(b.indices):
        return None
    # Factors outside a sum may use the letters that are bound in it.
    indices = rename_apart(a.indices, [*indices_of((*a.outside, *b.outside)), *b.indices])
    first = _renamed_summand(a, indices)
    for order in permutations(indices):
        second = _renamed_summand(b, order)
        shared = _common(first, second)
        left = (
            _remaining_summand(a, first, shared, b.outside),
            _remaining_summand(b, second, shared, a.outside),
        )
        if frozenset(indices) <= indices_of(shared) and None not in left:
            inside = product_of([*shared, Add(tuple(x for x in left if x is not None))])
            outside = _common(a.outside, b.outside)
            return product_of([*outside, Reduce(a.kind, indices, inside)])
    return None


def _renamed_summand(s: _Sum, indices: Sequence[Index]) -> list[Expr]:
    """Return the inside factors with these indices, or [] if extents differ."""
    pairs = dict(zip(s.indices, indices, strict=True))
    alike = all((i.extent, i.group) == (j.extent, j.group) for i, j in pairs.items())
    return [substitute(x, {**pairs}) for x in s.inside] if alike else []


def _common(a: Sequence[Expr], b: Sequence[Expr]) -> list[Expr]:
    left, found = list(b), []
    for x in a:
        if x in left:
            left.remove(x)
            found.append(x)
    return found


def _list_difference(a: Sequence[Expr], gone: Sequence[Expr]) -> list[Expr]:
    left = list(a)
    for x in gone:
        left.remove(x)
    return left


def _remaining_summand(
    s: _Sum, inside: list[Expr], shared: list[Expr], other: list[Expr]
) -> Expr | None:
    """Return the remaining factors to move inside the sum.

    None if a tensor from outside would multiply inside factors.
    """
    outer, inner = (
        _list_difference(s.outside, _common(s.outside, other)),
        _list_difference(inside, shared),
    )
    if inner and any(isinstance(p, Access) and p.positions for x in outer for p in walk(x)):
        return None
    return product_of([*outer, *inner])

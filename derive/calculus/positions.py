"""What is certain of positions: integers within an axis, and conditions that select one position.

    y[k] = ... x[s[k]] ...  with x[n]   =>   0 <= s[k] < size(n) for every k
    y[k] = ... x[3] ...     with x[n]   =>   4 <= size(n)

An unguarded read out of range is an error, so every rewrite may assume that it is in range.

    where(t == 0, a, where(t == 1, b, c))  =  delta(t, 0)*a + delta(t, 1)*b + delta(t, 2)*c

Here t has three positions. A position may be row-major over several indices: 3*t + u == 5 is t = 1
and u = 2. The values are stacked, and an access at a fixed position reads one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Pow,
    Reduce,
    Rel,
    Where,
    free_indices,
    num,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.poly import Poly, as_atom
from derive.algebra.reductions import CONDITIONS
from derive.algebra.substitution import replace_inside_out
from derive.notation.operation import Equation, Extent, Operation, SizeOf


def bounds_of(op: Operation) -> Bounds:
    """The proven bounds of the sizes and the integers of an operation."""
    integers = (
        p.name for p in op.parameters if isinstance(p, SizeOf) or getattr(p, "integer", False)
    )
    return Bounds(given_sizes(op.extents), integers, certain_positions(op), least_sizes(op))


def given_sizes(extents: Iterable[Extent]) -> dict[str, Expr | None]:
    """Extent -> the size that the operation gives it, or None; groups are omitted."""
    return {e.name: e.size for e in extents if not e.group}


def certain_positions(op: Operation) -> dict[str, str]:
    """Tensor -> an extent that every value of the tensor is a position of."""
    axes = _declared_axes(op)
    found: dict[str, str] = {}
    for position, extent in _unguarded_positions(op):
        if isinstance(position, Access) and _covers_tensor(position, axes[position.tensor]):
            found.setdefault(position.tensor, extent)
    return found


def least_sizes(op: Operation) -> dict[str, int]:
    """Extent -> a proven lower bound of its size."""
    found: dict[str, int] = {}
    for position, extent in _unguarded_positions(op):
        if isinstance(position, Num) and position.value.denominator == 1:
            found[extent] = max(found.get(extent, 0), int(position.value) + 1)
    return found


def _unguarded_positions(op: Operation) -> Iterator[tuple[Expr, str]]:
    """The positions of unguarded reads, each with the extent of its axis."""
    axes = _declared_axes(op)
    for equation in op.equations:
        for a in _always_read(equation.body):
            for position, axis in zip(a.positions, axes[a.tensor], strict=True):
                if isinstance(axis, Index) and not axis.group:
                    yield position, axis.extent


def freely_read(op: Operation) -> tuple[Equation, ...]:
    """The equations without guards of positions that are certainly valid."""
    axes, certain = _declared_axes(op), certain_positions(op)

    def freed(e: Expr) -> Expr:
        if not isinstance(e, Access):
            return e
        pairs = zip(e.positions, axes[e.tensor], strict=True)
        return Access(e.tensor, tuple(bare(p, axis) for p, axis in pairs))

    def bare(position: Expr, axis: Expr) -> Expr:
        inner = position.position if isinstance(position, Guard) else position
        known = certain.get(inner.tensor) if isinstance(inner, Access) else None
        return inner if isinstance(axis, Index) and axis.extent == known else position

    if not certain:
        return op.equations
    return tuple(replace(q, body=replace_inside_out(q.body, freed)) for q in op.equations)


def _declared_axes(op: Operation) -> dict[str, tuple[Expr, ...]]:
    return {t.name: t.axes for t in op.inputs} | {e.name: e.axes for e in op.equations}


def _always_read(e: Expr) -> Iterator[Access]:
    """The accesses in e that no condition guards."""
    parts: tuple[Expr, ...] = ()
    match e:
        case Access():
            yield e
            parts = e.positions
        case Reduce(kind, _, body, None) if kind not in CONDITIONS:
            parts = (body,)
        case Add() | Pow() | Call() | Rel() | Not():
            parts = e.parts()
        case Mul(args) if not any(isinstance(a, Iverson) for a in args):
            parts = args
        case Where(condition) | Iverson(condition):
            parts = (condition,)
        case And(args) | Or(args):
            # The first condition guards the others.
            parts = args[:1]
    for part in parts:
        yield from _always_read(part)


def _covers_tensor(a: Access, axes: tuple[Expr, ...]) -> bool:
    """True if the access reads the whole tensor, with distinct indices."""
    extents = [i.extent for i in axes if isinstance(i, Index)]
    read = [i for i in a.positions if isinstance(i, Index)]
    return (
        len(set(read)) == len(a.positions) == len(extents) and [i.extent for i in read] == extents
    )


@dataclass(frozen=True)
class PositionCase:
    """The condition that indices are at a row-major position, negated if ``denied``."""

    denied: bool
    indices: tuple[tuple[Index, int], ...]
    """Each with its size, outermost first."""
    position: int

    def at(self, position: int) -> tuple[Delta, ...]:
        """Deltas that fix the indices at a position."""
        deltas: list[Delta] = []
        for i, size in reversed(self.indices):
            position, digit = divmod(position, size)
            deltas.insert(0, Delta(i, num(digit)))
        return tuple(deltas)

    def excludes(self, factor: Expr) -> bool:
        """True if the factor is a delta that fixes one of the indices at another position."""
        if not isinstance(factor, Delta) or not isinstance(factor.position, Num):
            return False
        return any(d.axis is factor.axis and d is not factor for d in self.at(self.position))


def case_of(bounds: Bounds, condition: Expr) -> PositionCase | None:
    """The case of t == 1, t != 1 or 3*t + u == 4 for indices whose sizes are numbers."""
    if not isinstance(condition, Rel) or condition.op not in ("==", "!="):
        return None
    left, right = condition.left, condition.right
    assert isinstance(left, Poly) and isinstance(right, Poly)
    sides = as_atom(left), as_atom(right)
    n = next((x.value for x in sides if isinstance(x, Num)), None)
    other = right if isinstance(sides[0], Num) else left
    form = bounds.form(other) if n is not None and free_indices(other) else None
    if n is None or form is None:
        return None
    terms = (form - Polynomial.of(num(n))).terms
    sign = -1 if any(c < 0 for key, c in terms.items() if key) else 1
    indices: list[tuple[Index, int]] = []
    whole = 1
    for key, c in sorted(terms.items(), key=lambda term: term[1] * sign):
        if not key:
            continue
        size = bounds.size(key[0].extent).number if isinstance(key[0], Index) else None
        if size is None or len(key) > 1 or c * sign != whole:
            return None
        assert isinstance(key[0], Index)
        indices.insert(0, (key[0], int(size)))
        whole *= int(size)
    position = -sign * terms.get((), Fraction(0))
    if not indices or position not in range(whole):
        return None
    return PositionCase(condition.op == "!=", tuple(indices), int(position))


def only_case(bounds: Bounds, condition: Expr, around: Sequence[Expr]) -> tuple[Delta, ...] | None:
    """Deltas of the only position that a condition admits.

    t == 1 admits one. t != 1 admits one if the conditions around it exclude all others but one.
    """
    case = case_of(bounds, condition)
    if case is None:
        return None
    if not case.denied:
        return case.at(case.position)
    others = (case_of(bounds, c) for c in around)
    gone = {c.position for c in others if c and c.denied and c.indices == case.indices}
    left = set(range(prod(size for _, size in case.indices))) - gone - {case.position}
    return case.at(left.pop()) if len(left) == 1 else None

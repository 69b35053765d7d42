"""Integer tensors whose values are certainly positions of an axis.

    y[k] = ... x[s[k]] ...  with x[n]   =>   0 <= s[k] < size(n) for every k
    y[k] = ... x[3] ...     with x[n]   =>   4 <= size(n)

An unguarded read out of range is an error, so every rewrite may assume that it is in range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
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
)
from derive.algebra.inequalities import Bounds
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

"""X[e1, ...]: plain indices name axes, other positions are read one axis after the other."""

from __future__ import annotations

from dataclasses import replace

from derive.algebra.expr import Access, Expr, Guard, Index, accesses
from derive.algebra.factor import factor
from derive.algebra.logic import conditions_of, conjunction
from derive.calculus.lets import layout
from derive.lowering.ground.context import Scope
from derive.lowering.ground.gather import read_together
from derive.lowering.ground.pattern import first_match
from derive.lowering.ground.summation import Summation
from derive.lowering.ground.value import Value
from derive.lowering.ground.windows import axis_read, unguarded_position
from derive.lowering.patterns import PLACED, PLACEMENTS, READS
from derive.lowering.patterns.digits import read_as_one
from derive.lowering.patterns.reads import may_lack_positions
from derive.lowering.patterns.scatter_elements import Placed, placement
from derive.program.torch_ir import Code


def lower_access(scope: Scope, e: Access) -> Value:
    """Lower X[e1, ...]: plain indices name axes, other positions are read axis by axis."""
    value = scope.tensor(e.tensor)
    axes: list[Index | None] = []
    pending: list[tuple[Index, Expr]] = []
    positions = iter(e.positions)
    for n, home in enumerate(value.axes):
        if home is None:
            axes.append(None)
            continue
        position = next(positions)
        if isinstance(position, Index) and position.extent == home.extent and position not in axes:
            axes.append(position)
            continue
        # An axis that is still to be read gets a unique index.
        marker = Index(f"#{n}", home.extent, home.group)
        axes.append(marker)
        pending.append((marker, _guarded_as_what_it_reads(position)))
    value = replace(value, axes=tuple(axes))
    together = _read_all_computed(scope, value, pending)
    if together is not None:
        value, pending = together
    value, pending = _read_joined_axes(scope, value, pending)
    for marker, position in pending:
        value = read(scope, value, value.axes.index(marker), position)
    return value


def _guarded_as_what_it_reads(position: Expr) -> Expr:
    """Return U[V[k] if valid] as U[V[k] if valid] if valid: what is at 0 may be out of range."""
    if isinstance(position, Guard):
        return position
    inside = (p for a in accesses(position) for p in a.positions if isinstance(p, Guard))
    tests = [
        c
        for p in inside
        for c in conditions_of(p.condition)
        if set(accesses(c)) <= set(accesses(p.position))
    ]
    return Guard(conjunction([*dict.fromkeys(tests)]), position) if tests else position


Pending = list[tuple[Index, Expr]]


def _read_all_computed(
    scope: Scope, value: Value, pending: Pending
) -> tuple[Value, Pending] | None:
    """Return the value read at all positions that tensors compute, and the other positions."""
    given = [(axis, e) for axis, e in pending if any(accesses(unguarded_position(e)))]
    if len(given) < 2:
        return None
    places = [value.axes.index(axis) for axis, _ in given]
    positions = [scope.lower(factor(e), layout(e)) for _, e in given]
    if any(p.scalar for p in positions):
        return None
    nowhere = any(may_lack_positions(scope, e, axis.extent) for axis, e in given)
    made = read_together(scope.frame, value, places, positions, scope.positions, nowhere)
    return None if made is None else (made, [x for x in pending if x not in given])


def _read_joined_axes(scope: Scope, value: Value, pending: Pending) -> tuple[Value, Pending]:
    """Return the value read where positions on adjacent axes are the digits of a number."""
    for first in range(len(pending)):
        for last in range(len(pending), first + 1, -1):
            chosen = pending[first:last]
            places = [(value.axes.index(axis), e) for axis, e in chosen]
            if [n for n, _ in places] != list(range(places[0][0], places[0][0] + len(places))):
                continue
            made = read_as_one(scope, value, places)
            if made is not None:
                return _read_joined_axes(scope, made, [x for x in pending if x not in chosen])
    return value, pending


def read(scope: Scope, value: Value, n: int, position: Expr) -> Value:
    """Return the value with axis n read at a position."""
    made = first_match(READS, scope, axis_read(scope, value, n, position))
    assert made is not None
    return made


# --------------------------------------------------------------------
# Products with deltas that no sum eliminated: values scattered along new axes.


def lower_placed(scope: Scope, s: Summation, base: Code | None = None) -> Placed:
    """Scatter the values to their positions; return also whether ``base`` was added.

    ``base`` has all axes of the order.
    """
    made = first_match(PLACED, scope, s)
    if made is not None:
        return made, False
    p = placement(scope, s, base)
    if isinstance(p, Expr):
        return scope.lower(p, s.order), False
    found = first_match(PLACEMENTS, scope, p)
    assert found is not None
    return found

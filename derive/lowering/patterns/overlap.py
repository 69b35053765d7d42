"""Windows that are added where they overlap: the adjoint of reading them.

    Sum_{k,a} delta(i, s*k + a + c) f(k, a)  =  windows f(k) of a added at s*k + c

with a number s, along one axis or several; windows that are all side by side are digits. f is any
tensor with both indices. What is added at no position of the axis is left out, so no condition
keeps it from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from derive.algebra.affine import Polynomial
from derive.algebra.expr import Expr, Index, Iverson, free_indices
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of
from derive.lowering.ground.context import Scope
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Value
from derive.lowering.ground.windows import affine_position, number_of, unguarded_position
from derive.lowering.patterns.scatter_elements import targets_of
from derive.lowering.patterns.unfold import nonnegative_form
from derive.program.torch_ir import Dim, FunctionCall, literal


@dataclass(frozen=True)
class _Windows:
    """Positions step*place + within + start of an axis."""

    axis: Index
    place: Index
    within: Index
    step: int
    start: Polynomial


def overlapping_windows(scope: Scope, s: Summation) -> Value | None:
    """Sum_{k,a} delta(i, s*k + a) f(k, a) = windows f(k) added at s*k."""
    targets, rest = targets_of(s)
    bounds, windows = scope.frame.bounds, []
    for axis, position in targets:
        found = _windows(bounds, axis, position)
        if found is None or not {found.place, found.within} <= {*s.binders}:
            return None
        windows.append(found)
    moving = [i for w in windows for i in (w.place, w.within)]
    ends = [e for axis, p in targets for e in _ends(bounds, axis, p)]
    factors = [f for part in rest for f in _without(bounds, part, ends)]
    read = {i for f in factors for i in free_indices(f)}
    if all(bounds.size(w.within.extent).number == w.step for w in windows):
        return None
    if len({*moving}) < len(moving) or not read.issuperset(moving):
        return None
    places = {w.axis: w.place for w in windows}
    around = [places.get(i, i) for i in s.order]
    content = summed_product([i for i in s.binders if i not in moving], factors)
    axes = (*(i for i in around if i in (*read, *moving)), *(w.within for w in windows))
    value = scope.frame.expand(scope.as_float(scope.lower(content, axes)), axes, scope.like)
    for w in reversed(windows):
        n = value.axes.index(w.place)
        at = scope.frame.position(value.axes, n)
        size, start = Dim(w.axis.extent), number_of(scope, w.start)
        code = FunctionCall("rt.overlap_add", (value.code, at, literal(w.step), start, size))
        value = Value(code, (*value.axes[:n], w.axis, *value.axes[n + 1 : -1]))
    return value


def _windows(bounds: Bounds, axis: Index, position: Expr) -> _Windows | None:
    """Return the windows of a position in two indices, one of which counts single positions."""
    found = affine_position(bounds, unguarded_position(position))
    steps = {} if found is None else {i: c.number for i, c in found.coefficients.items()}
    if found is None or len(steps) != 2 or any(n is None or n < 1 for n in steps.values()):
        return None
    within = min(steps, key=lambda i: (steps[i], bounds.size(i.extent).number is None))
    (place,) = (i for i in steps if i is not within)
    if steps[within] != 1 or axis.group or place.group or within.group:
        return None
    return _Windows(axis, place, within, int(steps[place] or 1), found.constant)


def _ends(bounds: Bounds, axis: Index, position: Expr) -> Iterator[Polynomial]:
    """Yield the forms that are at least 0 exactly at positions of the axis."""
    form = bounds.form(unguarded_position(position))
    assert form is not None
    yield from (form, bounds.size(axis.extent) - Polynomial.of(1) - form)


def _without(bounds: Bounds, f: Expr, ends: list[Polynomial]) -> list[Expr]:
    """Return the factor; of a bracket, the conditions that are not those of being on the axis."""
    if not isinstance(f, Iverson):
        return [f]
    return [
        Iverson(c) for c in conditions_of(f.condition) if nonnegative_form(bounds, c) not in ends
    ]

"""Runs of neighboring positions: read by ``narrow``, written by ``slice_scatter``.

    X[.., s + i, ..] = X.narrow(axis, s, size(i))    where 0 <= s and s + size(i) <= size(axis)

``narrow`` counts a negative start from the end, so a run must be certain to lie inside. A guarded
run is read from the axis padded on either side by as many zeros as the run may overlap, whatever
the sizes are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra.affine import Affine, Polynomial
from derive.algebra.expr import Call, Expr, Guard, Index, Param, Size
from derive.algebra.inequalities import Bounds
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import NeedsFlatGroups, Value, is_group
from derive.program.torch_ir import Binary, Code, Dim, FunctionCall, Keyword, Tuple, Unary, literal

ZERO, ONE = Polynomial({}), Polynomial.of(1)


@dataclass(frozen=True)
class Window:
    """The positions start + step*i for every i; start has no index and step is a number."""

    index: Index
    start: Polynomial
    step: int

    def span(self, bounds: Bounds) -> tuple[Polynomial, Polynomial]:
        """Return the least position, and one past the greatest."""
        reach = (bounds.size(self.index.extent) - ONE) * Polynomial.of(abs(self.step))
        if self.step > 0:
            return self.start, self.start + reach + ONE
        return self.start - reach, self.start + ONE


def unguarded_position(position: Expr) -> Expr:
    """Return a position without its guard."""
    return position.position if isinstance(position, Guard) else position


def affine_position(bounds: Bounds, position: Expr) -> Affine | None:
    """Return the coefficient of each index and the constant part; None if not affine."""
    form = bounds.form(position)
    if form is None or any(isinstance(part, Call) for key in form.terms for part in key):
        return None
    return form.affine()


def affine_window(bounds: Bounds, position: Expr) -> Window | None:
    """Return the window of an affine position in one index with a constant step, else None."""
    found = affine_position(bounds, position)
    if found is None or len(found.coefficients) != 1:
        return None
    ((i, step),) = found.coefficients.items()
    return None if step.number is None else Window(i, found.constant, int(step.number))


def lies_inside(bounds: Bounds, w: Window, extent: str) -> bool:
    """True if every position is certainly on the axis."""
    low, high = w.span(bounds)
    return bounds.at_most(ZERO, low) and bounds.at_most(high, bounds.size(extent))


def is_given(form: Polynomial) -> bool:
    """True if the form has only parameters and sizes."""
    return all(isinstance(part, Param | Size) for key in form.terms for part in key)


def number_of(scope: Scope, form: Polynomial) -> Code:
    """Return the code of an integer; a `Dim` if it equals one size."""
    if form.number is None:
        for extent in scope.frame.bounds.extents_of(form)[:1]:
            return Dim(extent)
    return scope.lower(form.expr(), ()).code


# Reads


@dataclass(frozen=True)
class AxisRead:
    """Axis n of a value, read at a position."""

    value: Value
    n: int
    position: Expr
    place: Code
    extent: str
    along: Window | None
    """The window of the position, guarded or not, if its index is not an axis of the value."""

    @property
    def is_guarded(self) -> bool:
        return isinstance(self.position, Guard)


def axis_read(scope: Scope, value: Value, n: int, position: Expr) -> AxisRead:
    axis = value.axes[n]
    assert axis is not None
    along = affine_window(scope.frame.bounds, unguarded_position(position))
    if along is not None and along.index in value.axes:
        along = None
    return AxisRead(value, n, position, scope.frame.position(value.axes, n), axis.extent, along)


def read_window(scope: Scope, r: AxisRead) -> Value | None:
    """X[s + i] = X.narrow(s, size(i))[i].

    The window is certainly inside.
    """
    bounds, w = scope.frame.bounds, r.along
    if w is None or r.is_guarded or abs(w.step) != 1:
        return None
    if not lies_inside(bounds, w, r.extent) and not _is_block(bounds, w):
        return None
    low, _ = w.span(bounds)
    value = r.value
    if low != ZERO or bounds.size(w.index.extent) != bounds.size(r.extent):
        value = value.call("narrow", r.place, number_of(scope, low), Dim(w.index.extent))
    return _flip_window(value.at(r.n, w.index), r.place, w)


def _is_block(bounds: Bounds, w: Window) -> bool:
    """True if the window is one block of an axis of equal blocks, after its predecessors.

    Its start is at least 0, and 0 if the block is empty. A read is in range by definition, even if
    the bounds do not prove it.
    """
    own = Size(w.index.extent)
    inside = bounds.at_most(ZERO, w.start)
    return w.step == 1 and inside and all(own in key for key in w.start.terms)


def read_guarded(scope: Scope, r: AxisRead) -> Value | None:
    """X[e if 0 <= e < size] = padded X[e], e = s + i."""
    w = r.along
    if w is None or not r.is_guarded or abs(w.step) != 1:
        return None
    return along(scope, r.value, r.n, w)


def along(scope: Scope, value: Value, n: int, w: Window, *outside: Code) -> Value:
    """Return the value along axis n in the order of a unit-step window.

    Positions off the axis have the value ``outside``, or 0.
    """
    bounds, axis = scope.frame.bounds, value.axes[n]
    assert axis is not None
    place = scope.frame.position(value.axes, n)
    start, stop = w.span(bounds)
    before, after = -start, stop - bounds.size(axis.extent)
    behind = value.axes[n + 1 :]
    covers = bounds.at_most(ZERO, before) and bounds.at_most(ZERO, after)
    if covers and not any(map(is_group, behind)):
        ends = (number_of(scope, f) for f in (before, after))
        code = pad(value.code, [*[literal(0)] * (2 * len(behind)), *ends], *outside)
    else:
        args = (value.code, place, number_of(scope, start), Dim(w.index.extent), *outside)
        code = FunctionCall("rt.window", args)
    return _flip_window(replace(value, code=code).at(n, w.index), place, w)


def _flip_window(value: Value, place: Code, w: Window) -> Value:
    return value if w.step > 0 else value.call("flip", place)


# Zeros around


def zero_padded(scope: Scope, value: Value, n: int, before: Code, after: Code) -> Value:
    """Return the value with zeros before and after along axis n."""
    behind = value.axes[n + 1 :]
    if not any(map(is_group, behind)):
        amounts = [*[literal(0)] * (2 * len(behind)), before, after]
        return replace(value, code=pad(value.code, amounts))
    axis, zero = value.axes[n], literal(0)
    if before is zero and after is zero:
        return value
    assert axis is not None
    size: Code = Dim(axis.extent)
    for more in (before, after):
        size = size if more is zero else Binary("+", size, more)
    return _from_before(scope, value, n, before, size)


def _from_before(scope: Scope, value: Value, n: int, before: Code, size: Code) -> Value:
    """Return ``size`` elements along axis n, after so many zeros, and before zeros."""
    start = before if before is literal(0) else Unary("-", before)
    place = scope.frame.position(value.axes, n)
    return replace(value, code=FunctionCall("rt.window", (value.code, place, start, size)))


def padded_along(scope: Scope, value: Value, amounts: Mapping[int, tuple[Code, Code]]) -> Value:
    """Return the value with zeros before and after along axes, which then have their sizes."""
    groups = [n for n, i in enumerate(value.axes) if is_group(i)]
    last = max(groups, default=-1)
    ends = {n: around for n, around in amounts.items() if n > last}
    if ends:
        zero = literal(0), literal(0)
        at = range(len(value.axes) - 1, min(ends) - 1, -1)
        value = replace(value, code=pad(value.code, [a for n in at for a in ends.get(n, zero)]))
    before = {n: around for n, around in amounts.items() if n <= last}
    if len(before) > 1:
        raise NeedsFlatGroups("zeros along several axes before a group")
    for n, (zeros, _) in before.items():
        axis = value.axes[n]
        assert axis is not None
        value = _from_before(scope, value, n, zeros, Dim(axis.extent))
    return value


def pad(code: Code, amounts: Sequence[Code], *outside: Code) -> Code:
    """Pad the axes of the code with zeros or a number, last axis first; negative amounts crop."""
    zero, left = literal(0), list(amounts)
    while left and left[-1] is zero and left[-2] is zero:
        del left[-2:]
    args = (code, Tuple(tuple(left)), *(Keyword("value", n) for n in outside))
    return FunctionCall("torch.nn.functional.pad", args) if left else code

"""Runs of neighbouring positions: read by ``narrow``, placed by ``slice_scatter``.

    X[.., s + i, ..] = X.narrow(axis, s, size(i))    where 0 <= s and s + size(i) <= size(axis)

``narrow`` takes a negative start from the end, so a run that is not certain to lie inside is no
window. What a guard keeps inside is read from the axis with as many zeros on either side as the
run may overlap, whatever the sizes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Call, Expr, Index
from derive.calculus.bounds import Bounds
from derive.lowering.code import Code, Dim, Function, Method, Name, Shape, Tuple, literal
from derive.lowering.scope import Scope
from derive.lowering.value import Value, index_key
from derive.notation.affine import Polynomial

__all__ = ["Window", "lies_inside", "number_of", "padded", "read_guarded", "read_window", "window"]

_ZERO = Polynomial({})
_ONE = Polynomial.of(1)


@dataclass(frozen=True)
class Window:
    """The positions start + step*i for every i; start has no index and step is a number."""

    index: Index
    start: Polynomial
    step: int

    def span(self, bounds: Bounds) -> tuple[Polynomial, Polynomial]:
        """The least position, and the one after the greatest."""
        reach = (bounds.size(self.index.extent) - _ONE) * Polynomial.of(abs(self.step))
        if self.step > 0:
            return self.start, self.start + reach + _ONE
        return self.start - reach, self.start + _ONE


def window(bounds: Bounds, position: Expr) -> Window | None:
    """The window that a position runs through; None where it is something else."""
    form = bounds.form(position)
    if form is None or any(isinstance(part, Call) for key in form.terms for part in key):
        return None
    found = [key for key in form.terms if any(isinstance(part, Index) for part in key)]
    if len(found) != 1 or len(found[0]) != 1:
        return None
    ((i,),) = found
    step = form.terms[i,]
    return Window(i, form - Polynomial({(i,): step}), int(step)) if isinstance(i, Index) else None


def lies_inside(bounds: Bounds, w: Window, extent: str) -> bool:
    """Whether every position is certainly on the axis."""
    low, high = w.span(bounds)
    return bounds.at_most(_ZERO, low) and bounds.at_most(high, bounds.size(extent))


def number_of(scope: Scope, form: Polynomial) -> Code:
    """The code of a whole number: a size where one is just that."""
    if form.number is None:
        for extent in scope.frame.bounds.extents_of(form)[:1]:
            return Dim(extent)
    return scope.lower(form.expr(), ()).code


def read_window(scope: Scope, value: Value, n: int, w: Window) -> Value | None:
    """value with axis n read along a window, if that is certainly inside."""
    bounds, home = scope.frame.bounds, value.axes[n]
    if home is None or home.group or abs(w.step) != 1 or not lies_inside(bounds, w, home.extent):
        return None
    low, _ = w.span(bounds)
    whole = low == _ZERO and bounds.size(w.index.extent) == bounds.size(home.extent)
    place, code = scope.frame.position(value.axes, n), value.code
    if not whole:
        code = Method(code, "narrow", (place, number_of(scope, low), Dim(w.index.extent)))
    return _turned(replace(value, code=code, axes=_with(value, n, w.index)), place, w)


def read_guarded(scope: Scope, value: Value, n: int, w: Window) -> Value | None:
    """value with axis n read along a window, 0 where that leaves the axis."""
    bounds, home = scope.frame.bounds, value.axes[n]
    if home is None or home.group or abs(w.step) != 1:
        return None
    start, stop = w.span(bounds)
    size = bounds.size(home.extent)
    before, skipped = _split(scope, -start)
    after, _ = _split(scope, stop - size)
    place = scope.frame.position(value.axes, n)
    value = padded(scope, value, n, before, after)
    if skipped != literal(0) or not bounds.at_most(size, stop):
        args = (place, skipped, Dim(w.index.extent))
        value = replace(value, code=Method(value.code, "narrow", args))
    return _turned(replace(value, axes=_with(value, n, w.index)), place, w)


def _split(scope: Scope, form: Polynomial) -> tuple[Code, Code]:
    """max(form, 0) and max(-form, 0)."""
    zero, bounds = literal(0), scope.frame.bounds
    if bounds.at_most(form, _ZERO):
        return zero, number_of(scope, -form)
    if bounds.at_most(_ZERO, form):
        return number_of(scope, form), zero
    positive, negative = (number_of(scope, f) for f in (form, -form))
    return Function("max", (positive, zero)), Function("max", (negative, zero))


def _turned(value: Value, place: Code, w: Window) -> Value:
    return value if w.step > 0 else replace(value, code=Method(value.code, "flip", (place,)))


def _with(value: Value, n: int, i: Index) -> tuple[Index | None, ...]:
    return (*value.axes[:n], i, *value.axes[n + 1 :])


def padded(scope: Scope, value: Value, n: int, before: Code, after: Code) -> Value:
    """value with zeros before and after along axis n."""
    zero = literal(0)
    if before is zero and after is zero:
        return value
    behind = value.axes[n + 1 :]
    if not any(i is not None and i.group for i in behind):
        amounts = Tuple((*(zero,) * (2 * len(behind)), before, after))
        return replace(value, code=Function("torch.nn.functional.pad", (value.code, amounts)))
    place = scope.frame.position(value.axes, n)
    parts = [_zeros(value, n, before), value.code, _zeros(value, n, after)]
    kept = [p for p, size in zip(parts, (before, None, after), strict=True) if size is not zero]
    return replace(value, code=Function("torch.cat", (Tuple(tuple(kept)), place)))


def _zeros(value: Value, n: int, size: Code) -> Code:
    sizes: Sequence[Code] = [
        size if m == n else literal(1) if i is None else Name(index_key(i))
        for m, i in enumerate(value.axes)
    ]
    return Method(value.code, "new_zeros", (Shape(tuple(sizes)),))

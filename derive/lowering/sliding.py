"""Windows that slide along an axis: the positions step*i + dilation*k of window i and offset k.

    X[.., step*i + dilation*k - before, ..]

The axis with ``before`` zeros in front and ``after`` zeros behind it has just size(i) windows in
torch's count, (length - dilation*(size(k) - 1) - 1) // step + 1; a negative number leaves values
out instead. Reads are views made by ``unfold``, and copy nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.expr import Call, Expr, Guard, Index, Size, walk
from derive.calculus.bounds import Bounds
from derive.calculus.conditions import conditions_of
from derive.lowering.code import Code, Dim, Function, Literal, Method, Subscript, Tuple, literal
from derive.lowering.scope import Scope
from derive.lowering.value import Value
from derive.lowering.windows import Window, lies_inside, number_of
from derive.notation.affine import Polynomial, room

__all__ = [
    "Sliding",
    "bare",
    "fitted",
    "gap",
    "pad",
    "read_sliding",
    "read_strided",
    "runs_over",
    "sliding",
]

_ZERO = Polynomial({})
_ONE = Polynomial.of(1)


@dataclass(frozen=True)
class Sliding:
    """Positions step*place + dilation*within - before on an axis.

    An index that is ``turned`` counts from its end. ``counted`` says that the size of ``place``
    follows from that of the axis, ``chosen`` that sizes say which index counts the windows, and
    ``guarded`` that reads beside the axis are not made.
    """

    extent: str
    place: Index
    within: Index
    step: Polynomial
    dilation: Polynomial
    before: Polynomial
    after: Polynomial
    turned: tuple[Index, ...]
    counted: bool
    chosen: bool
    guarded: bool
    edges: tuple[Polynomial, Polynomial] = (_ZERO, _ZERO)
    """What is at least 0 where a position is on the axis; see `gap`."""
    needed: tuple[Polynomial, ...] = ()
    """Those of the two that only a guard makes so."""

    @property
    def is_padded(self) -> bool:
        """Whether there are zeros in front, or none are needed."""
        return self.before == _ZERO or (self.guarded and self.before.sign == 1)

    @property
    def is_torch(self) -> bool:
        """Whether these are the windows of a convolution with zeros alike on both sides."""
        return self.before == self.after and self.is_padded

    def reaches_all(self, bounds: Bounds) -> bool:
        """Whether every position of the axis is certain to be in a window."""
        near = self.step == _ONE == self.dilation
        return near and all(bounds.at_most(_ZERO, z) for z in (self.before, self.after))

    def length(self, bounds: Bounds) -> Polynomial:
        """The size of the axis with the zeros, or without what is left out."""
        return bounds.size(self.extent) + self.before + self.after

    def covered(self, bounds: Bounds) -> Polynomial:
        """The number of positions from the first to the last."""
        places = self.step * (bounds.size(self.place.extent) - _ONE)
        return places + self.dilation * (bounds.size(self.within.extent) - _ONE) + _ONE


def bare(position: Expr) -> Expr:
    """A position without its guard."""
    return position.position if isinstance(position, Guard) else position


def runs_over(bounds: Bounds, position: Expr) -> dict[Index, Polynomial] | None:
    """The coefficient of each index of an affine position; None where it is something else."""
    found = _affine(bounds, position)
    return None if found is None else found[0]


def _affine(bounds: Bounds, position: Expr) -> tuple[dict[Index, Polynomial], Polynomial] | None:
    form = bounds.form(position)
    if form is None or any(isinstance(part, Call) for key in form.terms for part in key):
        return None
    coefficients: dict[Index, Polynomial] = {}
    rest = form
    for key, value in form.terms.items():
        inside = [part for part in key if isinstance(part, Index)]
        if len(inside) > 1:
            return None
        if inside:
            (i,) = inside
            coefficient = Polynomial({tuple(part for part in key if part is not i): value})
            coefficients[i] = coefficients.get(i, _ZERO) + coefficient
            rest = rest - Polynomial({key: value})
    return coefficients, rest


def sliding(
    bounds: Bounds, position: Expr, extent: str, place: Index | None = None
) -> Sliding | None:
    """The windows that a position of two indices runs through; None where it is something else.

    ``place`` is the index that counts them; where none is given, the one whose size follows from
    that of the axis.
    """
    found = _affine(bounds, bare(position))
    if found is None or len(found[0]) != 2:
        return None
    coefficients, start = found
    turned = []
    for i, c in coefficients.items():
        if c.sign == -1:
            turned.append(i)
            start = start + c * (bounds.size(i.extent) - _ONE)
        elif c.sign != 1:
            return None
    i, k = sorted(coefficients, key=lambda i: (i is not place, -_follows(bounds, i.extent, extent)))
    if k.extent in (i.extent, extent):
        # A window as long as the axis, which may be empty: no window of torch's is.
        return None
    if any(bounds.size(j.extent).number == 0 for j in (i, k)):
        return None
    step, dilation = (-c if c.sign == -1 else c for c in (coefficients[i], coefficients[k]))
    if any(_may_be_zero(bounds, c) for c in (step, dilation)):
        return None
    reach = dilation * (bounds.size(k.extent) - _ONE)
    after = _room(bounds, i.extent, step) + reach + _ONE - bounds.size(extent) + start
    made = Sliding(
        *(extent, i, k, step, dilation, -start, after, tuple(turned)),
        counted=_follows(bounds, i.extent, extent) == 2,
        chosen=_follows(bounds, i.extent, extent) > _follows(bounds, k.extent, extent),
        guarded=isinstance(position, Guard),
    )
    return _in_range(bounds, position, made)


def _may_be_zero(bounds: Bounds, step: Polynomial) -> bool:
    """Whether the step is made of sizes, and none of them says that it is one."""
    sizes = any(isinstance(part, Size) for key in step.terms for part in key)
    return sizes and not bounds.at_most(_ONE, step)


def _in_range(bounds: Bounds, position: Expr, w: Sliding) -> Sliding | None:
    """The windows with the conditions that keep them on the axis; None where they may leave it.

    ``narrow`` refuses what runs over the end, and takes what begins before the axis from its end.
    """
    form = bounds.form(bare(position))
    assert form is not None
    low, high = form, bounds.size(w.extent) - _ONE - form
    given = conditions_of(position.condition) if isinstance(position, Guard) else ()
    gaps = [gap(bounds, c) for c in given]
    needed = []
    for certain, form in ((w.before, low), (w.after, high)):
        if form in gaps:
            needed.append(form)
        elif not bounds.at_most(certain, _ZERO) and (w.guarded or form is low):
            return None
    return replace(w, edges=(low, high), needed=tuple(needed))


def gap(bounds: Bounds, condition: Expr) -> Polynomial | None:
    """What is at least 0 just where the condition holds."""
    found = room(condition)
    return None if found is None else bounds.form(found)


def _follows(bounds: Bounds, extent: str, axis: str) -> int:
    """2 where a size is computed from that of the axis, 1 where it is the same one, else 0."""
    if extent == axis:
        return 1
    given = bounds.definition(extent)
    if given is None:
        return 0
    of_axis = {part for key in bounds.size(axis).terms for part in key if isinstance(part, Size)}
    parts = (part for key in given.terms for part in key)
    return 2 * any(inner in of_axis for part in parts for inner in walk(part))


def _room(bounds: Bounds, extent: str, step: Polynomial) -> Polynomial:
    """r where r // step + 1 is the size: as its definition has it, or without remainder."""
    size = bounds.size(extent)
    given = bounds.definition(extent)
    if step != _ONE and given is not None:
        quotients = [k for k in given.terms if any(isinstance(part, Call) for part in k)]
        for key in quotients[:1]:
            match key:
                case (Call("floordiv", (above, below)),) if len(quotients) == 1:
                    numerator = bounds.form(above)
                    rest = given - Polynomial({key: Fraction(1)})
                    if numerator is not None and bounds.form(below) == step:
                        return numerator + (rest - _ONE) * step
    return step * (size - _ONE)


# Reads


def read_strided(scope: Scope, value: Value, n: int, w: Window) -> Value | None:
    """value with axis n read at every so-many-th position from the first of a window on."""
    home, bounds, start = value.axes[n], scope.frame.bounds, w.start.number
    if home is None or home.group or w.step < 2 or start is None or start < 0:
        return None
    place = scope.frame.position(value.axes, n)
    step, length = Polynomial.of(w.step), bounds.size(home.extent)
    over = length - w.start - _ONE - _room(bounds, w.index.extent, step)
    exact = over == _ZERO or (
        step * (bounds.size(w.index.extent) - _ONE) == _room(bounds, w.index.extent, step)
        and bounds.at_most(_ZERO, over)
        and bounds.at_most(over + _ONE, step)
    )
    if not exact and not lies_inside(bounds, w, home.extent):
        return None
    behind = value.axes[n + 1 :]
    taken, whole = Literal(f"{int(start) or ''}::{w.step}"), Literal(":")
    items: tuple[Code, ...] = (*(whole,) * n, taken)
    if any(i is not None and i.group for i in value.axes[:n]):
        if any(i is not None and i.group for i in behind):
            return None
        items = (Literal("..."), taken, *(whole,) * len(behind))
    code: Code = Subscript(value.code, items)
    if not exact:
        code = Method(code, "narrow", (place, literal(0), Dim(w.index.extent)))
    return replace(value, code=code, axes=(*value.axes[:n], w.index, *behind))


def read_sliding(scope: Scope, value: Value, n: int, position: Expr) -> Value | None:
    """value with axis n read along windows: one axis that counts them, and their own as last."""
    home, bounds = value.axes[n], scope.frame.bounds
    if home is None or home.group:
        return None
    w = sliding(bounds, position, home.extent)
    if w is None or w.place in value.axes or w.within in value.axes:
        return None
    if w.guarded and any(i is not None and i.group for i in value.axes[n + 1 :]):
        return None
    place = scope.frame.position(value.axes, n)
    code = fitted(scope, value.code, [(place, w)], len(value.axes) - n)
    size = w.dilation * (bounds.size(w.within.extent) - _ONE) + _ONE
    code = Method(code, "unfold", (place, number_of(scope, size), number_of(scope, w.step)))
    if w.dilation != _ONE:
        code = Subscript(code, (Literal("..."), _every(scope, w.dilation)))
    axes = (*value.axes[:n], w.place, *value.axes[n + 1 :], w.within)
    for i in w.turned:
        code = Method(code, "flip", (scope.frame.position(axes, axes.index(i)),))
    return replace(value, code=code, axes=axes)


def _every(scope: Scope, step: Polynomial) -> Code:
    """Every so-many-th element, as an index."""
    if step.number is not None:
        return Literal(f"::{int(step.number)}")
    none = Literal("None")
    return Function("slice", (none, none, number_of(scope, step)))


def fitted(scope: Scope, code: Code, axes: Iterable[tuple[Code, Sliding]], behind: int) -> Code:
    """code with each of these axes as long as its windows reach.

    ``behind`` counts the axes from the first of these to the last of the code.
    """
    bounds, zero = scope.frame.bounds, literal(0)
    amounts: list[Code] = [zero, zero] * behind
    for m, (place, w) in enumerate(axes):
        if w.before == _ZERO == w.after:
            continue
        if w.guarded:
            at = 2 * (behind - m - 1)
            amounts[at : at + 2] = (number_of(scope, f) for f in (w.before, w.after))
        else:
            ends = (number_of(scope, f) for f in (-w.before, w.length(bounds)))
            code = Method(code, "narrow", (place, *ends))
    return pad(code, amounts)


def pad(code: Code, amounts: Sequence[Code]) -> Code:
    """code with zeros before and after its axes, the last axis first; less where negative."""
    zero, left = literal(0), list(amounts)
    while left and left[-1] is zero and left[-2] is zero:
        del left[-2:]
    return Function("torch.nn.functional.pad", (code, Tuple(tuple(left)))) if left else code

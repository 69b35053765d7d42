"""Calls of torch's convolutions: operands in torch's layout, and results out of it.

    data    (first, groups*shared, axes)      weight  (groups*second, shared, axes)

Axes with the same role are merged into one, and a role without indices is an axis of size 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.algebra.affine import Polynomial
from derive.algebra.expr import Expr, Index
from derive.calculus.lets import layout
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Indices, NeedsFlatGroups, Value, axis_size
from derive.lowering.ground.views import flattened, unflattened
from derive.lowering.ground.windows import ONE, ZERO, number_of, pad
from derive.lowering.patterns.unfold import Sliding, fit_windows
from derive.program.torch_ir import (
    Code,
    Dim,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Shape,
    Tuple,
    joined,
    literal,
)

_Part = tuple[Index, ...]


@dataclass(frozen=True)
class Operands:
    """Two factors of a convolution, and the roles of their indices.

    ``first`` and ``second`` are in one operand and the result, ``groups`` in both and the result,
    and ``shared`` in both and summed.
    """

    values: tuple[Value, Value]
    axes: tuple[_Part, _Part]
    """The axes along which the convolution runs."""
    first: _Part
    groups: _Part
    shared: _Part
    second: _Part

    @property
    def read(self) -> _Part:
        """The channels of the input data."""
        return (*self.groups, *self.shared)

    @property
    def is_of_one_channel(self) -> bool:
        """True if a batch of one channel gives one channel."""
        return bool(self.first) and not (self.groups or self.shared or self.second)

    @property
    def made(self) -> _Part:
        """The channels of the output data."""
        return (*self.groups, *self.second)


def conv_forward(scope: Scope, o: Operands, windows: Sequence[Sliding]) -> Value:
    """Sum over windows of the first operand, weighted by the second: torch's conv."""
    parts = _batched(o.first, o.read)
    x = _arranged(scope, o, 0, parts, windows)
    w = _arranged(scope, o, 1, (o.made, o.shared), windows)
    x, padding = _padded(scope, x, len(parts), windows)
    how = _keywords(scope, windows, padding, o.groups)
    if o.is_of_one_channel:
        code: Code = FunctionCall("rt.conv_single_channel", (x, w, *how))
    else:
        code = _convolution_call("functional.conv{}d", windows, (x, w), how)
    return _from_part_axes(code, (*parts[:-1], o.made), [s.place for s in windows], windows)


def weight_gradient(scope: Scope, o: Operands, windows: Sequence[Sliding]) -> Value:
    """Sum over window places of a product with the windows: the gradient of conv in its weight."""
    x = _arranged(scope, o, 0, (o.shared, (*o.groups, *o.first)), windows)
    y = _arranged(scope, o, 1, (o.shared, o.made), windows)
    x, padding = _padded(scope, x, 2, windows)
    parts, offsets = (o.made, o.first), [s.within for s in windows]
    how = _keywords(scope, windows, padding, o.groups)
    args = x, _part_shape(parts, offsets), y
    code = _convolution_call("grad.conv{}d_weight", windows, args, how)
    return _from_part_axes(code, parts, offsets, windows)


def input_gradient(scope: Scope, o: Operands, windows: Sequence[Sliding], axes: Indices) -> Value:
    """The first operand scattered over windows by the second: the gradient of conv in its input."""
    y = _arranged(scope, o, 0, (o.first, o.read), windows)
    w = _arranged(scope, o, 1, (o.read, o.second), windows)
    parts = (o.first, o.made)
    how = _keywords(scope, windows, [s.before for s in windows], o.groups)
    args = _part_shape(parts, axes), w, y
    if o.is_of_one_channel:
        code: Code = FunctionCall("rt.conv_single_channel_input", (*args, *how))
    else:
        code = _convolution_call("grad.conv{}d_input", windows, args, how)
    return _from_part_axes(code, parts, axes, windows)


def conv_transpose(scope: Scope, o: Operands, windows: Sequence[Sliding], axes: Indices) -> Value:
    """The first operand scattered over windows by the second, on axes of any size."""
    parts = _batched(o.first, o.read)
    y = _arranged(scope, o, 0, parts, windows)
    w = _arranged(scope, o, 1, (o.read, o.second), windows)
    bounds = scope.frame.bounds
    behind = [bounds.size(s.extent) + s.before - s.covered(bounds) for s in windows]
    padding: Sequence[Polynomial] = [ZERO] * len(windows)
    if all(a == -s.before and s.is_padded for s, a in zip(windows, behind, strict=True)):
        padding = [s.before for s in windows]
    how = _keywords(scope, windows, padding, o.groups)
    code = _convolution_call("functional.conv_transpose{}d", windows, (y, w), how)
    amounts: list[Code] = []
    for s, p, a in reversed(list(zip(windows, padding, behind, strict=True))):
        amounts += [number_of(scope, f) for f in (p - s.before, a + p)]
    return _from_part_axes(pad(code, amounts), (*parts[:-1], o.made), axes, windows)


def average(scope: Scope, body: Expr, axes: _Part, windows: Sequence[Sliding]) -> Value | None:
    """The mean over windows without gaps: torch's avg_pool."""
    found = _pooled_operand(scope, body, axes)
    if found is None:
        return None
    x, parts = found
    places = [(literal(len(parts) + n), s) for n, s in enumerate(windows)]
    x = fit_windows(scope, x, places, len(windows))
    sizes = [scope.frame.bounds.size(s.within.extent) for s in windows]
    amounts = [_amount_per_axis(scope, sizes)]
    if any(s.step != size for s, size in zip(windows, sizes, strict=True)):
        amounts.append(_amount_per_axis(scope, [s.step for s in windows]))
    code = _convolution_call("functional.avg_pool{}d", windows, (x, *amounts), ())
    return _from_part_axes(code, parts, [s.place for s in windows], ())


def pool_gradient(
    scope: Scope, body: Expr, axes: _Part, windows: Sequence[Sliding]
) -> Value | None:
    """Each window's value added at its positions: the gradient of torch's avg_pool."""
    found = _pooled_operand(scope, body, tuple(s.place for s in windows))
    if found is None:
        return None
    y, parts = found
    shape = _part_shape(parts, axes)
    one, zero = literal(1), literal(0)
    sizes = [number_of(scope, scope.frame.bounds.size(s.within.extent)) for s in windows]
    steps = [number_of(scope, s.step) for s in windows]
    if flat := len(windows) == 1:
        # torch has no avg_pool1d_backward.
        y = MethodCall(y, "unsqueeze", (literal(-2),))
        shape = Shape((*shape.axes[:-1], one, shape.axes[-1]))
        sizes, steps = [one, *sizes], [one, *steps]
    whole = MethodCall(MethodCall(scope.like, "new_zeros", (Shape(()),)), "expand", (shape,))
    amounts = [Tuple(tuple(a)) for a in (sizes, steps, [zero] * len(sizes))]
    how = (*amounts, Literal("False"), Literal("True"), one)
    code: Code = FunctionCall(f"torch.ops.aten.avg_pool{len(sizes)}d_backward", (y, whole, *how))
    if flat:
        code = MethodCall(code, "squeeze", (literal(-2),))
    return _from_part_axes(code, parts, axes, ())


# Operands


def operand_values(scope: Scope, bodies: Sequence[Expr]) -> tuple[Value, Value] | None:
    """Return the operands in code; None if neither is float, which convolutions need."""
    one, other = (scope.lower(body, layout(body)) for body in bodies)
    if any(i.group for v in (one, other) for i in v.indices):
        raise NeedsFlatGroups("a convolution over a group")
    if "float" not in (one.kind, other.kind):
        return None
    return scope.as_float(one), scope.as_float(other)


def _batched(first: _Part, channels: _Part) -> tuple[_Part, ...]:
    return (first, channels) if first else (channels,)


def _pooled_operand(scope: Scope, body: Expr, axes: _Part) -> tuple[Code, tuple[_Part, ...]] | None:
    """Return a tensor with the axes of (batch, channels), then these, and the former.

    A batch may be empty, channels may not. None if the tensor is none that torch pools.
    """
    value = scope.lower(body, layout(body))
    if value.kind != "float" or any(i.group for i in value.indices):
        return None
    around = tuple(i for i in value.indices if i not in axes)
    parts = (around, ()) if len(around) == 1 else _batched(around[:-1], around[-1:])
    return _with_part_axes(scope, value, parts, axes), parts


def _arranged(
    scope: Scope, o: Operands, n: int, parts: Sequence[_Part], windows: Sequence[Sliding]
) -> Code:
    """Return an operand with one axis for each part, then the axes of the convolution."""
    code = _with_part_axes(scope, o.values[n], parts, o.axes[n])
    return _flip_turned_axes(code, len(parts), o.axes[n], windows)


def _with_part_axes(scope: Scope, value: Value, parts: Sequence[_Part], axes: _Part) -> Code:
    """Return the value with one axis for each part, then these axes."""
    value = scope.frame.expand(value, [*(i for part in parts for i in part), *axes], scope.like)
    code = value.code
    for n, part in enumerate(parts):
        if part:
            code = flattened(code, n, n + len(part) - 1)
        else:
            code = MethodCall(code, "unsqueeze", (literal(n),))
    return code


def _from_part_axes(
    code: Code, parts: Sequence[_Part], axes: Indices, windows: Sequence[Sliding]
) -> Value:
    """Return the code as a value with an axis for each index."""
    code = _flip_turned_axes(code, len(parts), axes, windows)
    for n, part in reversed(list(enumerate(parts))):
        if not part:
            code = MethodCall(code, "squeeze", (literal(n),))
        elif len(part) > 1:
            code = unflattened(code, n, Tuple(tuple(Dim(i.extent) for i in part)))
    return Value(code, (*(i for part in parts for i in part), *axes))


def _flip_turned_axes(code: Code, start: int, axes: Indices, windows: Sequence[Sliding]) -> Code:
    """Return the code with those axes flipped that a window counts from their end.

    The first of ``axes`` is at position ``start``.
    """
    turned = {i for s in windows for i in s.turned}
    places = [literal(start + n) for n, i in enumerate(axes) if i in turned]
    if not places:
        return code
    return MethodCall(code, "flip", (places[0] if len(places) == 1 else Tuple(tuple(places)),))


def _padded(
    scope: Scope, code: Code, start: int, windows: Sequence[Sliding]
) -> tuple[Code, list[Polynomial]]:
    """Return the code, and the symmetric zero padding of its axes from start on, for torch.

    Asymmetric padding is applied to the code first.
    """
    if all(s.is_torch for s in windows):
        return code, [s.before for s in windows]
    places = [(literal(start + n), s) for n, s in enumerate(windows)]
    return fit_windows(scope, code, places, len(windows)), [ZERO] * len(windows)


# Calls


def _convolution_call(
    name: str, windows: Sequence[Sliding], args: Sequence[Code], how: Sequence[Code]
) -> Code:
    return FunctionCall(f"torch.nn.{name.format(len(windows))}", (*args, *how))


def _keywords(
    scope: Scope, windows: Sequence[Sliding], padding: Sequence[Polynomial], groups: _Part
) -> list[Code]:
    """Return the keywords that differ from torch's defaults."""
    made: list[Code] = []
    for name, amounts, default in (
        ("stride", [s.step for s in windows], ONE),
        ("padding", padding, ZERO),
        ("dilation", [s.dilation for s in windows], ONE),
    ):
        if any(a != default for a in amounts):
            made.append(Keyword(name, _amount_per_axis(scope, amounts)))
    if groups:
        made.append(Keyword("groups", _product_of_sizes(groups)))
    return made


def _amount_per_axis(scope: Scope, amounts: Sequence[Polynomial]) -> Code:
    """Return one number if it is the same along every axis, else a tuple."""
    codes = tuple(number_of(scope, a) for a in amounts)
    return codes[0] if len(set(codes)) == 1 else Tuple(codes)


def _part_shape(parts: Sequence[_Part], axes: Indices) -> Shape:
    """Return the shape of a tensor with one axis for each part, then these axes."""
    single = (axis_size(part[0]) if len(part) == 1 else _product_of_sizes(part) for part in parts)
    return Shape((*single, *(axis_size(i) for i in axes)))


def _product_of_sizes(part: _Part) -> Code:
    return joined("*", [Dim(i.extent) for i in part]) if part else literal(1)

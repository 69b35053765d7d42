"""Fused kernels of torch, of tensors in one layout."""

from __future__ import annotations

from collections.abc import Sequence

from derive.algebra.expr import Index
from derive.kernels.row import Kernel
from derive.kernels.table import KERNELS
from derive.lowering.ground.scope import Scope
from derive.lowering.ground.value import Value, broadcast
from derive.program.code import Code


def lower_kernel(scope: Scope, e: Kernel, order: Sequence[Index]) -> Value:
    """The call of the kernel's row; one that sums along an axis takes tensors of one shape."""
    row = KERNELS[e.name]
    numbers = {p.name for p in row.operation.parameters}
    args: dict[str, Value] = {}
    axes: tuple[Index | None, ...] = ()
    for name, a in zip(row.arguments, e.args, strict=True):
        value = scope.as_float(scope.lower(a, order))
        if name not in numbers:
            value = scope.frame.fit(scope.as_tensor(value), order)
            axes = broadcast(axes, value.axes)
        args[name] = value
    codes: dict[str, Code] = {}
    for name, value in args.items():
        if e.along and name not in numbers and value.axes != axes:
            value = scope.frame.expand(value, [i for i in order if i in axes], scope.like)
        codes[name] = value.code
    made = Value(row.code(codes), axes)
    places = {i.name: scope.frame.place(made, k) for i, k in zip(row.along, e.along, strict=True)}
    scope.note(e.name, row.states)
    return Value(row.code({**codes, **places}), axes)

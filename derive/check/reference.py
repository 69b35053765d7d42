"""Evaluate an operation in torch on the full grid of its indices, for autograd.

Each equation is evaluated from its definition (`derive.check.grid`), and later equations read its
tensor. So torch.autograd gives the gradient of every input and every equation. It shares no code
with the lowering. It is slow, since a contraction forms every product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from derive.algebra.expr import as_expr
from derive.check import oracle
from derive.check.grid import Grid, GridScope
from derive.check.lazy import Tensor, torch
from derive.notation.operation import Operation, depended_on


def values(
    op: Operation,
    tensors: Mapping[str, Tensor | None],
    parameters: Mapping[str, Any] | None = None,
    option: str | None = None,
) -> dict[str, Tensor]:
    """Return the tensor of every equation that the option needs, by name.

    Each has the layout of its left side. ``tensors`` maps input names to tensors; None or a missing
    entry is the default of an optional one. Float results have the dtype of the inputs. If an input
    requires a gradient, every float equation does, even if only ``detach`` connects them.

    >>> import derive, torch
    >>> op = derive.parse("op f(x[n]) -> y\\nz[n] = x[n]**2\\ny = sum[n](z[n])")
    >>> x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> made = values(op, {"x": x})
    >>> made["y"].item()
    14.0
    >>> torch.autograd.grad(made["y"], [made["z"], x])
    (tensor([1., 1., 1.]), tensor([2., 4., 6.]))
    """
    given = {name: t for name, t in tensors.items() if t is not None}
    smooth = _checked_floats(op, given)
    first = next(iter(given.values()), torch.empty(()))
    dtype = smooth[0].dtype if smooth else torch.get_default_dtype()
    parameters = dict(parameters or {})
    found = oracle.sizes(
        op, {name: np.broadcast_to(0, tuple(t.shape)) for name, t in given.items()}, parameters
    )
    known: dict[str, Tensor] = {}
    axes = {t.name: t.axes for t in op.inputs} | {e.name: e.axes for e in op.equations}
    numbers = oracle.numeric_values(op, parameters, found)
    grid = Grid(known, found, numbers, axes, dtype, first.device)
    for tensor in op.inputs:
        if tensor.name in given:
            known[tensor.name] = given[tensor.name]
        else:
            assert tensor.default is not None
            constant = grid.value(as_expr(tensor.default), GridScope((), {}))
            shape = oracle.shape_of(tensor.axes, found)
            known[tensor.name] = grid.cast(constant, tensor.kind).expand(shape)
    wanted = any(t.requires_grad for t in smooth) and torch.is_grad_enabled()
    made = {}
    for equation in depended_on(op, oracle.selected(op, parameters, option)):
        filled = grid.fill(equation.axes, equation.body, equation.kind)
        if wanted and equation.kind == "float" and not filled.requires_grad:
            filled.requires_grad_()
        made[equation.name] = known[equation.name] = filled
    return made


def _checked_floats(op: Operation, given: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the float inputs; raise TypeError on a wrong kind or on mixed dtypes."""
    smooth: dict[str, Tensor] = {}
    for tensor in op.inputs:
        t = given.get(tensor.name)
        if t is None:
            continue
        kind = "float" if t.is_floating_point() else str(t.dtype).removeprefix("torch.")
        if kind.startswith(("int", "uint")):
            kind = "int"
        if kind != tensor.kind:
            raise TypeError(
                f"{op.name}: {tensor.name} must be a tensor of {tensor.kind}, not {t.dtype}"
            )
        if kind == "float":
            smooth[tensor.name] = t
    if len({t.dtype for t in smooth.values()}) > 1:
        found = ", ".join(f"{name} {t.dtype}" for name, t in smooth.items())
        raise TypeError(f"{op.name}: all floating-point inputs must have one dtype, not {found}")
    return list(smooth.values())

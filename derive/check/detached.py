"""Check operations with ``detach`` against autograd, since finite differences ignore detach.

The reference evaluates the equations in torch, and detaches where they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from derive.algebra.expr import Call, walk
from derive.check.invoke import Function, array, called, differs, plain, tensors_of
from derive.check.samples import Sample
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


def detaches(op: Operation) -> bool:
    """True if an equation contains detach."""
    every = (part for e in op.equations for part in walk(e.body))
    return any(isinstance(e, Call) and e.function == "detach" for e in every)


def unlike_reference(op: Operation, function: Function, made: Sample) -> str:
    """Describe where first or second derivatives differ from the reference's; '' if nowhere."""

    def generated(*given: Tensor | None) -> list[Tensor]:
        return called(function, made, given)

    def plainly(*given: Tensor | None) -> list[Tensor]:
        return called(plain(op, made), made, given)

    pairs = zip(_to_second_order(generated, made), _to_second_order(plainly, made), strict=True)
    found = (differs(f"derivative {n}", a, b, 1e-6, 1e-8) for n, (a, b) in enumerate(pairs))
    return "; ".join(filter(None, found))


def _to_second_order(function: Function, made: Sample) -> list[Any]:
    """Return the gradients, and gradients of a combination of them in inputs and cotangents."""
    import torch

    tensors = tensors_of(made)
    inputs = [t for t in tensors.values() if t is not None and t.requires_grad]
    outputs = [o for o in function(*tensors.values()) if o.requires_grad]
    if not outputs or not inputs:
        return []
    weights = [torch.full_like(o, 0.5 + n, requires_grad=True) for n, o in enumerate(outputs)]
    first = torch.autograd.grad(outputs, inputs, weights, create_graph=True, materialize_grads=True)
    total = sum((g * torch.linspace(0.3, 1.3, g.numel()).reshape(g.shape)).sum() for g in first)
    second: Sequence[Tensor] = ()
    if isinstance(total, torch.Tensor) and total.requires_grad:
        second = torch.autograd.grad(total, [*inputs, *weights], materialize_grads=True)
    return [array(g) for g in (*first, *second)]

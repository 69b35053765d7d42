"""Check torch.func.vmap over calls, cotangents and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from derive.check.invoke import Function, array, differentiable, unlike
from derive.check.samples import Sample
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


def batched(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that vmap over cotangents, and over inputs of the gradient, equals a loop."""
    import torch

    call, inputs = differentiable(function, made)
    inputs = tuple(t.detach() for t in inputs)
    outputs, pullback = torch.func.vjp(call, *inputs)[:2]
    scales = torch.tensor([1.0, -0.5], dtype=torch.float64)
    many = tuple(torch.stack([torch.ones_like(o) * s for s in scales]) for o in outputs)
    batched = torch.func.vmap(pullback)(many)
    looped = [pullback(tuple(m[n] for m in many)) for n in range(len(scales))]
    found = _batch_differences(batched, looped, slack)

    def total(*given: Tensor) -> Tensor:
        return torch.stack([o.sum() for o in call(*given)]).sum()

    gradient = torch.func.grad(total, tuple(range(len(inputs))))
    shifted = tuple(torch.stack((t, t * 0.99)) for t in inputs)
    batched = torch.func.vmap(gradient)(*shifted)
    looped = [gradient(*(t[n] for t in shifted)) for n in range(2)]
    return "; ".join([*found, *_batch_differences(batched, looped, slack)])


def _batch_differences(
    batched: Sequence[Tensor], looped: Sequence[Sequence[Tensor]], slack: float
) -> list[str]:
    """List the differences between a batch and its elements computed one by one."""
    found = [
        unlike(f"gradient {k}, batched", array(b[n]), array(one[k]), slack)
        for n, one in enumerate(looped)
        for k, b in enumerate(batched)
    ]
    return [text for text in found if text]

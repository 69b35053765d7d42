"""What a function is read as, beside the function: values, dtypes and gradients in float64."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

import derive


def r(*shape: int) -> torch.Tensor:
    """Random numbers of a shape: the same ones for each."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def assert_read(
    function: Callable[..., Any], examples: Sequence[Any], others: Sequence[Any] = ()
) -> derive.Operation:
    """``function`` is read of the examples, and holds at ``others``, or there too.

    A shape stands for a tensor of random numbers.
    """
    torch.manual_seed(0)
    op = derive.read_torch(function, *map(_tensor, examples))
    read = derive.load(op)
    given = [_tensor(x) for x in others or examples]
    given = [t.double().requires_grad_() if t.is_floating_point() else t for t in given]
    leaves = [t for t in given if t.requires_grad]
    ours, theirs = (_all(f(*given)) for f in (read, function))
    torch.testing.assert_close(ours, theirs)
    pulled = [torch.randn_like(y) if y.requires_grad else None for y in theirs]
    torch.testing.assert_close(*(_gradients(ys, leaves, pulled) for ys in (ours, theirs)))
    return op


def _tensor(x: Any) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.randn(x)


def _all(made: Any) -> list[torch.Tensor]:
    return list(made) if isinstance(made, tuple) else [made]


def _gradients(
    outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], pulled: Sequence[Any]
) -> Sequence[torch.Tensor]:
    # What depends on no input has no graph in derived code.
    pairs = [
        (y, g) for y, g in zip(outputs, pulled, strict=True) if y.requires_grad and g is not None
    ]
    if not pairs:
        return [torch.zeros_like(t) for t in leaves]
    ys, gs = zip(*pairs, strict=True)
    return torch.autograd.grad(ys, leaves, gs, materialize_grads=True)

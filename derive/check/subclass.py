"""The code that writes nothing in place, against the code that does."""

from __future__ import annotations

from derive.check.calling import Function, array, called, tensors_of, unlike
from derive.check.samples import Sample
from derive.notation.operation import Operation


def subclass(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Values of a subclass of tensors are the same."""
    import torch

    class Other(torch.Tensor):
        """For which generated code writes nothing in place."""

    tensors = tensors_of(made)
    others = [t if t is None else t.as_subclass(Other) for t in tensors.values()]
    ours = called(function, made, others)
    plain = called(function, made, list(tensors.values()))
    found = [
        unlike(name, array(got), array(want), slack)
        for name, got, want in zip(made.outputs, ours, plain, strict=True)
    ]
    return "; ".join(filter(None, found))

"""Check calls under a default device other than the inputs' device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from derive.check.invoke import (
    Function,
    array,
    called,
    cotangents_of,
    pulled_through,
    tensors_of,
    unlike,
)
from derive.check.samples import Sample
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


def default_device(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that the default device changes neither values nor devices of results."""
    import torch

    usual = _results_under_device(function, made, nullcontext())
    there = _results_under_device(function, made, torch.device("meta"))
    moved = [name for name, t in there.items() if t.device != usual[name].device]
    if moved:
        return f"on the default device, not on that of the inputs: {', '.join(moved)}"
    found = (unlike(n, array(there[n]), array(usual[n]), slack) for n in usual)
    return "; ".join(filter(None, found))


def _results_under_device(
    function: Function, made: Sample, device: AbstractContextManager[Any]
) -> dict[str, Tensor]:
    tensors, cotangents = tensors_of(made), cotangents_of(made)
    with device:
        outputs = called(function, made, list(tensors.values()))
        grads = pulled_through(outputs, made, tensors, cotangents)
    named = {f"grad_{name}": g for name, g in grads.items()}
    return {**dict(zip(made.outputs, outputs, strict=True)), **named}

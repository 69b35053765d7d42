"""Check in-place writes by the code and by its callers, and the memory that is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.check.check import NotApplicable
from derive.check.invoke import (
    Function,
    array,
    called,
    cotangents_of,
    differentiable,
    inputs_of,
    plain,
    tensors_of,
    unlike,
)
from derive.check.samples import Sample
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


def unchanged(op: Operation, function: Function, made: Sample) -> str:
    """Check that neither inputs nor cotangents are written to."""
    import torch

    tensors = tensors_of(made)
    outputs = [o for o in called(function, made, list(tensors.values())) if o.requires_grad]
    inputs = [t for t in tensors.values() if t is not None and t.requires_grad]
    cotangents = [torch.full_like(o, 0.5) for o in outputs]
    if outputs:
        torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
    changed = [name for name, t in tensors.items() if t is not None and t._version]
    changed += ["a cotangent" for c in cotangents if c._version or bool((c != 0.5).any())]
    return f"written to: {', '.join(changed)}" if changed else ""


def in_place(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that after an in-place change of an output the gradient follows, or autograd raises."""
    import torch

    differentiable(function, made)
    given = cotangents_of(made)
    found = []
    for n, output in enumerate(made.outputs):
        grads = []
        for factor in (1, 2):
            tensors = tensors_of(made)
            leaves = [t for t in tensors.values() if t is not None and t.requires_grad]
            copies = [t.clone() if t is not None else t for t in tensors.values()]
            y = called(function, made, copies)[n]
            if not y.requires_grad:
                break
            try:
                z = y.mul_(2) if factor == 2 else y
                c = torch.from_numpy(given[output]).to(y.dtype) / factor
                grads.append(torch.autograd.grad([z], leaves, [c], materialize_grads=True))
            except RuntimeError as error:
                if "single memory location" in str(error):
                    raise NotApplicable("elements of the output share memory, as torch's") from None
                if "modified by an inplace operation" not in str(error):
                    raise
        if len(grads) == 2:
            for name, want, got in zip(inputs_of(tensors), *grads, strict=True):
                found.append(unlike(f"grad_{name}", array(got), array(want), slack))
    return "; ".join(filter(None, found))


def subclass(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that a subclass of Tensor gives the same values."""
    import torch

    class Other(torch.Tensor):
        """A Tensor subclass, for which generated code does not write in place."""

    tensors = tensors_of(made)
    others = [t if t is None else t.as_subclass(Other) for t in tensors.values()]
    ours = called(function, made, others)
    plain = called(function, made, list(tensors.values()))
    found = [
        unlike(name, array(got), array(want), slack)
        for name, got, want in zip(made.outputs, ours, plain, strict=True)
    ]
    return "; ".join(filter(None, found))


def saved(op: Operation, function: Function, made: Sample) -> str:
    """Check that backward saves no more bytes than the inputs and outputs, or than autograd.

    Tensors that share storage are counted once; omitted inputs are not counted.
    """
    differentiable(function, made)
    kept, there = _saved_tensors(function, made)
    bytes_kept, allowed = _bytes(kept), _bytes(there)
    if bytes_kept <= allowed or bytes_kept <= _bytes(_saved_tensors(plain(op, made), made)[0]):
        return ""
    own = {t.untyped_storage().data_ptr() for t in there}
    shapes = [tuple(t.shape) for t in kept if t.untyped_storage().data_ptr() not in own]
    more = ", ".join(map(str, shapes))
    return (
        f"{bytes_kept} bytes are kept, more than the {allowed} of inputs and outputs: also {more}"
    )


def _saved_tensors(function: Function, made: Sample) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors saved for backward, and the inputs and outputs."""
    from torch.autograd.graph import saved_tensors_hooks

    kept: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        kept.append(t.detach())
        return t

    tensors = tensors_of(made)
    with saved_tensors_hooks(pack, lambda t: t):
        outputs = called(function, made, list(tensors.values()))
    return kept, [t for t in (*tensors.values(), *outputs) if t is not None]


def _bytes(tensors: list[Tensor]) -> int:
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    return sum(s.nbytes() for s in storages.values())

"""Check distributed tensors, replicated on a mesh of this one process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from derive.check.check import NotApplicable
from derive.check.invoke import (
    Function,
    array,
    called,
    cotangents_of,
    inputs_of,
    pulled_back,
    tensors_of,
    unlike,
)
from derive.check.samples import Sample
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


def replicated(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that replicated DTensors give the same values and gradients."""
    import torch
    from torch.distributed.tensor import Replicate, distribute_tensor

    want_values = called(function, made, list(tensors_of(made).values()))
    want = pulled_back(function, made, tensors_of(made))
    with _mesh() as mesh:

        def spread(t: Tensor | None) -> Any:
            if t is None:
                return None
            whole = distribute_tensor(t.detach(), mesh, [Replicate()])
            return whole.requires_grad_() if t.requires_grad else whole

        tensors = {name: spread(t) for name, t in tensors_of(made).items()}
        try:
            outputs = called(function, made, list(tensors.values()))
            given = cotangents_of(made)
            pairs = [
                (o, spread(torch.from_numpy(given[name]).to(o.dtype)))
                for name, o in zip(made.outputs, outputs, strict=True)
                if o.requires_grad
            ]
            inputs = [t for t in tensors.values() if t is not None and t.requires_grad]
            grads: tuple[Any, ...] = ()
            if pairs and inputs:
                grads = torch.autograd.grad(
                    [o for o, _ in pairs], inputs, [c for _, c in pairs], materialize_grads=True
                )
        except NotImplementedError as error:
            if "sharding strategy" in str(error):
                what = str(error).splitlines()[0]
                raise NotApplicable(f"torch has no rule: {what}") from None
            raise
        found = [
            unlike(name, array(_full_tensor(o)), array(w), slack)
            for name, o, w in zip(made.outputs, outputs, want_values, strict=True)
        ]
        names = inputs_of(tensors) if grads else []
        for name, g in zip(names, grads, strict=True):
            found.append(unlike(f"grad_{name}", array(_full_tensor(g)), array(want[name]), slack))
    return "; ".join(filter(None, found))


def _full_tensor(t: Any) -> Tensor:
    whole: Tensor = t.full_tensor() if hasattr(t, "full_tensor") else t
    return whole


@contextmanager
def _mesh() -> Iterator[Any]:
    """Yield a mesh of this process alone; NotApplicable if a process group exists already."""
    from torch import distributed

    if not distributed.is_available():
        raise NotApplicable("this torch is built without torch.distributed")
    if distributed.is_initialized():
        raise NotApplicable("torch.distributed is in use in this process")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = vars(distributed)["HashStore"]()
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            yield distributed.device_mesh.init_device_mesh("cpu", (1,))
        finally:
            distributed.destroy_process_group()

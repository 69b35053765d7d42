"""Check code under torch's tracers: compile, make_fx and meta tensors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from derive.check.check import NotApplicable
from derive.check.invoke import (
    Function,
    array,
    called,
    cotangents_of,
    detached,
    differentiable,
    inputs_of,
    pulled_through,
    tensors_of,
    unlike,
    weights_of,
)
from derive.check.samples import Sample
from derive.check.strides import alike
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


def compiled(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check torch.compile(fullgraph=True), also with one tensor passed as two inputs."""
    import torch

    with importable(function), _ignore_warnings():
        torch._dynamo.reset()
        fast = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=False)
        found = _compiled_differences(function, fast, made, None, slack)
        try:
            one, other, square = next(alike(op, made))
        except NotApplicable:
            return "; ".join(found)
        found += _compiled_differences(function, fast, square, (one, other), slack)
        torch._dynamo.reset()
    return "; ".join(found)


def _compiled_differences(
    function: Function, fast: Function, made: Sample, same: tuple[str, str] | None, slack: float
) -> list[str]:
    """List the differences in values and gradients of the compiled function."""
    results = []
    for each in (function, fast):
        tensors = tensors_of(made)
        if same is not None:
            tensors[same[1]] = tensors[same[0]]
        outputs = called(each, made, list(tensors.values()))
        values = dict(zip(made.outputs, map(array, outputs), strict=True))
        grads = pulled_through(outputs, made, tensors, cotangents_of(made))
        results.append(values | {f"grad_{name}": array(g) for name, g in grads.items()})
    want, got = results
    found = [unlike(name, got[name], v, slack) for name, v in want.items()]
    return [text for text in found if text]


@contextmanager
def importable(function: Function) -> Iterator[None]:
    """Make the function's module importable by name, as torch's tracers need it."""
    name = function.__module__
    before = sys.modules.get(name)
    module = ModuleType(name)
    vars(module).update(getattr(function, "__globals__", {}))
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before


@contextmanager
def _ignore_warnings() -> Iterator[None]:
    """Suppress torch's warnings while it traces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def traced(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that a make_fx graph of forward and backward is right for other values too."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    call, inputs = differentiable(function, made)
    weights = tuple(weights_of(made))

    def both(*given: Tensor) -> tuple[Tensor, ...]:
        outputs, pullback = torch.func.vjp(call, *given)[:2]
        return (*outputs, *pullback(weights))

    with _ignore_warnings():
        graph = make_fx(both)(*(t.detach() for t in inputs))
    moved = [t.detach() * 0.99 for t in inputs]
    found = [
        unlike(f"result {n}", array(got), array(want), slack)
        for n, (got, want) in enumerate(zip(graph(*moved), both(*moved), strict=True))
    ]
    return "; ".join(filter(None, found))


def without_data(op: Operation, function: Function, made: Sample) -> str:
    """Check the shapes and dtypes of outputs and gradients on meta tensors."""
    import torch

    real = called(function, made, list(detached(made).values()))
    tensors = {
        name: None if t is None else t.detach().to("meta").requires_grad_(t.requires_grad)
        for name, t in tensors_of(made).items()
    }
    outputs = called(function, made, list(tensors.values()))
    pairs = zip(made.outputs, outputs, real, strict=True)
    found = [
        f"{name} is {tuple(o.shape)} of {o.dtype} on {o.device}"
        for name, o, r in pairs
        if o.shape != r.shape or o.dtype != r.dtype or o.device.type != "meta"
    ]
    inputs = [t for t in tensors.values() if t is not None and t.requires_grad]
    smooth = [o for o in outputs if o.requires_grad]
    if smooth and inputs:
        cotangents = [torch.empty_like(o) for o in smooth]
        grads = torch.autograd.grad(smooth, inputs, cotangents, materialize_grads=True)
        for name, g, t in zip(inputs_of(tensors), grads, inputs, strict=True):
            if g.shape != t.shape or g.dtype != t.dtype:
                found.append(f"grad_{name} is {tuple(g.shape)} of {g.dtype}")
    return "; ".join(found)


def nearby(made: Sample) -> list[Tensor | None]:
    """Return the inputs, float ones scaled by 0.99."""
    import torch

    return [
        None if v is None else torch.from_numpy(np.asarray(v * 0.99 if v.dtype == float else v))
        for v in made.tensors.values()
    ]

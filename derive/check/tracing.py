"""Check code under torch's tracers: compile, make_fx and meta tensors."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from warnings import catch_warnings

import numpy as np

from derive.check.call_checks import alike
from derive.check.invoke import (
    Function,
    NotApplicable,
    called,
    cotangents_of,
    detached,
    differentiable,
    gradients,
    inputs_of,
    leaves_of,
    results,
    tensors_of,
    unlike_each,
    weights_of,
    with_floats,
)
from derive.check.lazy import Tensor, torch
from derive.check.samples import Sample
from derive.notation.operation import Operation


def compiled(
    op: Operation, function: Function, made: Sample, slack: float = 0.0, repeated: bool = True
) -> str:
    """Check that torch.compile(fullgraph=True) with AOT autograd gives the same values.

    If ``repeated``, also for one tensor as two inputs.
    """
    with importable(function), catch_warnings(action="ignore"):
        torch._dynamo.reset()
        fast = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=False)
        found = _compiled_differences(function, fast, made, None, slack)
        with suppress(NotApplicable):
            if repeated:
                one, other, square = next(alike(op, made))
                found += _compiled_differences(function, fast, square, (one, other), slack)
                torch._dynamo.reset()
    return "; ".join(found)


def _compiled_differences(
    function: Function, fast: Function, made: Sample, same: tuple[str, str] | None, slack: float
) -> list[str]:
    """List the differences in values and gradients of the compiled function."""
    found = []
    for each in (function, fast):
        tensors = tensors_of(made)
        if same is not None:
            tensors[same[1]] = tensors[same[0]]
        found.append(results(each, made, tensors))
    want, got = found
    return unlike_each(want, got.values(), want.values(), slack)


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


def traced(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that graphs of make_fx, with the backward, are right for other values."""
    from torch.fx.experimental.proxy_tensor import make_fx

    call, inputs = differentiable(function, made)
    weights = tuple(weights_of(made))

    def both(*given: Tensor) -> tuple[Tensor, ...]:
        outputs, pullback = torch.func.vjp(call, *given)[:2]
        return (*outputs, *pullback(weights))

    with catch_warnings(action="ignore"):
        graph = make_fx(both)(*(t.detach() for t in inputs))
    moved = [t.detach() * 0.99 for t in inputs]
    want = both(*moved)
    names = (f"result {n}" for n in range(len(want)))
    return "; ".join(unlike_each(names, graph(*moved), want, slack))


def without_data(op: Operation, function: Function, made: Sample) -> str:
    """Check that shapes and dtypes are right on meta tensors."""
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
    inputs = leaves_of(tensors)
    grads = gradients([(o, torch.empty_like(o)) for o in outputs if o.requires_grad], inputs)
    for name, g, t in zip(inputs_of(tensors), grads, inputs, strict=True):
        if g.shape != t.shape or g.dtype != t.dtype:
            found.append(f"grad_{name} is {tuple(g.shape)} of {g.dtype}")
    return "; ".join(found)


# ---------------------------------------------------------------------------------------- exporting
# Check torch.export, and ONNX if it is installed.

ONNX = ("onnx", "onnxscript", "onnxruntime")


def exported(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that the program of torch.export gives the same values.

    For other inputs too.
    """
    given = _sample_tensors(with_floats(made, lambda v: v * 0.99))
    with importable(function), catch_warnings(action="ignore"):
        program = torch.export.export(_module(function, made), tuple(_sample_tensors(made)))
        got = program.module()(*given)
    return "; ".join(unlike_each(made.outputs, got, called(function, made, given), slack))


def in_onnx(op: Operation, function: Function, made: Sample) -> str:
    """Check that the ONNX program gives the same values in float32, in onnxruntime."""
    if lacking := [name for name in ONNX if find_spec(name) is None]:
        raise NotApplicable(f"not installed: {', '.join(lacking)}")
    given = _sample_tensors(with_floats(made, np.float32))
    with importable(function), _without_exporter_output():
        try:
            program = torch.onnx.export(_module(function, made), tuple(given), dynamo=True)
        except torch.onnx.OnnxExporterError as error:
            raise NotApplicable(f"torch exports it to no ONNX: {_cause(error)}") from None
        assert program is not None
        want = called(function, made, given)
        near = partial(unlike_each, made.outputs, want=want, tolerances=(1e-4, 1e-4))
        found = near(program(*given))
        if found:
            program.initialize_inference_session(_unoptimized_session)
            if not near(program(*given)):
                found.append("it is right without onnxruntime's rewriting of graphs")
    return "; ".join(found)


def _unoptimized_session(model: Any) -> Any:
    """Return an onnxruntime session without graph optimization."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@contextmanager
def _without_exporter_output() -> Iterator[None]:
    """Suppress all output of torch's exporter: logs, warnings, stdout, stderr."""
    before, quiet = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with catch_warnings(action="ignore"), redirect_stdout(quiet), redirect_stderr(quiet):
            yield
    finally:
        logging.disable(before)


def _cause(error: BaseException) -> str:
    """Return the root cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def _sample_tensors(made: Sample) -> list[Tensor | None]:
    return [None if v is None else torch.from_numpy(v) for v in made.tensors.values()]


def _module(function: Function, made: Sample) -> Any:
    """Return a module that calls the function with the sample's parameters."""

    class Call(torch.nn.Module):
        def forward(self, *tensors: Tensor | None) -> tuple[Tensor, ...]:
            return tuple(called(function, made, tensors))

    return Call()


# -------------------------------------------------------------------------------------- distributed
# Check distributed tensors, replicated on a mesh of this one process.


def replicated(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that replicated DTensors give the same values."""
    from torch.distributed.tensor import Replicate, distribute_tensor

    want = results(function, made, tensors_of(made))
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
            grads = gradients(pairs, leaves_of(tensors))
        except NotImplementedError as error:
            if "sharding strategy" in str(error):
                what = str(error).splitlines()[0]
                raise NotApplicable(f"torch has no rule: {what}") from None
            raise
        every = (*outputs, *grads)
        got = (t.full_tensor() if hasattr(t, "full_tensor") else t for t in every)
        found = unlike_each(want, got, want.values(), slack)
    return "; ".join(found)


@contextmanager
def _mesh() -> Iterator[Any]:
    """Yield a mesh of this process alone; NotApplicable if a process group exists already."""
    from torch import distributed

    if not distributed.is_available():
        raise NotApplicable("this torch is built without torch.distributed")
    if distributed.is_initialized():
        raise NotApplicable("torch.distributed is in use in this process")
    with catch_warnings(action="ignore"):
        store = vars(distributed)["HashStore"]()
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            yield distributed.device_mesh.init_device_mesh("cpu", (1,))
        finally:
            distributed.destroy_process_group()

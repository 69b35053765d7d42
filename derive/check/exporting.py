"""Check torch.export, and ONNX if it is installed."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from derive.check.check import NotApplicable
from derive.check.invoke import Function, array, called, differs
from derive.check.samples import Sample
from derive.check.tracing import importable, nearby
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor

ONNX = ("onnx", "onnxscript", "onnxruntime")


def exported(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that the exported program gives the same values, for other inputs too."""
    import torch

    given = nearby(made)
    with importable(function), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(_module(function, made), tuple(_sample_tensors(made)))
        got = program.module()(*given)
    return _output_differences(got, called(function, made, given), made, 1e-10, 1e-12 + slack)


def in_onnx(op: Operation, function: Function, made: Sample) -> str:
    """Check that onnxruntime gives the same values in float32."""
    import torch

    if lacking := [name for name in ONNX if find_spec(name) is None]:
        raise NotApplicable(f"not installed: {', '.join(lacking)}")
    given = [
        t.float() if t is not None and t.is_floating_point() else t for t in _sample_tensors(made)
    ]
    with importable(function), _without_exporter_output():
        try:
            program = torch.onnx.export(_module(function, made), tuple(given), dynamo=True)
        except torch.onnx.OnnxExporterError as error:
            raise NotApplicable(f"torch exports it to no ONNX: {_cause(error)}") from None
        assert program is not None
        want = called(function, made, given)
        found = _output_differences(program(*given), want, made, 1e-4, 1e-4)
        if found:
            program.initialize_inference_session(_unoptimized_session)
            if not _output_differences(program(*given), want, made, 1e-4, 1e-4):
                found += "; it is right without onnxruntime's rewriting of graphs"
    return found


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
        with warnings.catch_warnings(), redirect_stdout(quiet), redirect_stderr(quiet):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _cause(error: BaseException) -> str:
    """Return the root cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def _sample_tensors(made: Sample) -> list[Tensor | None]:
    import torch

    return [None if v is None else torch.from_numpy(v) for v in made.tensors.values()]


def _module(function: Function, made: Sample) -> Any:
    """Return a module that calls the function with the sample's parameters."""
    import torch

    class Call(torch.nn.Module):
        def forward(self, *tensors: Tensor | None) -> tuple[Tensor, ...]:
            return tuple(called(function, made, tensors))

    return Call()


def _output_differences(
    got: Any, want: list[Tensor], made: Sample, rtol: float, atol: float
) -> str:
    found = [
        differs(name, array(ours), array(theirs), rtol, atol)
        for name, ours, theirs in zip(made.outputs, got, want, strict=True)
    ]
    return "; ".join(filter(None, found))

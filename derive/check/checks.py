"""The table of checks: a name, a statement about code that passes, and the function."""

from __future__ import annotations

from functools import partial

from derive.check.batching import batched
from derive.check.check import Column
from derive.check.default_device import default_device
from derive.check.derivatives import forward, gradcheck, gradgradcheck, gradient, reference, value
from derive.check.distributed import replicated
from derive.check.exporting import exported, in_onnx
from derive.check.grad_masks import missing, subsets
from derive.check.in_place import in_place, saved, subclass, unchanged
from derive.check.low_precision import autocast, low, mixed, runs_low
from derive.check.rounding import float32, lost_digits
from derive.check.strides import strides, twice
from derive.check.tracing import compiled, traced, without_data

_off = partial(lost_digits, offset=100.0)
_saturated = partial(lost_digits, scale=20.0)

VALUES = (
    Column("value", "outputs equal the equations, evaluated by loops", value, order=0),
    Column("gradient", "gradients equal finite differences of the equations", gradient, order=1),
)
"""Run before a module is written, on every case."""

GRADIENTS = (
    *VALUES,
    Column(
        "reference",
        "derivatives equal autograd of the equations, where they have detach",
        reference,
        order=2,
    ),
    Column(
        "gradcheck",
        "Jacobians of both modes equal finite differences of the code",
        gradcheck,
        order=1,
    ),
    Column(
        "gradgradcheck",
        "Jacobians of the backward equal its finite differences",
        gradgradcheck,
        order=2,
    ),
    Column(
        "subclass",
        "in-place code equals the code without, as run by a tensor subclass",
        subclass,
        rounds=True,
    ),
)
"""Run before a module is written, on the typical case."""

QUICK = (
    *GRADIENTS,
    Column("forward", "forward mode equals reverse mode, for both orders", forward, rounds=True),
    Column(
        "vmap", "torch.func.vmap over gradients and cotangents equals a loop", batched, rounds=True
    ),
    Column(
        "strides", "results do not depend on strides and offsets of views", strides, rounds=True
    ),
    Column(
        "subsets", "gradients do not depend on which of them are requested", subsets, rounds=True
    ),
    Column(
        "missing",
        "gradients of the outputs add up, each with other cotangents missing",
        missing,
        rounds=True,
    ),
    Column("twice", "one tensor may be passed as two inputs", twice, rounds=True, typical=True),
    Column(
        "device",
        "results do not depend on the default device",
        default_device,
        rounds=True,
        typical=True,
    ),
    Column("unchanged", "inputs and cotangents are not modified", unchanged),
    Column(
        "in-place",
        "outputs may be modified in place, or autograd raises its error",
        in_place,
        rounds=True,
        typical=True,
    ),
    Column("saved", "the backward keeps no more bytes than inputs and outputs have", saved),
    Column("float32", "float32 results differ from float64 by rounding only", float32),
    Column("float32-offset", "the same with inputs far from 0", _off),
    Column("float32-saturated", "the same with large inputs", _saturated),
)
"""Run by ``derive verify``."""

ALL = (
    *QUICK,
    Column(
        "bfloat16",
        "bfloat16 results are close to float64",
        partial(low, dtype="bfloat16"),
        typical=True,
    ),
    Column(
        "float16",
        "float16 results are close to float64",
        partial(low, dtype="float16"),
        typical=True,
    ),
    Column("mixed", "inputs of float32 and bfloat16 promote as in torch", mixed, typical=True),
    Column(
        "autocast",
        "the same under autocast to bfloat16, with and without the backward in it",
        autocast,
        typical=True,
    ),
    Column("meta", "shapes and dtypes are right on meta tensors", without_data, typical=True),
    Column(
        "make_fx",
        "graphs of make_fx, with the backward, are right for other values",
        traced,
        rounds=True,
        typical=True,
    ),
    Column(
        "compile",
        "torch.compile(fullgraph=True) with AOT autograd gives the same values",
        compiled,
        rounds=True,
        typical=True,
    ),
    Column(
        "export",
        "the program of torch.export gives the same values",
        exported,
        rounds=True,
        typical=True,
    ),
    Column(
        "onnx",
        "the ONNX program gives the same values in float32, in onnxruntime",
        in_onnx,
        typical=True,
    ),
    Column(
        "dtensor", "replicated DTensors give the same values", replicated, rounds=True, typical=True
    ),
)
"""Run by ``derive verify --all``."""

_OF_ANY_MODULE = ("vmap", "strides", "subsets", "missing", "unchanged", "meta", "compile", "export")
"""The checks of any module, beside those of its values and gradients."""

PLAIN_GRADIENTS = (
    *VALUES,
    *(c for c in GRADIENTS if c.name == "reference"),
    Column(
        "gradcheck",
        "Jacobians of reverse mode equal finite differences of the code",
        partial(gradcheck, forward=False),
        order=1,
    ),
    *(c for c in GRADIENTS if c.name == "gradgradcheck"),
)
"""The same as `GRADIENTS`, for a plain module."""

PLAIN = (
    *PLAIN_GRADIENTS,
    *(c for c in ALL if c.name in _OF_ANY_MODULE),
    *(
        Column(
            dtype,
            f"{dtype} runs, and gives {dtype}",
            partial(runs_low, dtype=dtype),
            typical=True,
        )
        for dtype in ("bfloat16", "float16")
    ),
)
"""What holds of a plain module."""

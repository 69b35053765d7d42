"""The table of checks: a name, what it states of code that passes, and the function that asks."""

from __future__ import annotations

from functools import partial

from derive.check.batching import batched
from derive.check.column import Column
from derive.check.derivatives import forward, gradcheck, gradgradcheck, gradient, reference, value
from derive.check.distributed import replicated
from derive.check.exporting import exported, in_onnx
from derive.check.half import autocast, low, mixed
from derive.check.in_place import in_place, saved, subclass, unchanged
from derive.check.rounding import float32, lost_digits
from derive.check.strides import strides, twice
from derive.check.tracing import compiled, traced, without_data
from derive.check.wanted import missing, subsets

_off = partial(lost_digits, offset=100.0)
_saturated = partial(lost_digits, scale=20.0)

VALUES = (
    Column("value", "outputs are those of the equations, by loops", value, order=0),
    Column("gradient", "gradients are the differences of the equations", gradient, order=1),
)
"""Asked before a module is written, of every case."""

GRADIENTS = (
    *VALUES,
    Column(
        "reference",
        "with detach, derivatives are those of autograd of the equations",
        reference,
        order=2,
    ),
    Column("gradcheck", "Jacobians of both modes are the code's differences", gradcheck, order=1),
    Column(
        "gradgradcheck", "Jacobians of the backward are its differences", gradgradcheck, order=2
    ),
    Column(
        "subclass",
        "what is written in place is what is not, as of a subclass",
        subclass,
        rounds=True,
    ),
)
"""Asked before a module is written, of the typical case."""

QUICK = (
    *GRADIENTS,
    Column("forward", "forward mode is reverse mode, of both orders", forward, rounds=True),
    Column("vmap", "torch.func.vmap of gradients and cotangents is a loop", batched, rounds=True),
    Column("strides", "strides and offsets of views do not matter", strides, rounds=True),
    Column("subsets", "gradients do not depend on which are wanted", subsets, rounds=True),
    Column(
        "missing",
        "gradients of outputs add up, each without the others' cotangents",
        missing,
        rounds=True,
    ),
    Column("twice", "one tensor may be two inputs", twice, rounds=True, typical=True),
    Column("unchanged", "inputs and cotangents are not written to", unchanged),
    Column(
        "in-place",
        "outputs may be changed in place, or autograd says what it reads",
        in_place,
        rounds=True,
        typical=True,
    ),
    Column("saved", "no more bytes are kept for the backward than inputs and outputs have", saved),
    Column("float32", "results are of float32, and as near float64's as rounding allows", float32),
    Column("float32-offset", "so they are where inputs lie off the origin", _off),
    Column("float32-saturated", "and where inputs are large", _saturated),
)
"""Asked by ``derive verify``."""

ALL = (
    *QUICK,
    Column(
        "bfloat16",
        "results of bfloat16 are near float64's",
        partial(low, dtype="bfloat16"),
        typical=True,
    ),
    Column(
        "float16",
        "results of float16 are near float64's",
        partial(low, dtype="float16"),
        typical=True,
    ),
    Column("mixed", "inputs of float32 and bfloat16 promote as in torch", mixed, typical=True),
    Column(
        "autocast",
        "under autocast to bfloat16 too, the backward in it or not",
        autocast,
        typical=True,
    ),
    Column("meta", "shapes and dtypes are known without data", without_data, typical=True),
    Column(
        "make_fx",
        "graphs of make_fx, with the backward, hold for other values",
        traced,
        rounds=True,
        typical=True,
    ),
    Column(
        "compile",
        "torch.compile(fullgraph=True), by AOT autograd, gives the same",
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
    Column("onnx", "ONNX gives the same values in float32, by onnxruntime", in_onnx, typical=True),
    Column("dtensor", "replicated DTensors give the same", replicated, rounds=True, typical=True),
)
"""Asked by ``derive verify --all``."""

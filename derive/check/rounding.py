"""float32 code held to what float32 can give of the equations as they stand.

    |code - truth|  <=  several times |equations as written - truth|

Truth is the equations in float64, at the very float32 inputs. What these lose by rounding in
float32, as written and where their inputs move by their last bit, code may lose too; a formula
that loses digits, such as x**2 - 2*x*y + y**2 for (x - y)**2 off the origin, loses more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from derive.algebra.interpret import Array
from derive.check.invoke import (
    Function,
    Results,
    array,
    called,
    differs,
    inputs_of,
    plain,
    pulled_back,
    tensors_of,
)
from derive.check.samples import Sample
from derive.notation.operation import Operation

_PARTS = (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16)
"""Of scale and offset: less where the equations are not finite, as exp of 100 in float32."""
_ALLOWED = 16
"""Other orders of the same operations err by several times as much."""
_LAST_BIT = 2.0**-23
_KEPT = 2.0**-16
"""What is right to 16 bits of the largest value is not blamed: squares that are multiplied out
round as the greatest of all distances does, which the equations as written need not."""
_GRAPH = " with a graph"
"""What the gradients are called that are made to be differentiated again."""
_TINY = 2.0**-126
"""Below it float32 has fewer digits."""


def float32(op: Operation, function: Function, made: Sample) -> str:
    """In float32 outputs and gradients are of that type and near those of float64.

    They may be as far off as rounding of the equations as written explains.
    """
    import torch

    wrong, far = [], []
    single = tensors_of(made, "float32")
    for name, output in zip(
        made.outputs, called(function, made, list(single.values())), strict=True
    ):
        if output.is_floating_point():
            if output.dtype != torch.float32:
                wrong.append(f"{name} is {output.dtype}")
            far.append(differs(name, array(output), made.outputs[name], 1e-3, 1e-4))
    double = pulled_back(function, made, tensors_of(made))
    for name, got in pulled_back(function, made, single).items():
        far.append(differs(f"grad_{name}", array(got), array(double[name]), 1e-3, 1e-3))
    if any(far) and not lost_digits(op, function, made):
        far = []
    return "; ".join(filter(None, [*wrong, *far]))


def lost_digits(
    op: Operation, function: Function, made: Sample, scale: float = 1.0, offset: float = 0.0
) -> str:
    """Where code in float32 is further from the truth than rounding of the equations explains.

    The inputs are scaled, then moved by the offset: as far as all is finite there; where that is
    nowhere, as far as something is, and that is asked. Where nothing is defined, as asin off the
    origin, nothing is asked.
    """
    single = made
    known: dict[str, tuple[Array, float]] = {}
    for part in _PARTS:
        moved = _moved(made, max(1.0, scale * part), offset * part)
        there = _known(op, moved)
        finite = [np.isfinite(truth) for truth, _ in there.values()]
        whole = bool(finite) and all(f.all() for f in finite)
        if whole or (not known and any(f.any() for f in finite)):
            single, known = moved, there
        if whole:
            break
    found = []
    got = _results(function, single, "float32") if known else {}
    for name, (truth, rounding) in known.items():
        asked = np.isfinite(truth)
        if not asked.any():
            continue
        bound = max(_ALLOWED * (rounding + _TINY), _KEPT * np.abs(truth[asked]).max())
        for own in (n for n in (name, f"{name}{_GRAPH}") if n in got):
            error = np.abs(got[own] - truth)[asked]
            if not (error <= bound).all():
                worst = float(np.nan_to_num(error, nan=np.inf).max())
                found.append(
                    f"{own} is off by {worst:.3g}; the equations as written are off by "
                    f"{rounding:.3g}"
                )
    return "; ".join(found)


def _known(op: Operation, single: Sample) -> dict[str, tuple[Array, float]]:
    """Of each result the truth, and how far off the equations as written are in float32.

    The truth is nan where these are not finite: they overflow, or are not defined. Nothing is
    known where a position follows from the inputs and leaves its axis.
    """
    double = replace(single, tensors={n: _as(v, np.float64) for n, v in single.tensors.items()})
    written = plain(op, single)
    try:
        truth = _results(written, double, "float64")
        others = [
            _results(written, _nudged(subject, seed), dtype)
            for seed in range(3)
            for subject, dtype in ((single, "float32"), (double, "float64"))
        ]
    except IndexError:
        return {}
    known = {}
    for name, value in truth.items():
        if name.endswith(_GRAPH):
            continue
        gaps = np.stack([np.abs(value) * _LAST_BIT, *(np.abs(o[name] - value) for o in others)])
        asked = np.isfinite(gaps).all(0)
        rounding = float(gaps[:, asked].max(initial=0))
        known[name] = (np.where(asked, value, np.nan), rounding)
    return known


def _moved(made: Sample, scale: float, offset: float) -> Sample:
    """The sample with other floating-point inputs, which float32 has exactly."""
    tensors = {
        name: _as(v * scale + offset, np.float32) if v is not None and v.dtype == np.float64 else v
        for name, v in made.tensors.items()
    }
    return replace(made, tensors=tensors)


def _as(values: Array | None, dtype: type) -> Array | None:
    if values is None or values.dtype not in (np.float32, np.float64):
        return values
    return np.asarray(values, dtype)


def _nudged(made: Sample, seed: int) -> Sample:
    """The inputs, or with another seed than 0 these with their last bit in float32 moved."""
    if seed == 0:
        return made
    rng = np.random.default_rng((19, seed))
    tensors = dict(made.tensors)
    for name, v in made.tensors.items():
        if v is not None and v.dtype in (np.float32, np.float64):
            signs = rng.choice((-1.0, 1.0), v.shape)
            tensors[name] = np.asarray(v * (1 + signs * _LAST_BIT), v.dtype)
    return replace(made, tensors=tensors)


def _results(function: Function, made: Sample, dtype: str) -> Results:
    """The floating-point outputs and the gradients of Sum outputs*cotangents."""
    tensors = tensors_of(made, dtype)
    outputs = called(function, made, list(tensors.values()))
    found = {
        name: o.detach().double().numpy()
        for name, o in zip(made.outputs, outputs, strict=True)
        if o.is_floating_point()
    }
    if inputs_of(tensors):
        for ending, graph in (("", False), (_GRAPH, True)):
            for name, g in pulled_back(function, made, tensors, graph).items():
                found[f"grad_{name}{ending}"] = g.detach().double().numpy()
    return found

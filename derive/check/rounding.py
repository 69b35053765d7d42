"""Compare the rounding error of float32 code with that of the equations as written.

    |code - truth|  <=  several times |equations as written - truth|

Truth is the equations in float64, at the same float32 inputs. The code may err as much as the
equations evaluated in float32, or as a change in the inputs' last bits. A formula that loses more
digits fails, such as x**2 - 2*x*y + y**2 for (x - y)**2 far from the origin.
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
"""Fractions of scale and offset: reduced until the equations are finite, as for exp(100)."""
_ALLOWED = 16
"""The allowed multiple of the equations' error, for other orders of the same operations."""
_LAST_BIT = 2.0**-23
_KEPT = 2.0**-16
"""Errors below 2^-16 of the largest value are accepted.

An expanded square rounds relative to the largest distance; the equations as written need not.
"""
_GRAPH = " with a graph"
"""The suffix of gradients computed with create_graph."""
_TINY = 2.0**-126
"""The smallest normal float32."""


def float32(op: Operation, function: Function, made: Sample) -> str:
    """Check that float32 results have that dtype and are close to float64.

    The allowed error is the rounding error of the equations as written.
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
    """Describe where float32 code errs more than rounding of the equations explains.

    The inputs are scaled, then shifted by the offset, as far as all results are finite. If they
    never are, the largest move with some finite results is used, and only those are compared. If
    nothing is defined, as for asin far from the origin, nothing is compared.
    """
    single = made
    known: dict[str, tuple[Array, float]] = {}
    for part in _PARTS:
        moved = _scale_and_shift(made, max(1.0, scale * part), offset * part)
        there = _truth_and_rounding(op, moved)
        finite = [np.isfinite(truth) for truth, _ in there.values()]
        whole = bool(finite) and all(f.all() for f in finite)
        if whole or (not known and any(f.any() for f in finite)):
            single, known = moved, there
        if whole:
            break
    found = []
    got = _outputs_and_gradients(function, single, "float32") if known else {}
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


def _truth_and_rounding(op: Operation, single: Sample) -> dict[str, tuple[Array, float]]:
    """Return (truth, float32 error of the equations as written) of each result.

    The truth is nan where the equations overflow or are undefined. The result is empty if a
    position computed from the inputs leaves its axis.
    """
    double = replace(
        single, tensors={n: _floats_as(v, np.float64) for n, v in single.tensors.items()}
    )
    written = plain(op, single)
    try:
        truth = _outputs_and_gradients(written, double, "float64")
        others = [
            _outputs_and_gradients(written, _perturb_last_bit(subject, seed), dtype)
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


def _scale_and_shift(made: Sample, scale: float, offset: float) -> Sample:
    """Return the sample with other float inputs, exactly representable in float32."""
    tensors = {
        name: _floats_as(v * scale + offset, np.float32)
        if v is not None and v.dtype == np.float64
        else v
        for name, v in made.tensors.items()
    }
    return replace(made, tensors=tensors)


def _floats_as(values: Array | None, dtype: type) -> Array | None:
    if values is None or values.dtype not in (np.float32, np.float64):
        return values
    return np.asarray(values, dtype)


def _perturb_last_bit(made: Sample, seed: int) -> Sample:
    """Move the inputs by their last bit in float32; with seed 0 leave them."""
    if seed == 0:
        return made
    rng = np.random.default_rng((19, seed))
    tensors = dict(made.tensors)
    for name, v in made.tensors.items():
        if v is not None and v.dtype in (np.float32, np.float64):
            signs = rng.choice((-1.0, 1.0), v.shape)
            tensors[name] = np.asarray(v * (1 + signs * _LAST_BIT), v.dtype)
    return replace(made, tensors=tensors)


def _outputs_and_gradients(function: Function, made: Sample, dtype: str) -> Results:
    """Return the float outputs and the gradients of Sum outputs*cotangents."""
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

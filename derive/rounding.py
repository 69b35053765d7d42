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
from derive.calling import Function, Results, called, inputs_of, plain, pulled_back, tensors_of
from derive.samples import Sample
from derive.spec.operation import Operation

__all__ = ["SHIFTS", "lost_digits"]

SHIFTS = (
    ("float32 off the origin", 1.0, 100.0),
    ("float32 saturated", 20.0, 0.0),
)
"""What is made of the floating-point inputs of a sample: scaled by the first, then moved."""

_ALLOWED = 16
"""Other orders of the same operations err by several times as much."""
_LAST_BIT = 2.0**-23
_KEPT = 2.0**-16
"""What is right to 16 bits of the largest value is not blamed: squares that are multiplied out
round as the greatest of all distances does, which the equations as written need not."""
_TINY = 2.0**-126
"""Below it float32 has fewer digits."""


def lost_digits(
    op: Operation, scale: float, offset: float, function: Function, made: Sample
) -> str:
    """Where code in float32 is further from the truth than rounding of the equations explains."""
    single = _moved(made, scale, offset)
    double = replace(single, tensors={n: _as(v, np.float64) for n, v in single.tensors.items()})
    written = plain(op, made)
    try:
        truth = _results(written, double, "float64")
    except IndexError:
        return ""  # A position that follows from the inputs leaves its axis.
    if not all(np.isfinite(v).all() for v in truth.values()):
        return ""  # The equations overflow here, or are asked outside of their domain.
    allowed = {name: np.abs(value) * _LAST_BIT for name, value in truth.items()}
    for seed in range(3):
        near = _nudged(single, seed)
        as_written = _results(written, near, "float32")
        moved = _results(written, _nudged(double, seed), "float64")
        for name, value in truth.items():
            for other in (as_written[name], moved[name]):
                gap = np.abs(other - value)
                if not np.isfinite(gap).all():
                    return ""  # Not even as written are they finite in float32.
                allowed[name] = np.maximum(allowed[name], gap)
    found = []
    got = _results(function, single, "float32")
    for name, value in truth.items():
        error = np.abs(got[name] - value)
        largest = np.abs(value).max(initial=0.0)
        bound = max(_ALLOWED * (allowed[name].max(initial=0.0) + _TINY), _KEPT * largest)
        if not (error <= bound).all():
            worst = float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))
            found.append(
                f"{name} is off by {worst:.3g}, where the equations as written are by "
                f"{allowed[name].max(initial=0.0):.3g}"
            )
    return "; ".join(found)


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
        for name, g in pulled_back(function, made, tensors).items():
            found[f"grad_{name}"] = g.detach().double().numpy()
    return found

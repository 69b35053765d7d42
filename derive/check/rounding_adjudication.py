"""Decide whether a difference is an error of the code or rounding at an ill-conditioned sample.

Central differences in float64 err by curvature and by rounding. Where a check fails, values and
derivatives at the same sample are compared with two references that have neither error:
torch.autograd of the equations (`derive.check.reference`), and differences in many digits
(`derive.check.high_precision_oracle`). The rounding of the code itself is measured by how far its
results move when the inputs change in the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from math import prod

import numpy as np

from derive.algebra.expr import Index, walk
from derive.algebra.interpret import Array
from derive.check import oracle
from derive.check.high_precision_oracle import ExactDifferences, Unknown
from derive.check.invoke import (
    Function,
    Results,
    array,
    cotangents_of,
    derivatives,
    differs,
    directions_of,
    plain,
    weights_of,
)
from derive.check.samples import Case, Sample, sample
from derive.errors import VerificationError
from derive.notation.operation import Operation

_RTOL, _ATOL = 1e-6, 1e-8
_MOST_LOOPS = 100_000
"""High-precision differences run only up to this many loop iterations."""
_LAST_BIT = 2.0**-52
_ROUNDING = 64
"""The allowed error, as a multiple of the effect of the last bits of the inputs."""
_SEEDS = range(1, 9)


class Verdict(Enum):
    """The result of adjudication at one sample."""

    RIGHT = "right"
    WRONG = "wrong"
    CONVENTIONAL = "equal to torch.autograd; finite differences are inconclusive"
    UNDECIDED = "undecided at this sample"


def verdict(op: Operation, function: Function, made: Sample, order: int) -> tuple[Verdict, str]:
    """Judge values (order 0), first or second derivatives; return verdict and difference."""
    got = derivatives(function, made, order)
    want = derivatives(plain(op, made), made, order)
    # A function may have no forward mode.
    want = {name: value for name, value in want.items() if name in got}
    noise = _noise(plain(op, made), made, order, want)
    unlike = _beyond_noise(got, want, noise)
    try:
        truth = _exact_results(op, made, order)
    except Unknown as reason:
        if unlike and _beyond_noise(got, want, _noise(function, made, order, got)):
            return Verdict.WRONG, f"autograd of the equations: {unlike}"
        return (Verdict.UNDECIDED if unlike else Verdict.CONVENTIONAL), unlike or str(reason)
    along, own = (
        _contract_directions(got, made, order),
        _contract_directions(noise, made, order, bound=True),
    )
    truth = {name: value for name, value in truth.items() if name in along}
    untrue = _beyond_noise(along, truth, own)
    if not unlike and not untrue:
        return Verdict.RIGHT, ""
    loose = _noise(function, made, order, got)
    if _beyond_noise(got, want, loose) or _beyond_noise(
        along, truth, _contract_directions(loose, made, order, bound=True)
    ):
        return Verdict.WRONG, "; ".join(
            f"{judge}: {text}"
            for judge, text in (
                ("autograd of the equations", unlike),
                ("differences in 60 digits", untrue),
            )
            if text
        )
    return Verdict.UNDECIDED, unlike or untrue


def steadiest(op: Operation, case: Case) -> Iterator[Sample]:
    """Yield other samples of a case, the best conditioned first."""
    found: list[tuple[float, int, Sample]] = []
    for seed in _SEEDS:
        try:
            made = sample(op, case, seed)
        except VerificationError:
            continue
        found.append((_unsteadiness(op, made), seed, made))
    for _, _, made in sorted(found, key=lambda entry: entry[:2]):
        yield made


def _unsteadiness(op: Operation, made: Sample) -> float:
    """Return the largest relative change of derivatives when all inputs change by 0.1 %."""
    here = derivatives(plain(op, made), made, 1)
    moved = derivatives(plain(op, made), made, 1, shift=1e-3)
    largest = max((np.abs(v).max(initial=0.0) for v in here.values()), default=0.0)
    gaps = [np.abs(moved[name] - v).max(initial=0.0) for name, v in here.items()]
    worst = float(max(gaps, default=0.0)) / (float(largest) or 1.0)
    return worst if np.isfinite(worst) else np.inf


# --------------------------------------------------------------------- rounding


def rounding(function: Function, made: Sample) -> float:
    """Return the rounding error of the code's gradients, at the sample and near it."""
    largest = 0.0
    for shift in (0.0, -0.01):
        moved = {
            name: np.asarray(v * (1 + shift)) if v is not None and v.dtype == np.float64 else v
            for name, v in made.tensors.items()
        }
        there = replace(made, tensors=moved)
        found = _noise(function, there, 1, derivatives(function, there, 1))
        largest = max([largest, *(float(v.max(initial=0.0)) for v in found.values())])
    return largest


def _noise(function: Function, made: Sample, order: int, here: Results) -> Results:
    """Return the change of each result with the last bits of the inputs, scaled to a bound."""
    noise = {name: np.abs(value) * _LAST_BIT for name, value in here.items()}
    for n in range(4):
        moved = derivatives(function, made, order, shift=_LAST_BIT, seed=n)
        for name, value in here.items():
            with np.errstate(invalid="ignore"):
                gap = np.nan_to_num(np.abs(moved[name] - value), nan=0.0, posinf=0.0)
            noise[name] = np.maximum(noise[name], gap)
    # Some elements may move little by chance, so the largest change bounds all elements.
    return {
        name: _ROUNDING * np.maximum(value, value.max(initial=0.0) / _ROUNDING)
        for name, value in noise.items()
    }


def _beyond_noise(got: Results, want: Results, noise: Results) -> str:
    """Describe where results differ by more than tolerance and noise."""
    found = []
    largest = max((float(np.abs(v).max(initial=0.0)) for v in want.values()), default=0.0)
    atol = _ATOL * min(1.0, max(1e-6, largest))
    for name, value in want.items():
        own = got.get(name, np.zeros_like(value))
        with np.errstate(invalid="ignore"):
            near = np.abs(own - value) <= atol + _RTOL * np.abs(value) + noise.get(name, 0)
        same = near | (own == value) | (np.isnan(own) & np.isnan(value))
        if not same.all():
            found.append(differs(name, own, value, 0, 0))
    return "; ".join(found)


# ----------------------------------------------------------------- many digits


def _exact_results(op: Operation, made: Sample, order: int) -> Results:
    """Return outputs, slopes or curvatures along a few directions, in high precision."""
    sizes = oracle.sizes(op, made.tensors, made.parameters)
    loops = 0
    for equation in op.equations:
        parts = (*equation.axes, equation.body)
        own = {i.extent for part in parts for i in walk(part) if isinstance(i, Index)}
        loops += prod(prod(n) if isinstance(n := sizes[e], tuple) else n for e in own)
    if loops > _MOST_LOOPS:
        raise Unknown(f"{loops} loop iterations are too many for high-precision arithmetic")
    exact = ExactDifferences(op, made, cotangents_of(made))
    if order == 0:
        return exact.outputs()
    names = list(directions_of(made, 0))
    found: Results = {}
    if names and order == 1:
        found["slopes of the outputs"] = np.array(exact.slope(directions_of(made, 0)))
    for n in range(2):
        for name in names:
            part = directions_of(made, n)[name]
            found[f"grad_{name} along {n}"] = np.array(exact.slope({name: part}))
            if order == 2:
                value = exact.curvature(directions_of(made, 0), {name: part})
                found[f"second derivative, {name} along {n}"] = np.array(value)
    return found


def _contract_directions(found: Results, made: Sample, order: int, bound: bool = False) -> Results:
    """Contract elementwise derivatives (or their error bounds) with the same directions."""
    if order == 0:
        return found
    result: Results = {}
    slopes = [v for name, v in found.items() if name.endswith(", forward")]
    if slopes:
        pairs = zip(slopes, weights_of(made), strict=True)
        result["slopes of the outputs"] = sum(
            (_directional_sum(v, array(w)) for v, w in pairs), np.array(0.0)
        )
    for n in range(2):
        for name, part in directions_of(made, n).items():
            part = np.abs(part) if bound else part
            result[f"grad_{name} along {n}"] = _directional_sum(found[f"grad_{name}"], part)
            if order == 2:
                second = _directional_sum(found[f"second derivative, {name}"], part)
                result[f"second derivative, {name} along {n}"] = second
    return result


def _directional_sum(values: Array, direction: Array) -> Array:
    return np.array(np.sum(values * direction))

"""Check the rounding of float32 code, and half precision, autocast and mixed dtypes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from derive.algebra.interpret import Array
from derive.check.invoke import (
    Function,
    NotApplicable,
    Results,
    array,
    called,
    cotangents_of,
    differs,
    inputs_of,
    leaves_of,
    plain,
    pulled_back,
    pulled_through,
    tensors_of,
    with_floats,
)
from derive.check.lazy import Tensor, torch
from derive.check.samples import Sample
from derive.notation.operation import Operation

# ----------------------------------------------------------------------------------------- rounding
# Compare the rounding error of float32 code with that of the equations as written.
#
#     |code - truth|  <=  several times |equations as written - truth|
#
# Truth is the equations in float64, at the same float32 inputs. The code may err as much as the
# equations evaluated in float32, or as a change in the inputs' last bits. A formula that loses more
# digits fails, such as x**2 - 2*x*y + y**2 for (x - y)**2 far from the origin.

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
_NOTHING = _LAST_BIT**2
"""Errors below this part of the largest input are accepted.

A gradient of 1e-21 may be exactly 0 in the equations, where terms cancel that are rounded alike.
"""


def float32(op: Operation, function: Function, made: Sample) -> str:
    """Check that float32 results differ from float64 by rounding only.

    They have that dtype. The allowed error is the rounding error of the equations as written.
    """
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
    given = [v for v in single.tensors.values() if v is not None and v.size]
    nothing = _NOTHING * max((float(np.abs(v).max()) for v in given), default=0.0)
    for name, (truth, rounding) in known.items():
        asked = np.isfinite(truth)
        if not asked.any():
            continue
        bound = max(_ALLOWED * (rounding + _TINY), _KEPT * np.abs(truth[asked]).max(), nothing)
        for own in (n for n in (name, f"{name}{_GRAPH}") if n in got):
            error = np.abs(got[own] - truth)[asked]
            if not (error <= bound).all():
                worst = float(np.nan_to_num(error, nan=np.inf).max())
                found.append(
                    f"{own} is off by {worst:.3g}; the equations as written are off by "
                    f"{rounding:.3g}"
                )
    if found and not op.stable:
        found.append("stable, after the ';' of the op line, forms differences before products")
    return "; ".join(found)


def _truth_and_rounding(op: Operation, single: Sample) -> dict[str, tuple[Array, float]]:
    """Return (truth, float32 error of the equations as written) of each result.

    The truth is nan where the equations overflow or are undefined. The result is empty if a
    position computed from the inputs leaves its axis.
    """
    double = with_floats(single, np.float64)
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
    return with_floats(made, lambda v: np.float32(v * scale + offset))


def _perturb_last_bit(made: Sample, seed: int) -> Sample:
    """Move the inputs by their last bit in float32; with seed 0 leave them."""
    if seed == 0:
        return made
    rng = np.random.default_rng((19, seed))

    def moved(v: Array) -> Array:
        return np.asarray(v * (1 + rng.choice((-1.0, 1.0), v.shape) * _LAST_BIT), v.dtype)

    return with_floats(made, moved)


def _outputs_and_gradients(function: Function, made: Sample, dtype: str) -> Results:
    """Return the float outputs and the gradients of Sum outputs*cotangents."""
    tensors = tensors_of(made, dtype)
    outputs = called(function, made, list(tensors.values()))
    named = zip(made.outputs, outputs, strict=True)
    found = {name: array(o) for name, o in named if o.is_floating_point()}
    for ending, graph in (("", False), (_GRAPH, True)):
        for name, g in pulled_back(function, made, tensors, graph).items():
            found[f"grad_{name}{ending}"] = array(g)
    return found


# ------------------------------------------------------------------------------------ low precision
# Check half precision, autocast and mixed dtypes against float64.
#
# Inputs and cotangents are exactly representable in the dtype, and the truth is the equations in
# float64. The allowed error is the effect of a change in their last bits, plus a few roundings of
# the result.

_MOVED = 4
"""Samples that measure the effect of the last bits."""
_ALLOWED_HALF = 8
"""The allowed error, as a multiple of the effect of the last bits."""
_CANCELED = 1e-12
"""Results below this fraction of the largest are 0 by cancellation."""
_ROUNDED = 4
"""The additional error, in last bits of the largest value, as by products in that dtype."""


@dataclass(frozen=True)
class _RoundedCall:
    """A sample and its cotangents, rounded to the dtype."""

    made: Sample
    cotangents: dict[str, Array]

    def changed(self, change: Callable[[Array], Any]) -> _RoundedCall:
        """Return the call with its float inputs and its cotangents changed."""
        cotangents = {name: np.asarray(change(v)) for name, v in self.cotangents.items()}
        return _RoundedCall(with_floats(self.made, change), cotangents)


def _rounded_call(made: Sample, dtype: torch.dtype) -> _RoundedCall:
    call = _RoundedCall(made, cotangents_of(made))
    return call.changed(lambda v: torch.from_numpy(v).to(dtype).double().numpy())


def _perturb_call(call: _RoundedCall, dtype: torch.dtype, seed: int) -> _RoundedCall:
    """Move each number up or down by its last bit."""
    rng, bit = np.random.default_rng((23, seed)), torch.finfo(dtype).eps
    return call.changed(lambda v: v * (1 + bit * rng.choice((-1.0, 1.0), v.shape)))


def _called_low(
    function: Function, made: Sample, dtype: str
) -> tuple[_RoundedCall, dict[str, Tensor | None], list[Tensor]]:
    """Return the call rounded to the dtype, its tensors of this dtype, and its outputs."""
    call = _rounded_call(made, getattr(torch, dtype))
    tensors = tensors_of(call.made, dtype)
    if not inputs_of(tensors):
        raise NotApplicable("no input is of floating point")
    return call, tensors, called(function, call.made, list(tensors.values()))


def _call_results(function: Function, call: _RoundedCall) -> Results:
    """Return the float outputs and the gradients in float64."""
    tensors = tensors_of(call.made)
    outputs = called(function, call.made, list(tensors.values()))
    return _with_gradients(outputs, call, tensors)


def _with_gradients(
    outputs: list[Tensor], call: _RoundedCall, tensors: dict[str, Tensor | None]
) -> Results:
    named = zip(call.made.outputs, outputs, strict=True)
    found = {name: array(o) for name, o in named if o.is_floating_point()}
    grads = pulled_through(outputs, call.made, tensors, call.cotangents)
    return found | {f"grad_{name}": array(g) for name, g in grads.items()}


def _beyond_last_bits(op: Operation, call: _RoundedCall, dtype: torch.dtype, got: Results) -> str:
    """Describe where results are further from the truth than the last bits explain."""
    info = torch.finfo(dtype)
    written = plain(op, call.made)
    truth = _call_results(written, call)
    try:
        others = [_call_results(written, _perturb_call(call, dtype, n)) for n in range(_MOVED)]
    except IndexError:
        raise NotApplicable("a position follows from inputs that half precision moves") from None
    found = []
    whole = _largest_finite(*map(np.abs, truth.values()))
    for name, want in truth.items():
        asked = np.isfinite(want) & (np.abs(want) < info.max / 2)
        gaps = [np.abs(o[name] - want)[asked] for o in others]
        largest = _largest_finite(np.abs(want)[asked])
        if largest <= _CANCELED * whole:
            # Rounding of saved outputs breaks the cancellation.
            largest = whole
        bound = max(_ALLOWED_HALF * _largest_finite(*gaps), _ROUNDED * info.eps * largest)
        bound += info.tiny
        error = np.nan_to_num(np.abs(got[name] - want), nan=np.inf)[asked]
        if not (error <= bound).all():
            found.append(f"{name} is off by {error.max():.3g}, above the tolerance of {bound:.3g}")
    return "; ".join(found)


def _largest_finite(*gaps: Array) -> float:
    return max((float(g[np.isfinite(g)].max(initial=0.0)) for g in gaps), default=0.0)


def low(op: Operation, function: Function, made: Sample, dtype: str) -> str:
    """Check the dtype and accuracy of results in half precision."""
    kind: torch.dtype = getattr(torch, dtype)
    call, tensors, outputs = _called_low(function, made, dtype)
    wrong = [
        f"{name} is {o.dtype}"
        for name, o in zip(made.outputs, outputs, strict=True)
        if o.is_floating_point() and o.dtype != kind
    ]
    got = _with_gradients(outputs, call, tensors)
    return "; ".join(filter(None, [*wrong, _beyond_last_bits(op, call, kind, got)]))


def runs_low(op: Operation, function: Function, made: Sample, dtype: str) -> str:
    """Check the dtypes of results in half precision, and that numbers of ordinary size are finite.

    For code that computes in the dtype of its arguments, and so rounds as often as it has calls.
    """
    kind: torch.dtype = getattr(torch, dtype)
    call, tensors, outputs = _called_low(function, made, dtype)
    grads = pulled_through(outputs, call.made, tensors, call.cotangents)
    truth = _call_results(plain(op, call.made), call)
    got = {n: o for n, o in zip(made.outputs, outputs, strict=True) if o.is_floating_point()}
    got |= {f"grad_{name}": g for name, g in grads.items()}
    found = [f"{name} is {t.dtype}" for name, t in got.items() if t.dtype != kind]
    for name, t in got.items():
        want = np.abs(truth[name])
        ordinary = np.isfinite(want) & (want < torch.finfo(kind).max ** 0.5)
        if not np.isfinite(array(t))[ordinary].all():
            found.append(f"{name} is not finite")
    return "; ".join(found)


def mixed(op: Operation, function: Function, made: Sample) -> str:
    """Check that inputs of float32 and bfloat16 promote as in torch.

    Gradients keep the dtypes of the inputs.
    """
    call = _rounded_call(made, torch.bfloat16)
    tensors = tensors_of(call.made, "float32")
    floats = inputs_of(tensors)
    if len(floats) < 2:
        raise NotApplicable("one input is of floating point")
    for name in floats[1::2]:
        t = tensors[name]
        assert t is not None
        tensors[name] = t.detach().bfloat16().requires_grad_()
    parts = (t.detach().flatten()[:1] if t.dim() else t.detach() for t in leaves_of(tensors))
    wanted = reduce(torch.add, parts).dtype
    outputs = called(function, call.made, list(tensors.values()))
    wrong = [
        f"{name} is {o.dtype}, not {wanted}"
        for name, o in zip(made.outputs, outputs, strict=True)
        if o.is_floating_point() and o.dtype != wanted
    ]
    got = _with_gradients(outputs, call, tensors)
    return "; ".join(filter(None, [*wrong, _beyond_last_bits(op, call, torch.bfloat16, got)]))


def autocast(op: Operation, function: Function, made: Sample) -> str:
    """Check results under autocast to bfloat16, with the backward inside and outside of it."""
    found = []
    call = _rounded_call(made, torch.bfloat16)
    for inside in (False, True):
        tensors = tensors_of(call.made, "float32")
        if not inputs_of(tensors):
            raise NotApplicable("no input is of floating point")
        backward: Callable[[], Any] = partial(torch.autocast, "cpu", torch.bfloat16)
        with backward():
            outputs = called(function, call.made, list(tensors.values()))
        with backward() if inside else nullcontext():
            got = _with_gradients(outputs, call, tensors)
        text = _beyond_last_bits(op, call, torch.bfloat16, got)
        found.append(f"the backward {'in' if inside else 'out'}side: {text}" if text else "")
    return "; ".join(filter(None, found))

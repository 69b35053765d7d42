"""Check values and derivatives against the oracle, finite differences and forward mode.

Values and first gradients are compared with the oracle, which shares no code with the engine.
gradcheck and gradgradcheck compare the code with its own differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from derive.algebra.expr import Call, walk
from derive.algebra.interpret import Array
from derive.check import oracle
from derive.check.invoke import (
    Function,
    NotApplicable,
    array,
    called,
    cotangents_of,
    differentiable,
    differs,
    directions_of,
    gradients,
    leaves_of,
    plain,
    pulled_back,
    tensors_of,
    weights_of,
)
from derive.check.lazy import Tensor, torch
from derive.check.samples import Sample
from derive.notation.operation import Operation

# ----------------------------------------------------------------------------------------- detached
# Check operations with ``detach`` against autograd, since finite differences ignore detach.
#
# The reference evaluates the equations in torch, and detaches where they do.


def detaches(op: Operation) -> bool:
    """True if an equation contains detach."""
    every = (part for e in op.equations for part in walk(e.body))
    return any(isinstance(e, Call) and e.function == "detach" for e in every)


def unlike_reference(op: Operation, function: Function, made: Sample) -> str:
    """Describe where first or second derivatives differ from the reference's; '' if nowhere."""

    def generated(*given: Tensor | None) -> list[Tensor]:
        return called(function, made, given)

    def plainly(*given: Tensor | None) -> list[Tensor]:
        return called(plain(op, made), made, given)

    pairs = zip(_to_second_order(generated, made), _to_second_order(plainly, made), strict=True)
    found = (differs(f"derivative {n}", a, b, 1e-6, 1e-8) for n, (a, b) in enumerate(pairs))
    return "; ".join(filter(None, found))


def _to_second_order(function: Function, made: Sample) -> list[Any]:
    """Return the gradients, and gradients of a combination of them in inputs and cotangents."""
    tensors = tensors_of(made)
    inputs = leaves_of(tensors)
    outputs = [o for o in function(*tensors.values()) if o.is_floating_point()]
    weights = [torch.full_like(o, 0.5 + n, requires_grad=True) for n, o in enumerate(outputs)]
    subjects = [*inputs, *weights]
    second: Sequence[Tensor] = [torch.zeros_like(t) for t in subjects]
    # The outputs of a Function require gradients also where everything is detached.
    pairs = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
    first = gradients(pairs, inputs, create_graph=True)
    total = sum((g * torch.linspace(0.3, 1.3, g.numel()).reshape(g.shape)).sum() for g in first)
    if isinstance(total, torch.Tensor) and total.requires_grad:
        second = torch.autograd.grad(total, subjects, materialize_grads=True)
    return [array(g) for g in (*first, *second)]


# -------------------------------------------------------------------------------------- derivatives

_RTOL, _ATOL = 1e-6, 1e-8
_STEP = 1e-5
"""The step of gradcheck: with the default of 1e-6, rounding of values above 10 reaches _ATOL."""
_SLOPE = 1e-9
"""The tolerance of forward mode: torch's rule for logcumsumexp has an error of 1e-10."""
_MOST_ROUNDS = 5_000
"""With more loop iterations, directional differences are tried before elementwise ones."""
_DIRECTIONS = 2
_SCALES = (1.0, 0.05)
"""Of the steps of directional differences, tried in turn."""


def value(op: Operation, function: Function, made: Sample) -> str:
    """Check that outputs equal the equations, evaluated by loops."""
    got = called(function, made, list(tensors_of(made).values()))
    if len(got) != len(made.outputs):
        return f"{len(got)} outputs, not {len(made.outputs)}"
    found = [
        differs(name, array(output), want, 1e-9, 1e-11)
        for output, (name, want) in zip(got, made.outputs.items(), strict=True)
    ]
    return "; ".join(filter(None, found))


def gradient(op: Operation, function: Function, made: Sample) -> str:
    """Check that gradients equal finite differences of the equations.

    With and without a graph.
    """
    found = []
    with_graph = pulled_back(function, made, tensors_of(made), graph=True)
    cotangents = cotangents_of(made)
    rounds = prod(map(oracle.positions, oracle.sizes(op, made.tensors, made.parameters).values()))
    for name, gradient in pulled_back(function, made, tensors_of(made)).items():
        given = (op, made.tensors, cotangents, made.parameters, name)
        got = array(gradient)
        again = array(with_graph[name])
        found.append(
            differs(f"grad_{name} with a graph", again, got, _RTOL, _absolute_tolerance(got))
        )
        with np.errstate(all="ignore"):
            slopes = partial(oracle.slopes, *given)
            if rounds * got.size > _MOST_ROUNDS and _along_directions(slopes, got):
                continue
            want = oracle.gradient(*given)
        found.append(differs(f"grad_{name}", got, want, _RTOL, _absolute_tolerance(want)))
    return "; ".join(filter(None, found))


def _absolute_tolerance(want: Array) -> float:
    """Return the absolute tolerance, smaller if all elements of the gradient are small."""
    return 1e-7 * min(1.0, max(1e-3, float(np.abs(want).max(initial=0.0))))


def _along_directions(slopes: Callable[[Sequence[Array], float], list[float]], got: Array) -> bool:
    """True if the gradient matches directional differences along a few random directions.

    A steep function needs smaller steps where all elements move. A kink in one element spoils all
    directions; elements are then differenced one by one.
    """
    rng = np.random.default_rng(11)
    signs = [rng.choice((-1.0, 1.0), got.shape) for _ in range(_DIRECTIONS)]
    # Random lengths, so that two errors of opposite signs do not cancel.
    directions = [sign * rng.uniform(0.5, 1.5, got.shape) for sign in signs]
    sums = np.asarray([np.sum(got * direction) for direction in directions], np.float64)
    for scale in _SCALES:
        want = np.asarray(slopes(directions, scale), np.float64)
        if np.allclose(sums, want, _RTOL, _absolute_tolerance(want)):
            return True
    return False


# ----------------------------------------------------------- of both orders, by torch


def gradcheck(op: Operation, function: Function, made: Sample, forward: bool = True) -> str:
    """Check that Jacobians of both modes equal finite differences of the code.

    Only those of reverse mode, unless ``forward``.
    """
    _refuse_detach(op)
    call, inputs = differentiable(function, made)
    torch.autograd.gradcheck(
        call, inputs, eps=_STEP, rtol=_RTOL, atol=_ATOL, check_forward_ad=forward
    )
    return ""


def gradgradcheck(op: Operation, function: Function, made: Sample) -> str:
    """Check that Jacobians of the backward equal its finite differences."""
    _refuse_detach(op)
    call, inputs = differentiable(function, made)
    torch.autograd.gradgradcheck(call, inputs, eps=_STEP, rtol=_RTOL, atol=_ATOL)
    return ""


def _refuse_detach(op: Operation) -> None:
    """Raise NotApplicable if finite differences cannot show the derivatives of op."""
    if detaches(op):
        raise NotApplicable("finite differences cannot see detach: see reference")


def reference(op: Operation, function: Function, made: Sample) -> str:
    """Check that derivatives equal autograd of the equations, where they have detach."""
    if not detaches(op):
        raise NotApplicable("nothing is detached: see gradcheck and gradgradcheck")
    return unlike_reference(op, function, made)


def forward(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that forward mode equals reverse mode, for both orders.

    <cotangent, J direction> = <gradient, direction>, for outputs and for gradients.
    """
    call, inputs = differentiable(function, made)
    along = tuple(torch.from_numpy(v) for v in directions_of(made, 0).values())
    weights = weights_of(made)
    still = tuple(t.detach() for t in inputs)
    pairs = [(o, w) for o, w in zip(call(*inputs), weights, strict=True) if o.requires_grad]
    first = gradients(pairs, inputs, create_graph=True)
    terms = torch.stack([(g * u).sum() for g, u in zip(first, along, strict=True)])
    tangents = _tangents(call, still, along)
    found = []
    for name, slopes in (("dual", tangents), ("jvp", torch.func.jvp(call, still, along)[1])):
        got = sum((w * t).sum() for w, t in zip(weights, slopes, strict=True) if t is not None)
        scale = 1 + float(terms.detach().abs().sum())
        want = float(terms.detach().sum())
        found.append(differs(f"slope, {name}", float(got), want, _SLOPE, scale * (1e-11 + slack)))
    if detaches(op) or not terms.requires_grad:
        return "; ".join(filter(None, found))
    second = torch.autograd.grad(terms.sum(), inputs, materialize_grads=True)

    def reverse(*given: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.func.vjp(call, *given)[1](tuple(weights)))

    # torch returns zero tensors without storage; adding makes them ordinary ones.
    curved = torch.func.jvp(reverse, still, along)[1]
    for n, (slope, twice) in enumerate(zip(curved, second, strict=True)):
        bound = 1e-10 * (1 + float(twice.abs().sum())) + slack
        found.append(
            differs(f"slope of gradient {n}", array(slope + 0 * twice), array(twice), 1e-8, bound)
        )
    return "; ".join(filter(None, found))


def _tangents(call: Function, inputs: Sequence[Tensor], along: Sequence[Tensor]) -> list[Any]:
    """Return forward-mode tangents of the outputs; None if one does not depend on the inputs."""
    forward_ad = torch.autograd.forward_ad
    dual: Any = forward_ad.make_dual
    with forward_ad.dual_level():
        outputs = call(*(dual(t, u) for t, u in zip(inputs, along, strict=True)))
        unpacked: Any = forward_ad.unpack_dual
        return [unpacked(o).tangent for o in outputs]

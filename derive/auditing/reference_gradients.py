"""The right gradients of a forward at one point.

They come from autograd of the forward, if finite differences along some directions agree. Otherwise
they are the finite differences, with an error bound. An element that neither determines is nan,
which equals anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from derive.auditing.forward import Subject
from derive.auditing.points import is_float, random_like
from derive.errors import DeriveError

_DOUBTED = 1e-2
"""Differences are discarded if two steps disagree by more, relative to the largest."""
_MOST_DIFFERENCES = 300
_DIRECTIONS = (11, 211)
"""Seeds; along a single direction a slope may be right by chance."""


def leaves_of(
    subject: Subject, args: Sequence[Any], wanted: Sequence[int] | None = None
) -> dict[int, Any]:
    """Return an autograd leaf for each argument with a gradient, with the same strides.

    A module parameter is its own leaf, since the forward reads it from the module.
    """
    return {
        n: args[n] if n in subject.owned else args[n].detach().requires_grad_()
        for n in subject.wanted(args)
        if wanted is None or n in wanted
    }


def with_leaves(args: Sequence[Any], leaves: Mapping[int, Any], copied: bool) -> list[Any]:
    """Insert leaves into the arguments, as copies if the forward may overwrite them."""
    return [
        (leaves[n].clone() if copied else leaves[n])
        if n in leaves
        else (a.detach() if is_float(a) else a)
        for n, a in enumerate(args)
    ]


def right_gradients(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[dict[int, Any], float]:
    """Return the right gradients, and their error bound.

    With a reference, autograd of it is right by definition, whatever the slope is.
    """
    import torch

    try:
        found = by_autograd(subject, args, cotangents)
    except RuntimeError as error:
        if subject.reference is not None:
            raise DeriveError(
                f"{subject.name} cannot be judged: autograd fails on its reference: "
                f"{str(error).strip().splitlines()[0]}"
            ) from error
        found = None
    if found is not None and (
        subject.reference is not None or _is_slope(subject, args, cotangents, found)
    ):
        return found, 0.0
    if subject.believed:
        return {n: torch.full_like(args[n], torch.nan) for n in subject.wanted(args)}, 0.0
    return differences(subject, args, cotangents)


def by_autograd(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]
) -> dict[int, Any] | None:
    """Return autograd's gradients of the forward.

    If no output requires a gradient: zeros with a reference, else None.
    """
    import torch

    leaves = leaves_of(subject, args)
    outputs = subject.plain(with_leaves(args, leaves, True))
    pairs = [
        (o, g)
        for o, g in zip(outputs, cotangents, strict=False)
        if g is not None and o.requires_grad
    ]
    if not pairs:
        return None if subject.reference is None else _zeros(leaves)
    found = torch.autograd.grad(
        [o for o, _ in pairs], list(leaves.values()), [g for _, g in pairs], allow_unused=True
    )
    return {
        n: torch.zeros_like(leaf) if g is None else g
        for (n, leaf), g in zip(leaves.items(), found, strict=True)
    }


def _zeros(leaves: Mapping[int, Any]) -> dict[int, Any]:
    import torch

    return {n: torch.zeros_like(leaf) for n, leaf in leaves.items()}


def _is_slope(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any], found: Mapping[int, Any]
) -> bool:
    """True if the gradients agree with finite differences along random directions."""
    return all(_is_slope_along(subject, args, cotangents, found, s) for s in _DIRECTIONS)


def _is_slope_along(
    subject: Subject,
    args: Sequence[Any],
    cotangents: Sequence[Any],
    found: Mapping[int, Any],
    seed: int,
) -> bool:
    direction = {n: random_like(args[n], seed + n) * _step_lengths(args[n]) for n in found}
    parts = [found[n].double() * v.double() for n, v in direction.items()]
    along = sum(float(p.sum()) for p in parts)
    size = max(sum(float(p.abs().sum()) for p in parts), 1e-2)
    told, doubt = slope(subject, args, cotangents, direction)
    if not isfinite(told) or not isfinite(along) or doubt > 0.1 * max(size, abs(told)):
        return True  # the differences are unreliable here
    return abs(along - told) <= max(3 * doubt, 1e-3 * max(size, abs(told)))


def _step_lengths(tensor: Any) -> Any:
    """Return step lengths for the elements: their own size, or the mean of the tensor."""
    import torch

    usual = float(tensor.detach().double().abs().mean()) if tensor.numel() else 1.0
    return torch.clamp(tensor.detach().abs(), min=0.1 * usual if usual else 1.0)


def _weighted_outputs(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> float:
    import torch

    with torch.no_grad():
        outputs = subject.plain([a.detach().clone() if is_float(a) else a for a in args])
    return sum(
        float((o.detach().double() * g.double()).sum())
        for o, g in zip(outputs, cotangents, strict=False)
        if g is not None
    )


def slope(
    subject: Subject,
    args: Sequence[Any],
    cotangents: Sequence[Any],
    direction: Mapping[int, Any],
    step: float | None = None,
) -> tuple[float, float]:
    """Return d/ds of the outputs times cotangents along a direction, and an error bound.

        f'(0) = (8·(f(h) − f(−h)) − (f(2h) − f(−2h))) / 12h + O(h⁴)

    The bound is the difference of two step sizes, plus the rounding of the forward over h.
    """
    rounding = 2.0 ** -{64: 52, 32: 23, 16: 8, 8: 3}[subject.bits]
    h = rounding**0.2 if step is None else step

    def at(s: float) -> float:
        moved = [
            (a.double() + s * direction[n].double()).to(a.dtype) if n in direction else a
            for n, a in enumerate(args)
        ]
        with subject.moved(args, moved):
            return _weighted_outputs(subject, moved, cotangents)

    known = {s: at(s * h) for s in (-2, -1, -0.5, 0.5, 1, 2)}

    def between(s: float) -> float:
        return (8 * (known[s] - known[-s]) - (known[2 * s] - known[-2 * s])) / (12 * s * h)

    return between(0.5), abs(between(0.5) - between(1)) + 4 * rounding * abs(known[1]) / h


def differences(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[dict[int, Any], float]:
    """Return gradients by finite differences of the forward; nan where the steps disagree.

    In a large tensor only some elements are computed, and the others are nan.
    """
    import torch

    found, most = {}, 0.0
    wanted = subject.wanted(args)
    count = max(8, _MOST_DIFFERENCES // max(1, len(wanted)))
    for n in wanted:
        arg = args[n]
        made = torch.full((arg.numel(),), torch.nan, dtype=torch.float64)
        unit = _step_lengths(arg).reshape(-1).double().cpu()
        order = torch.randperm(arg.numel(), generator=torch.Generator().manual_seed(3))
        told = {}
        for place in order[:count].tolist():
            one = torch.zeros_like(unit)
            one[place] = unit[place]
            direction = {n: one.reshape(arg.shape).to(arg.device)}
            value, doubt = slope(subject, args, cotangents, direction)
            told[place] = value / float(unit[place]), doubt / float(unit[place])
        largest = max([abs(v) for v, _ in told.values() if isfinite(v)], default=0.0)
        largest = max(largest, 1e-2)
        for place, (value, doubt) in told.items():
            if doubt <= _DOUBTED * largest:
                made[place] = value
                most = max(most, doubt / largest)
        found[n] = made.reshape(arg.shape).to(arg.device)
    return found, most


def check_reference(subject: Subject, args: Sequence[Any]) -> None:
    """Raise a DeriveError if the reference computes other outputs than the forward."""
    import torch

    if subject.reference is None:
        return
    own, said = subject.own(args), subject.plain(args)
    for n, (a, b) in enumerate(zip(own, said, strict=False)):
        if is_float(a) and not (
            a.shape == b.shape and torch.allclose(a.double(), b.double(), 1e-3, 1e-3)
        ):
            raise DeriveError(
                f"{subject.name} cannot be judged: output {n} of its forward differs from "
                "that of reference= for the same inputs; correct the wrong one"
            )

"""Check tensors with unusual strides, and one tensor passed as two inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from derive.check.check import NotApplicable
from derive.check.invoke import (
    Function,
    array,
    called,
    cotangents_of,
    differentiable,
    inputs_of,
    pulled_through,
    tensors_of,
    unlike,
)
from derive.check.samples import Sample, sample
from derive.errors import VerificationError
from derive.notation.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


def strides(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that strides and offsets of inputs and cotangents do not matter."""
    import torch

    dense = tensors_of(made)
    views = {name: None if t is None else strided_view(t) for name, t in dense.items()}
    ours = called(function, made, list(views.values()))
    plain = called(function, made, list(dense.values()))
    found = [
        unlike(name, array(got), array(want), slack)
        for name, got, want in zip(made.outputs, ours, plain, strict=True)
    ]
    pairs = [(a, b) for a, b in zip(ours, plain, strict=True) if b.requires_grad]
    names = inputs_of(dense)
    if not pairs or not names:
        return "; ".join(filter(None, found))
    leaves = [[t for t in each.values() if t is not None and t.requires_grad] for each in
              (views, dense)]  # fmt: skip
    cotangents = zip(made.outputs, plain, strict=True)
    given = cotangents_of(made)
    full = [torch.from_numpy(given[name]) for name, o in cotangents if o.requires_grad]
    ones = [torch.ones((), dtype=o.dtype).expand(o.shape) for _, o in pairs]
    for strange, usual in (
        ([strided_view(c) for c in full], full),
        (ones, [o.contiguous() for o in ones]),
    ):
        grads, wants = (
            torch.autograd.grad(
                [pair[n] for pair in pairs],
                leaves[n],
                cots,
                retain_graph=True,
                materialize_grads=True,
            )
            for n, cots in enumerate((strange, usual))
        )
        for name, got, want in zip(names, grads, wants, strict=True):
            found.append(unlike(f"grad_{name}", array(got), array(want), slack))
    return "; ".join(filter(None, found))


def strided_view(t: Tensor) -> Tensor:
    """Return a view with the same values, transposed and with stride 2 and offset 1."""
    wide = t.new_zeros((*reversed(t.shape), 2))
    backwards = tuple(reversed(range(t.dim())))
    wide[..., 1] = t.detach().permute(backwards)
    return wide[..., 1].permute(backwards).requires_grad_(t.requires_grad)


def twice(op: Operation, function: Function, made: Sample, slack: float = 0.0) -> str:
    """Check that a tensor passed as two inputs gets the sum of both gradients."""
    differentiable(function, made)
    found = []
    for one, other, subject in alike(op, made):
        separate = tensors_of(subject)
        wants = _sample_gradients(function, subject, separate)
        shared = tensors_of(subject)
        shared[other] = shared[one]
        got = _sample_gradients(function, subject, shared)[one]
        want = array(wants[one]) + array(wants[other])
        text = unlike(f"grad_{one}, given as {other} too", array(got), want, slack)
        found.append(text)
    return "; ".join(filter(None, found))


def _sample_gradients(
    function: Function, made: Sample, tensors: dict[str, Tensor | None]
) -> dict[str, Tensor]:
    outputs = called(function, made, list(tensors.values()))
    return pulled_through(outputs, made, tensors, cotangents_of(made))


def alike(op: Operation, made: Sample) -> Iterator[tuple[str, str, Sample]]:
    """Yield two inputs of equal shape, and a sample of equal extents where they share values."""
    if len(inputs_of(tensors_of(made))) < 2:
        raise NotApplicable("one input is of floating point")
    try:
        square = sample(op, replace(made.case, alike=True), made.seed)
    except VerificationError as why:
        raise NotApplicable(f"no sample has equal extents: {why}") from None
    names = inputs_of(tensors_of(square))
    pairs = [
        (a, b)
        for a, b in combinations(names, 2)
        if _sample_shape(square, a) == _sample_shape(square, b)
    ]
    if not pairs:
        raise NotApplicable("no two inputs of floating point can have one shape")
    for one, other in pairs:
        values = square.tensors[one]
        yield one, other, replace(square, tensors={**square.tensors, other: values})


def _sample_shape(made: Sample, name: str) -> tuple[int, ...]:
    values = made.tensors[name]
    return () if values is None else values.shape

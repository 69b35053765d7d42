"""Points of an index grid: scattering values back, and reductions over axes.

Used by `derive.check.grid`; all of it is differentiable torch code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from derive.algebra.expr import Index

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from derive.algebra.interpret import Extents


class GridScope:
    """The points at which an expression is evaluated, and the value of each index there.

    ``shape`` is the shape of the points: the sizes of the indices, or a single axis after a mask
    was applied. ``at`` has the positions of each index, one tensor per axis of a group, which
    broadcast to the shape. Bound indices are prepended as leading axes.
    """

    def __init__(self, shape: tuple[int, ...], at: Mapping[Index, tuple[Tensor, ...]]) -> None:
        self.shape = shape
        self.at = at

    def within(self, indices: Sequence[Index], sizes: Extents, device: torch.device) -> GridScope:
        """Prepend the indices as leading axes, row-major."""
        import torch

        spans = [digits(sizes[i.extent]) for i in indices]
        shape = (*(n for span in spans for n in span), *self.shape)
        at = dict(self.at)
        axis = 0
        for index, span in zip(indices, spans, strict=True):
            places = []
            for n in span:
                axis += 1
                ones = [1] * (len(shape) - axis)
                places.append(torch.arange(n, device=device).reshape(n, *ones))
            at[index] = tuple(places)
        return GridScope(shape, at)

    def taken(self, mask: Tensor) -> GridScope:
        """Select the points where the mask holds, as one axis."""
        at = {
            index: tuple(place.expand(self.shape)[mask] for place in places)
            for index, places in self.at.items()
        }
        return GridScope((int(mask.sum()),), at)


def digits(size: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the size of each axis of an index or group."""
    return size if isinstance(size, tuple) else (size,)


def spread(onto: Tensor, mask: Tensor, points: Tensor) -> Tensor:
    """Scatter the points into ``onto`` where the mask holds."""
    return onto.masked_scatter(mask, points.expand(int(mask.sum())).to(onto.dtype))


def reduced(
    kind: str, points: Tensor, mask: Tensor | None, shape: tuple[int, ...], rank: int
) -> Tensor:
    """Reduce all but the last ``rank`` axes of ``shape``, where the mask holds.

    With a mask, ``points`` are the values where it holds, in order. Several axes are reduced as
    one: the first winner is the first in row-major order.
    """
    import torch

    count, rest = math.prod(shape[: len(shape) - rank]), shape[len(shape) - rank :]
    if count == 0:
        empty = REDUCTIONS[kind].of_nothing
        whole = not points.is_floating_point() and math.isfinite(empty)
        return torch.full(rest, empty, dtype=points.dtype if whole else None, device=points.device)
    if mask is None:
        return REDUCTIONS[kind].over(points.expand(shape).reshape(count, *rest), None)
    fill = torch.full(shape, _neutral(kind, points.dtype), dtype=points.dtype, device=mask.device)
    values, taken = spread(fill, mask, points), mask.reshape(count, *rest)
    return REDUCTIONS[kind].over(values.reshape(count, *rest), taken)


def _neutral(kind: str, dtype: torch.dtype) -> float | bool:
    import torch

    value = REDUCTIONS[kind].neutral
    if dtype.is_floating_point or math.isfinite(value):
        return value
    return torch.iinfo(dtype).max if value > 0 else torch.iinfo(dtype).min


Taken: TypeAlias = "Tensor | None"


def _winner_position(sign: int) -> Callable[[Tensor, Taken], Tensor]:
    """Return argmax of sign*value: the first winner, or the first nan; 0 for no elements."""

    def winner(values: Tensor, taken: Taken) -> Tensor:
        best = values.detach()
        best = best.amax(0) if sign > 0 else best.amin(0)
        wins = (values == best) | (values != values)
        if taken is not None:
            wins = wins & taken
        return wins.long().argmax(0)

    return winner


def _first_winner(sign: int) -> Callable[[Tensor, Taken], Tensor]:
    """Return the maximum of sign*value, with the gradient to the first winner alone."""
    winner = _winner_position(sign)

    def first(values: Tensor, taken: Taken) -> Tensor:
        return values.gather(0, winner(values, taken).unsqueeze(0)).squeeze(0)

    return first


def _tied_extremum(name: str) -> Callable[[Tensor, Taken], Tensor]:
    """Return torch.amax or amin, which share the gradient among tied winners."""

    def shared(values: Tensor, taken: Taken) -> Tensor:
        import torch

        if taken is None:
            made: Tensor = getattr(torch, name)(values, 0)
            return made
        n = values[0].numel()
        place = torch.arange(n, device=values.device).reshape(values.shape[1:])
        # The start value counts as a winner if it ties with one; nan never ties.
        start = math.nan if values.is_floating_point() else 0
        made = torch.full((n,), start, dtype=values.dtype, device=values.device).scatter_reduce(
            0, place.expand(values.shape)[taken], values[taken], name, include_self=False
        )
        made = made.reshape(values.shape[1:])
        return torch.where(taken.any(0), made, _neutral(name, values.dtype))

    return shared


def _mean(values: Tensor, taken: Taken) -> Tensor:
    return values.mean(0) if taken is None else values.sum(0) / taken.sum(0)


def _norm(values: Tensor, taken: Taken) -> Tensor:
    """Return torch's norm, whose gradient is 0 where all elements are 0."""
    import torch

    made: Tensor = torch.linalg.vector_norm(values, dim=0)
    return made


class GridReduction(NamedTuple):
    """A reduction: its value for no elements, its neutral element, and the function over axis 0."""

    of_nothing: float | bool
    neutral: float | bool
    over: Callable[[Tensor, Taken], Tensor]


_INF = math.inf

REDUCTIONS: Mapping[str, GridReduction] = {
    "sum": GridReduction(0, 0, lambda values, taken: values.sum(0)),
    "prod": GridReduction(1, 1, lambda values, taken: values.prod(0)),
    "mean": GridReduction(math.nan, 0, _mean),
    "max": GridReduction(-_INF, -_INF, _first_winner(1)),
    "min": GridReduction(_INF, _INF, _first_winner(-1)),
    "amax": GridReduction(-_INF, -_INF, _tied_extremum("amax")),
    "amin": GridReduction(_INF, _INF, _tied_extremum("amin")),
    "argmax": GridReduction(0, -_INF, _winner_position(1)),
    "argmin": GridReduction(0, _INF, _winner_position(-1)),
    "logsumexp": GridReduction(-_INF, -_INF, lambda values, taken: values.logsumexp(0)),
    "norm2": GridReduction(0, 0, _norm),
    "any": GridReduction(False, False, lambda values, taken: values.any(0)),
    "all": GridReduction(True, True, lambda values, taken: values.all(0)),
}
"""Masked-out values are neutral elements already."""

"""Points of a grid of indices, values put back in their places, and reductions over axes.

The pieces of `derive.check.grid`; torch alone, differentiable.
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
    """The points at which an expression is evaluated, and where each index is at them.

    ``shape`` is that of the points: the sizes of the indices, or their number where a condition
    has taken some. ``at`` has the positions of an index, a tensor for each axis of a group, which
    broadcast to the shape. Bound indices come as axes in front, which broadcasting aligns.
    """

    def __init__(self, shape: tuple[int, ...], at: Mapping[Index, tuple[Tensor, ...]]) -> None:
        self.shape = shape
        self.at = at

    def within(self, indices: Sequence[Index], sizes: Extents, device: torch.device) -> GridScope:
        """The points with every value of the indices, row-major in front."""
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
        """The points where the mask holds, as one axis."""
        at = {
            index: tuple(place.expand(self.shape)[mask] for place in places)
            for index, places in self.at.items()
        }
        return GridScope((int(mask.sum()),), at)


def digits(size: int | tuple[int, ...]) -> tuple[int, ...]:
    """The size of each axis of an index or group."""
    return size if isinstance(size, tuple) else (size,)


def spread(onto: Tensor, mask: Tensor, points: Tensor) -> Tensor:
    """``onto`` with the points in their places, those where the mask holds."""
    return onto.masked_scatter(mask, points.expand(int(mask.sum())).to(onto.dtype))


def reduced(
    kind: str, points: Tensor, mask: Tensor | None, shape: tuple[int, ...], rank: int
) -> Tensor:
    """The values over all but the last ``rank`` axes of ``shape``, where the mask holds.

    With a mask ``points`` are the values where it holds, in order. Several axes are one: the
    first winner is the first in row-major order.
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


def _winner(sign: int) -> Callable[[Tensor, Taken], Tensor]:
    """The first place of the largest sign*value; the first nan before all, 0 of nothing."""

    def winner(values: Tensor, taken: Taken) -> Tensor:
        best = values.detach()
        best = best.amax(0) if sign > 0 else best.amin(0)
        wins = (values == best) | (values != values)
        if taken is not None:
            wins = wins & taken
        return wins.long().argmax(0)

    return winner


def _first(sign: int) -> Callable[[Tensor, Taken], Tensor]:
    """The value at the first winner, which gets the gradient."""
    winner = _winner(sign)

    def first(values: Tensor, taken: Taken) -> Tensor:
        return values.gather(0, winner(values, taken).unsqueeze(0)).squeeze(0)

    return first


def _shared(name: str) -> Callable[[Tensor, Taken], Tensor]:
    """torch.amax or amin, which share the gradient among the winners that are taken."""

    def shared(values: Tensor, taken: Taken) -> Tensor:
        import torch

        if taken is None:
            made: Tensor = getattr(torch, name)(values, 0)
            return made
        n = values[0].numel()
        place = torch.arange(n, device=values.device).reshape(values.shape[1:])
        # What it starts with counts as a winner if it is equal to one, and nan is equal to none.
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
    """torch's own, whose slope is 0 where all is 0."""
    import torch

    made: Tensor = torch.linalg.vector_norm(values, dim=0)
    return made


class GridReduction(NamedTuple):
    """The reduction of nothing, what may stand where nothing is taken, and that over axis 0."""

    of_nothing: float | bool
    neutral: float | bool
    over: Callable[[Tensor, Taken], Tensor]


_INF = math.inf

REDUCTIONS: Mapping[str, GridReduction] = {
    "sum": GridReduction(0, 0, lambda values, taken: values.sum(0)),
    "prod": GridReduction(1, 1, lambda values, taken: values.prod(0)),
    "mean": GridReduction(math.nan, 0, _mean),
    "max": GridReduction(-_INF, -_INF, _first(1)),
    "min": GridReduction(_INF, _INF, _first(-1)),
    "amax": GridReduction(-_INF, -_INF, _shared("amax")),
    "amin": GridReduction(_INF, _INF, _shared("amin")),
    "argmax": GridReduction(0, -_INF, _winner(1)),
    "argmin": GridReduction(0, _INF, _winner(-1)),
    "logsumexp": GridReduction(-_INF, -_INF, lambda values, taken: values.logsumexp(0)),
    "norm2": GridReduction(0, 0, _norm),
    "any": GridReduction(False, False, lambda values, taken: values.any(0)),
    "all": GridReduction(True, True, lambda values, taken: values.all(0)),
}
"""Values that are not taken are neutral already."""

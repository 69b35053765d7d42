"""Reads and sums at positions that a tensor says."""

import torch
from kit.race.row import Draw, Row, of_torch
from torch import Tensor


def words(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.below(rows, 2 * rows), draw.normal(rows, columns)]


def places(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.normal(rows, columns), draw.below(columns, rows, columns)]


def elements(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.normal(rows, columns), draw.below(rows, rows)]


def segments(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.normal(rows, columns), draw.below(4, rows)]


def bags(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.below(rows, rows, 4), draw.normal(rows, columns)]


def of_segments(x: Tensor, ids: Tensor) -> Tensor:
    return x.new_zeros(4, x.shape[1]).index_add(0, ids, x)


def mean_of_segments(x: Tensor, ids: Tensor) -> Tensor:
    return of_segments(x, ids) / torch.bincount(ids, minlength=4)[:, None]


def max_of_segments(x: Tensor, ids: Tensor) -> Tensor:
    least = x.new_full((4, x.shape[1]), -torch.inf)
    return least.scatter_reduce(0, ids[:, None].expand_as(x), x, "amax")


ROWS = (
    of_torch("embedding", words, lambda index, weight: weight[index]),
    of_torch("gather", places, None, {"dim": 1}),
    of_torch("index_select", elements, lambda x, n: x[n], {"dim": 0}),
    of_torch("take_along_dim", places, None, {"dim": 1}),
    of_torch("take", lambda d, *s: [d.normal(s[0] * s[1]), d.below(s[0] * s[1], *s)]),
    of_torch(
        "index_add", lambda d, *s: [*elements(d, *s), d.normal(*s)], None, {"dim": 0, "alpha": 0.5}
    ),
    of_torch("scatter_add", lambda d, *s: [*places(d, *s), d.normal(*s)], None, {"dim": 1}),
    of_torch("embedding_bag", bags, lambda index, weight: weight[index].mean(1)),
    Row("segment_sum", segments, None, of_segments, {"num_segments": 4}),
    Row("segment_mean", segments, None, mean_of_segments, {"num_segments": 4}),
    Row("segment_max", segments, None, max_of_segments, {"num_segments": 4}),
)

"""Reads and sums at positions that a tensor says."""

import torch
from kit.race.row import Draw, Row
from torch import Tensor
from torch.nn import functional as F


def words(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.below(rows, 2 * rows), draw.normal(rows, columns)]


def places(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.normal(rows, columns), draw.below(columns, rows, columns)]


def segments(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.normal(rows, columns), draw.below(4, rows)]


def bags(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.below(rows, rows, 4), draw.normal(rows, columns)]


def of_segments(x: Tensor, ids: Tensor) -> Tensor:
    return x.new_zeros(4, x.shape[1]).index_add(0, ids, x)


ROWS = (
    Row("embedding", words, F.embedding, lambda index, weight: weight[index]),
    Row("gather", places, lambda x, n: x.gather(1, n), given={"dim": 1}),
    Row(
        "index_select",
        lambda d, *s: [d.normal(*s), d.below(s[0], s[0])],
        lambda x, n: x.index_select(0, n),
        lambda x, n: x[n],
        {"dim": 0},
    ),
    Row("take_along_dim", places, lambda x, n: x.take_along_dim(n, 1), given={"dim": 1}),
    Row("take", lambda d, *s: [d.normal(s[0] * s[1]), d.below(s[0] * s[1], *s)], torch.take),
    Row(
        "index_add",
        lambda d, *s: [d.normal(*s), d.below(s[0], s[0]), d.normal(*s)],
        lambda x, n, y: x.index_add(0, n, y, alpha=0.5),
        given={"dim": 0, "alpha": 0.5},
    ),
    Row(
        "scatter_add",
        lambda d, *s: [d.normal(*s), d.below(s[1], *s), d.normal(*s)],
        lambda x, n, y: x.scatter_add(1, n, y),
        given={"dim": 1},
    ),
    Row("embedding_bag", bags, F.embedding_bag, lambda index, weight: weight[index].mean(1)),
    Row("segment_sum", segments, composite=of_segments, given={"num_segments": 4}),
    Row(
        "segment_mean",
        segments,
        given={"num_segments": 4},
        composite=lambda x, n: of_segments(x, n) / torch.bincount(n, minlength=4)[:, None],
    ),
    Row(
        "segment_max",
        segments,
        given={"num_segments": 4},
        composite=lambda x, n: x.new_full((4, x.shape[1]), -torch.inf).scatter_reduce(
            0, n[:, None].expand_as(x), x, "amax"
        ),
    ),
)

"""Reads and sums at positions that a tensor says."""

from __future__ import annotations

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
    Row("segment_sum", segments, composite=of_segments, given={"num_segments": 4}),
    Row(
        "segment_mean",
        segments,
        given={"num_segments": 4},
        composite=lambda x, n: of_segments(x, n) / torch.bincount(n, minlength=4)[:, None],
    ),
)

"""Reading, joining and reshaping axes."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from kit.cases.case import Case, distinct, positions, uniform
from torch.nn import functional as F

OWN: dict[str, Callable[..., Any]] = {
    "embedding": F.embedding,
    "flatten": lambda x: x.flatten(-2),
    "unflatten": lambda x, inner: x.unflatten(-1, (-1, inner)),
    "concat": lambda A, B, dim=0: torch.concat((A, B), dim),
    "gather": lambda x, index, dim: x.gather(dim, index),
    "index_select": lambda x, index, dim: x.index_select(dim, index),
    "take_along_dim": lambda x, indices, dim: torch.take_along_dim(x, indices, dim),
    "select": lambda x, dim, index: x.select(dim, index),
    "index_add": lambda x, index, source, dim, alpha=1: x.index_add(
        dim, index, source, alpha=alpha
    ),
    "scatter_add": lambda x, index, src, dim: x.scatter_add(dim, index, src),
    "segment_sum": lambda x, ids, num_segments: of_segments(x, ids, num_segments, torch.sum),
    "segment_mean": lambda x, ids, num_segments: of_segments(x, ids, num_segments, torch.mean),
    "segment_max": lambda x, ids, num_segments: of_segments(x, ids, num_segments, torch.amax),
    "segment_softmax": lambda x, ids, num_segments: shares(x, ids, num_segments),
    "embedding_bag": lambda index, weight, mode="mean": F.embedding_bag(index, weight, mode=mode),
    "linear_interpolation": lambda x, points, values: interpolated(x, points, values),
    "one_hot_embedding": lambda index, weight: (
        F.one_hot(index, len(weight)).to(weight.dtype) @ weight
    ),
    "shift": lambda x, shifts=1, dim=-1: shifted(x, shifts, dim),
    "roll": lambda x, shifts=1, dim=-1: torch.roll(x, shifts, dim),
    "flip": lambda x, dim: torch.flip(x, (dim,)),
    "masked_fill": lambda x, mask, value: x.masked_fill(mask, value),
    "pad": lambda x, left, right, value=0, dim=-1: padded(x, left, right, value, dim),
    "stack": lambda A, B: torch.stack((A, B)),
    "expand": lambda x, length: x.expand(length, *x.shape),
    "repeat_interleave": lambda x, repeats, dim: x.repeat_interleave(repeats, dim),
    "tile": lambda x, repeats, dim: torch.concat((x,) * repeats, dim),
    "unfold": lambda x, dimension, length, step: x.unfold(dimension, length, step),
    "im2col": lambda x, kernel_height, kernel_width, **given: F.unfold(
        x, (kernel_height, kernel_width), **given
    ),
    "pixel_shuffle": F.pixel_shuffle,
    "pixel_unshuffle": F.pixel_unshuffle,
    "channel_shuffle": lambda x, groups: shuffled(x, groups),
    "toeplitz": lambda weight, rows, columns: weight[
        torch.arange(rows)[:, None] - torch.arange(columns) + columns - 1
    ],
    "relative_shift": lambda x: relatively_shifted(x),
}


def of_segments(
    x: torch.Tensor, ids: torch.Tensor, count: int, reduce: Callable[..., torch.Tensor]
) -> torch.Tensor:
    return torch.stack([reduce(x[ids == g], 0) for g in range(count)])


def shares(x: torch.Tensor, ids: torch.Tensor, count: int) -> torch.Tensor:
    of_each = [(x.exp() * (ids == g).reshape(-1, *[1] * (x.dim() - 1))) for g in range(count)]
    return sum(e / e.sum(0) for e in of_each if e.any())


def padded(x: torch.Tensor, left: int, right: int, value: float, dim: int) -> torch.Tensor:
    """torch's own, of the last axis."""
    return F.pad(x.movedim(dim, -1), (left, right), value=value).movedim(-1, dim)


def shifted(x: torch.Tensor, shifts: int, dim: int) -> torch.Tensor:
    size = x.shape[dim]
    wide = padded(x, max(shifts, 0), max(-shifts, 0), 0, dim)
    return wide.narrow(dim, max(-shifts, 0), size)


def interpolated(x: torch.Tensor, points: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A sum of ramps, one from each inner point on."""
    slopes = values.diff() / points.diff()
    line = values[0] + slopes[0] * (x - points[0])
    return line + ((x.unsqueeze(-1) - points[1:-1]).relu() * slopes.diff()).sum(-1)


def relatively_shifted(x: torch.Tensor) -> torch.Tensor:
    rows = x.shape[-2]
    length = x.shape[-1] - rows + 1
    return torch.stack([x[..., i, rows - 1 - i : rows - 1 - i + length] for i in range(rows)], -2)


def label_of(shape: tuple[int, ...], dim: int | None = None) -> str:
    """Of one call of three axes at most: the typical one."""
    if len(shape) == 3 and dim in (None, 1):
        return "typical"
    return f"{list(shape)}" if dim is None else f"{list(shape)} dim={dim}"


def indexing() -> Iterator[Case]:
    for shape in ((), (7,), (2, 3)):
        yield Case(
            "embedding", f"{list(shape)}", [positions(*shape, below=5), uniform((5, 4), -1, 1)]
        )
    for batch in ((), (4,), (5, 4)):
        yield Case("flatten", f"{[*batch, 2, 3]}", [distinct((*batch, 2, 3))])
        yield Case("unflatten", f"{[*batch, 6]}", [distinct((*batch, 6))], {"inner": 3})
    for shape in ((5,), (3, 4), (2, 3, 5)):
        for dim in range(-len(shape), len(shape)):
            other = [n + 1 if k == dim % len(shape) else n for k, n in enumerate(shape)]
            yield Case(
                "concat",
                f"{list(shape)} {other} dim={dim}",
                [distinct(shape), distinct(tuple(other), 1)],
                {"dim": dim},
            )


AXES = (((5,), 0), ((3, 4), 0), ((3, 4), -1), ((2, 3, 5), 1), ((2, 3, 5), -1), ((2, 3, 4, 5), 1))
"""Shapes, and an axis of each."""


def by_position() -> Iterator[Case]:
    """The axis has 6 positions outside, and the shape's inside."""
    for shape, dim in AXES:
        wide = tuple(6 if n == dim % len(shape) else size for n, size in enumerate(shape))
        label, given = label_of(shape, dim), {"dim": dim}
        whole, some = positions(*shape, below=6), positions(shape[dim], below=6)
        for name in ("gather", "take_along_dim"):
            yield Case(name, label, [uniform(wide, -1, 1), whole], given)
        yield Case("index_select", label, [uniform(wide, -1, 1), some], given)
        yield Case(
            "scatter_add", label, [uniform(wide, -1, 1), whole, uniform(shape, -1, 1, 1)], given
        )
        for alpha in (1, -0.7) if label == "typical" else (1,):
            yield Case(
                "index_add",
                f"{label} alpha={alpha}",
                [uniform(wide, -1, 1), some, uniform(shape, -1, 1, 1)],
                {**given, "alpha": alpha},
            )
        for position in (0, 3) if label == "typical" else (4,):
            yield Case(
                "select", f"{label} position={position}", [uniform(wide, -1, 1)],
                {**given, "index": position},
            )  # fmt: skip
    knots = torch.tensor([-1.2, -0.5, 0.1, 0.4, 1.0, 1.3], dtype=torch.float64)
    for shape in ((), (4,), (2, 3, 5)):
        index = positions(*shape, below=7)
        yield Case("take", label_of(shape), [uniform((7,), -1, 1), index])
        yield Case(
            "linear_interpolation",
            label_of(shape),
            [uniform(shape, -2, 2), knots, uniform((6,), -1, 1, 2)],
        )
        yield Case("one_hot_embedding", label_of(shape), [index, uniform((7, 4), -1, 1)])
    for mode in ("mean", "sum", "max"):
        yield Case(
            "embedding_bag",
            f"typical {mode}",
            [positions(4, 3, below=6), distinct((6, 5))],
            {"mode": mode},
        )
    ids = torch.tensor([3, 0, 2, 2, 1, 3, 0])
    names = ("segment_sum", "segment_mean", "segment_max", "segment_softmax")
    for name, shape in product(names, ((), (5,), (2, 5))):
        yield Case(
            name,
            "typical" if len(shape) == 1 else f"{list(shape)}",
            [distinct((7, *shape)), ids],
            {"num_segments": 4},
        )


def moved() -> Iterator[Case]:
    for shape, dim in AXES:
        label, given = label_of(shape, dim), {"dim": dim}

        made = [distinct(shape)]

        yield Case("flip", label, made, given)
        for shifts in (0, 1, 2, -2, 7) if label == "typical" else (1,):
            shown = f"{label} shifts={shifts}"
            yield Case("shift", shown, made, {**given, "shifts": shifts})
            if 0 <= shifts <= shape[dim]:
                yield Case("roll", shown, made, {**given, "shifts": shifts})
        for name in ("repeat_interleave", "tile"):
            yield Case(name, label, made, {**given, "repeats": 6})
        yield Case("pad", label, made, {**given, "left": 1, "right": 7, "value": 0.5})
        if shape[dim] > 2:
            yield Case("unfold", label, made, {"dimension": dim, "length": 2, "step": 1})
            yield Case(
                "unfold", f"{label} step=2", made, {"dimension": dim, "length": 3, "step": 2}
            )


def chosen() -> Iterator[Case]:
    for shape in ((), (3, 4), (2, 3, 5)):
        mask = positions(*shape, below=2).bool()
        label = label_of(shape) if shape != (3, 4) else "(3, 4)"
        yield Case("where", label, [mask, distinct(shape), distinct(shape, 1)])
        yield Case("masked_fill", label, [distinct(shape), mask], {"value": -0.7})
        yield Case("stack", label, [distinct(shape), distinct(shape, 1)])
        yield Case("expand", label, [distinct(shape)], {"length": 6})


def rearranged() -> Iterator[Case]:
    for given in ({}, {"stride": 2}, {"dilation": 2}, {"stride": 3, "dilation": 2}):
        yield Case(
            "im2col",
            " ".join(("typical", *(f"{name}={value}" for name, value in given.items()))),
            [distinct((1, 4, 5, 6))],
            {"kernel_height": 3, "kernel_width": 2, **given},
        )
    for batch in ((), (7,), (1, 2)):
        yield Case(
            "pixel_shuffle",
            f"typical {list(batch)}",
            [distinct((*batch, 12, 5, 4))],
            {"upscale_factor": 2},
        )
        yield Case(
            "pixel_unshuffle",
            f"typical {list(batch)}",
            [distinct((*batch, 3, 10, 8))],
            {"downscale_factor": 2},
        )
    for shape, groups in (((2, 6, 5), 3), ((4, 6), 2), ((2, 6, 5, 7), 3)):
        yield Case("channel_shuffle", label_of(shape), [distinct(shape)], {"groups": groups})
    for rows, columns in ((3, 5), (5, 3), (1, 7)):
        yield Case(
            "toeplitz",
            "typical" if rows == 3 else f"{rows} rows",
            [distinct((7,))],
            {"rows": rows, "columns": columns},
        )
    for shape in ((3, 5), (2, 3, 7), (2, 4, 3, 5)):
        yield Case("relative_shift", label_of(shape), [distinct(shape)])


def shuffled(x: torch.Tensor, groups: int) -> torch.Tensor:
    """torch's own needs three axes."""
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)

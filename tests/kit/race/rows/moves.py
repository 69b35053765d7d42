"""Elements that only change their places: views, copies, what is cut, padded or joined."""

import torch
from kit.race.row import Draw, Row
from kit.race.rows.elementwise import normal, two
from torch import Tensor
from torch.nn import functional as F


def vector(draw: Draw, rows: int) -> list[Tensor | None]:
    return [draw.normal(rows)]


IMAGES = {"small": (2, 4, 8, 8), "large": (8, 16, 64, 64)}
"""Batch, channels, rows and columns."""

ROWS = (
    Row("roll", normal, lambda x: x.roll(3, -1), given={"shifts": 3}),
    Row("shift", normal, composite=lambda x: F.pad(x, (3, -3)), given={"shifts": 3}),
    Row(
        "pad",
        normal,
        lambda x: F.pad(x, (3, 5), value=0.5),
        given={"left": 3, "right": 5, "value": 0.5},
    ),
    Row("tril", normal, torch.tril),
    Row("triu", normal, torch.triu),
    Row("flip", normal, lambda x: x.flip(-1), given={"dim": -1}),
    Row(
        "unfold",
        normal,
        lambda x: x.unfold(-1, 5, 2),
        given={"dimension": -1, "length": 5, "step": 2},
        large=(512, 512),
    ),
    Row(
        "im2col",
        normal,
        lambda x: F.unfold(x, 3),
        given={"kernel_height": 3, "kernel_width": 3},
        **IMAGES,
    ),
    Row("diagonal", normal, torch.diagonal, huge=(4096, 4096)),
    Row("diag_embed", vector, torch.diag_embed, small=(8,), large=(1024,), huge=(4096,)),
    Row("transpose", normal, lambda x: x.mT),
    Row("select", normal, lambda x: x.select(1, 3), given={"dim": 1, "index": 3}),
    Row("flatten", normal, torch.flatten),
    Row("unflatten", normal, lambda x: x.unflatten(-1, (-1, 4)), given={"inner": 4}),
    Row("expand", normal, lambda x: x.expand(5, *x.shape), given={"length": 5}, large=(512, 512)),
    Row("tile", normal, lambda x: x.tile(1, 5), given={"repeats": 5, "dim": 1}, large=(512, 512)),
    Row(
        "repeat_interleave",
        normal,
        lambda x: x.repeat_interleave(5, 1),
        given={"repeats": 5, "dim": 1},
        large=(512, 512),
    ),
    Row("concat", two, lambda a, b: torch.cat((a, b), 1), given={"dim": 1}),
    Row("stack", two, lambda a, b: torch.stack((a, b))),
    Row(
        "pixel_shuffle",
        normal,
        lambda x: F.pixel_shuffle(x, 2),
        given={"upscale_factor": 2},
        **IMAGES,
    ),
    Row(
        "pixel_unshuffle",
        normal,
        lambda x: F.pixel_unshuffle(x, 2),
        given={"downscale_factor": 2},
        **IMAGES,
    ),
    Row(
        "channel_shuffle",
        normal,
        lambda x: torch.channel_shuffle(x, 2),
        given={"groups": 2},
        **IMAGES,
    ),
)

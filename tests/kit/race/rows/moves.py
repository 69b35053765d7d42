"""Elements that only change their places: views, copies, what is cut, padded or joined."""

import torch
from kit.race.row import Row, of_torch
from kit.race.rows.elementwise import normal, two
from torch.nn import functional as F

IMAGES = {"small": (2, 4, 8, 8), "large": (8, 16, 64, 64)}
"""Batch, channels, rows and columns."""

ROWS = (
    of_torch("roll", normal, None, {"shifts": 3}),
    Row("shift", normal, composite=lambda x: F.pad(x, (3, -3)), given={"shifts": 3}),
    of_torch("pad", normal, None, {"left": 3, "right": 5, "value": 0.5}),
    of_torch("tril", normal),
    of_torch("triu", normal),
    of_torch("flip", normal, None, {"dim": -1}),
    of_torch("unfold", normal, None, {"dimension": -1, "length": 5, "step": 2}, large=(512, 512)),
    of_torch("im2col", normal, None, {"kernel_height": 3, "kernel_width": 3}, **IMAGES),
    of_torch("diagonal", normal, huge=(4096, 4096)),
    of_torch("diag_embed", normal, large=(1024,), huge=(4096,)),
    Row("transpose", normal, lambda x: x.mT),
    of_torch("select", normal, None, {"dim": 1, "index": 3}),
    Row("flatten", normal, torch.flatten),
    of_torch("unflatten", normal, None, {"inner": 4}),
    of_torch("expand", normal, None, {"length": 5}, large=(512, 512)),
    Row("tile", normal, lambda x: x.tile(1, 5), None, {"repeats": 5, "dim": 1}, large=(512, 512)),
    of_torch("repeat_interleave", normal, None, {"repeats": 5, "dim": 1}, large=(512, 512)),
    of_torch("concat", two, None, {"dim": 1}),
    of_torch("stack", two),
    of_torch("pixel_shuffle", normal, None, {"upscale_factor": 2}, **IMAGES),
    of_torch("pixel_unshuffle", normal, None, {"downscale_factor": 2}, **IMAGES),
    Row(
        "channel_shuffle",
        normal,
        lambda x: torch.channel_shuffle(x, 2),
        None,
        {"groups": 2},
        **IMAGES,
    ),
)

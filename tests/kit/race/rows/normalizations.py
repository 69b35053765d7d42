"""Normalizations, with weight and bias."""

import torch
from kit.race.row import Draw, Row, of_torch
from kit.race.rows.elementwise import normal
from torch import Tensor
from torch.nn import functional as F

EPS = 1e-5


def of_features(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.normal(*shape), draw.between(0.5, 1.5, shape[-1]), draw.normal(shape[-1])]


def of_channels(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.normal(*shape), draw.between(0.5, 1.5, shape[1]), draw.normal(shape[1])]


def at_inference(draw: Draw, *shape: int) -> list[Tensor | None]:
    x, weight, bias = of_channels(draw, *shape)
    return [x, draw.normal(shape[1]), draw.between(0.5, 2, shape[1]), weight, bias]


def standard(x: Tensor, *axes: int) -> Tensor:
    mu = x.mean(axes, keepdim=True)
    return (x - mu) / torch.sqrt((x - mu).square().mean(axes, keepdim=True) + EPS)


def channels(weight: Tensor, bias: Tensor, xhat: Tensor) -> Tensor:
    return weight[:, None] * xhat + bias[:, None]


def group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    groups = standard(x.unflatten(1, (2, -1)), 2, 3)
    return channels(weight, bias, groups.flatten(1, 2))


def local_response(x: Tensor) -> Tensor:
    squares = F.pad(x.square(), (0, 0, 2, 2)).unfold(1, 5, 1).mean(-1)
    return x / (1 + 1e-4 * squares) ** 0.75


IMAGES = {"small": (2, 4, 8), "large": (16, 64, 1024)}
"""Batch, channels and positions."""

ROWS = (
    of_torch("layer_norm", of_features, lambda x, w, b: w * standard(x, -1) + b),
    of_torch(
        "rms_norm",
        lambda d, *s: of_features(d, *s)[:2],
        lambda x, w: w * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 2**-23),
    ),
    of_torch(
        "batch_norm", of_channels, lambda x, w, b: channels(w, b, standard(x, 0, 2)), **IMAGES
    ),
    of_torch(
        "batch_norm_inference",
        at_inference,
        lambda x, m, v, w, b: channels(w, b, (x - m[:, None]) / torch.sqrt(v + EPS)[:, None]),
        fixed=(1, 2),
        **IMAGES,
    ),
    of_torch("group_norm", of_channels, group_norm, {"num_groups": 2}, **IMAGES),
    of_torch(
        "instance_norm", of_channels, lambda x, w, b: channels(w, b, standard(x, 2)), **IMAGES
    ),
    of_torch("normalize", normal, lambda x: x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)),
    Row(
        "weight_norm",
        lambda d, *s: [d.normal(*s), d.between(0.5, 1.5, s[0])],
        lambda v, g: torch._weight_norm(v, g[:, None], 0),
        lambda v, g: g[:, None] * v / v.norm(dim=1, keepdim=True),
    ),
    of_torch("local_response_norm", normal, local_response, {"window": 5}, **IMAGES),
)

"""Reductions, softmaxes and scans along the last axis."""

from functools import partial

import torch
from kit.race.row import Draw, Function, Row
from kit.race.rows.elementwise import normal
from torch import Tensor
from torch.nn import functional as F


def near_one(draw: Draw, *shape: int) -> list[Tensor | None]:
    """Of which a long product is neither 0 nor infinite."""
    return [draw.between(0.9, 1.1, *shape)]


def softmax(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def logsumexp(x: Tensor) -> Tensor:
    most = x.amax(-1, keepdim=True)
    return torch.log(torch.exp(x - most).sum(-1)) + most.squeeze(-1)


def log_softmax(x: Tensor) -> Tensor:
    x = x - x.amax(-1, keepdim=True)
    return x - torch.log(torch.exp(x).sum(-1, keepdim=True))


def variance(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)).square().sum(-1) / (x.shape[-1] - 1)


def logcumsumexp(x: Tensor) -> Tensor:
    most = x.amax(-1, keepdim=True)
    return torch.log(torch.cumsum(torch.exp(x - most), -1)) + most


COMPOSITES: dict[str, Function | None] = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "var": variance,
    "std": lambda x: variance(x).sqrt(),
    "var_mean": lambda x: (variance(x), x.mean(-1)),
    "sum": None,
    "mean": lambda x: x.sum(-1) / x.shape[-1],
    "amax": None,
    "max": None,
    "amin": None,
    "min": None,
    "cumsum": None,
    "logcumsumexp": logcumsumexp,
}
ROWS = (
    Row("trace", normal, torch.trace, huge=(4096, 4096)),
    *(
        Row(name, normal, partial(getattr(torch, name), dim=-1), composite, {"dim": -1})
        for name, composite in COMPOSITES.items()
    ),
    Row("softmin", normal, lambda x: F.softmin(x, -1), lambda x: softmax(-x), {"dim": -1}),
    Row(
        "l1_norm",
        normal,
        lambda x: torch.linalg.vector_norm(x, 1, -1),
        lambda x: x.abs().sum(-1),
        {"dim": -1},
    ),
    Row(
        "l2_norm",
        normal,
        lambda x: torch.linalg.vector_norm(x, 2, -1),
        lambda x: x.square().sum(-1).sqrt(),
        {"dim": -1},
    ),
    Row(
        "vector_norm",
        normal,
        lambda x: torch.linalg.vector_norm(x, 3, -1),
        lambda x: x.abs().pow(3).sum(-1).pow(1 / 3),
        {"dim": -1, "ord": 3},
    ),
    Row(
        "prod",
        near_one,
        lambda x: x.prod(-1),
        lambda x: torch.exp(torch.log(x).sum(-1)),
        {"dim": -1},
    ),
    Row(
        "cumprod",
        near_one,
        lambda x: x.cumprod(-1),
        lambda x: torch.exp(torch.cumsum(torch.log(x), -1)),
        {"dim": -1},
    ),
)

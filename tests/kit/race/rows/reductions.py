"""Reductions, softmaxes and scans along the last axis."""

import torch
from kit.race.row import Draw, Function, of_torch
from kit.race.rows.elementwise import normal
from torch import Tensor


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


LAST = {"dim": -1}
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
    "softmin": lambda x: softmax(-x),
}
ROWS = (
    of_torch("trace", normal, huge=(4096, 4096)),
    *(of_torch(name, normal, composite, LAST) for name, composite in COMPOSITES.items()),
    *(
        of_torch(name, normal, composite, {"keepdim": False, **given})
        for name, composite, given in (
            ("l1_norm", lambda x: x.abs().sum(-1), LAST),
            ("l2_norm", lambda x: x.square().sum(-1).sqrt(), LAST),
            ("vector_norm", lambda x: x.abs().pow(3).sum(-1).pow(1 / 3), {"ord": 3, **LAST}),
        )
    ),
    of_torch("prod", near_one, lambda x: torch.exp(torch.log(x).sum(-1)), LAST),
    of_torch("cumprod", near_one, lambda x: torch.exp(torch.cumsum(torch.log(x), -1)), LAST),
)

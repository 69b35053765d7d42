"""Normalizations of a batch, a layer, a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch.nn import functional as F

from cases.case import Case, labels_of, uniform


def batch_norm_of_torch(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float = 1e-5,
    correction: int = 0,
) -> torch.Tensor:
    """torch's own divides by the number of values; with torch.var_mean otherwise."""
    if correction == 0:
        return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    batch = [n for n in range(x.dim()) if n != 1]
    var, mean = torch.var_mean(x, batch, correction=correction, keepdim=True)
    shape = mean.shape
    y = (x - mean) / torch.sqrt(var + eps)
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


OWN: dict[str, Callable[..., Any]] = {
    "batch_norm": batch_norm_of_torch,
    "batch_norm_inference": lambda x, mu, var, w, b, eps=1e-5: F.batch_norm(
        x, mu, var, w, b, False, 0.0, eps
    ),
    "layer_norm": lambda x, w, b, eps=1e-5: F.layer_norm(x, w.shape, w, b, eps),
    "rms_norm": lambda x, w, eps=2**-23: F.rms_norm(x, w.shape, w, eps),
}


def normalizations() -> Iterator[Case]:
    for shape, correction, affine in product(((5, 3), (3, 2, 4), (2, 3, 1, 4)), (0, 1), (0, 1, 2)):
        weight = uniform((shape[1],), 0.5, 1.5, 1) if affine else None
        bias = uniform((shape[1],), -1, 1, 2) if affine == 2 else None
        label = f"{list(shape)}{labels_of({'weight': bool(affine), 'bias': affine == 2})}"
        yield Case(
            "batch_norm",
            f"{label} correction={correction}",
            lambda s=shape, w=weight, b=bias: [uniform(s, -1, 1), w, b],
            {"eps": 0.1, "correction": correction},
            OWN["batch_norm"],
        )
        if correction == 0:
            yield Case(
                "batch_norm_inference",
                label,
                lambda s=shape, w=weight, b=bias: [
                    *(uniform(s, -1, 1), uniform((s[1],), -1, 1, 3)),
                    *(uniform((s[1],), 0.5, 1.5, 4), w, b),
                ],
                {"eps": 0.1},
                OWN["batch_norm_inference"],
                frozenset({1, 2}),
            )
    for batch, axes in product(((), (2,), (2, 3)), ((5,), (4, 5))):
        label = f"{[*batch, *axes]} over {list(axes)}"
        for biased in (False, True):
            yield Case(
                "layer_norm",
                f"{label} bias={biased}",
                lambda s=batch, t=axes, given=biased: [
                    *(uniform((*s, *t), -1, 1), uniform(t, 0.5, 1.5, 1)),
                    uniform(t, -1, 1, 2) if given else None,
                ],
                {"eps": 0.1} if biased else {},
                OWN["layer_norm"],
            )
        for eps in (0.1, None):
            yield Case(
                "rms_norm",
                f"{label} eps={eps}",
                lambda s=batch, t=axes: [uniform((*s, *t), -1, 1), uniform(t, 0.5, 1.5, 1)],
                {} if eps is None else {"eps": eps},
                OWN["rms_norm"],
            )

"""Normalizations of a batch, a layer, a group."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from kit.cases.case import Case, labels_of, uniform
from torch.nn import functional as F


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
    "softmin": F.softmin,
    "instance_norm": lambda x, w, b, eps=1e-5: F.instance_norm(x, weight=w, bias=b, eps=eps),
    "group_norm": lambda x, w, b, num_groups, eps=1e-5: F.group_norm(x, num_groups, w, b, eps),
    "normalize": F.normalize,
    "weight_norm": lambda v, g, dim=0: v * in_place(g / norm_but(v, dim), v, dim),
    "local_response_norm": lambda x, window, **given: F.local_response_norm(x, window, **given),
}


def norm_but(v: torch.Tensor, dim: int) -> torch.Tensor:
    """The norm over all axes but one."""
    return v.movedim(dim, 0).flatten(1).norm(dim=1) if v.dim() > 1 else v.abs()


def in_place(x: torch.Tensor, like: torch.Tensor, dim: int) -> torch.Tensor:
    """One axis, where it is in another tensor."""
    return x.reshape([-1 if n == dim % like.dim() else 1 for n in range(like.dim())])


def normalizations() -> Iterator[Case]:
    for shape, correction, affine in product(((5, 3), (3, 2, 4), (2, 3, 1, 4)), (0, 1), (0, 1, 2)):
        weight = uniform((shape[1],), 0.5, 1.5, 1) if affine else None
        bias = uniform((shape[1],), -1, 1, 2) if affine == 2 else None
        label = f"{list(shape)}{labels_of({'weight': bool(affine), 'bias': affine == 2})}"
        yield Case(
            "batch_norm",
            f"{label} correction={correction}",
            [uniform(shape, -1, 1), weight, bias],
            {"eps": 0.1, "correction": correction},
        )
        if correction == 0:
            yield Case(
                "batch_norm_inference",
                label,
                [
                    *(uniform(shape, -1, 1), uniform((shape[1],), -1, 1, 3)),
                    *(uniform((shape[1],), 0.5, 1.5, 4), weight, bias),
                ],
                {"eps": 0.1},
                opaque=frozenset({1, 2}),
            )
    for batch, axes in product(((), (2,), (2, 3)), ((5,), (4, 5))):
        label = f"{[*batch, *axes]} over {list(axes)}"
        for biased in (False, True):
            yield Case(
                "layer_norm",
                f"{label} bias={biased}",
                [
                    *(uniform((*batch, *axes), -1, 1), uniform(axes, 0.5, 1.5, 1)),
                    uniform(axes, -1, 1, 2) if biased else None,
                ],
                {"eps": 0.1} if biased else {},
            )
        for eps in (0.1, None):
            yield Case(
                "rms_norm",
                f"{label} eps={eps}",
                [uniform((*batch, *axes), -1, 1), uniform(axes, 0.5, 1.5, 1)],
                {} if eps is None else {"eps": eps},
            )


def of_groups() -> Iterator[Case]:
    for shape, affine in product(((2, 6, 5), (2, 6, 5, 3), (3, 4)), (0, 1, 2)):
        weight = uniform((shape[1],), 0.5, 1.5, 1) if affine else None
        bias = uniform((shape[1],), -1, 1, 2) if affine == 2 else None
        label = "typical" if len(shape) == 3 else f"{shape}"
        given = labels_of({"weight": bool(affine), "bias": affine == 2})

        made = [uniform(shape, -1, 1), weight, bias]

        if len(shape) > 2:
            yield Case("instance_norm", label + given, made, {"eps": 0.1})
        yield Case("group_norm", label + given, made, {"num_groups": 2, "eps": 0.1})


def of_vectors() -> Iterator[Case]:
    for shape, dim in (((5,), 0), ((3, 4), 1), ((2, 3, 5), 1), ((2, 3, 5), -1), ((2, 3, 1, 4), 1)):
        label = "typical" if (len(shape), dim) == (3, 1) else f"{shape} dim={dim}"
        yield Case("softmin", label, [uniform(shape, -2, 2)], {"dim": dim})
        # Every vector is longer than the first eps and shorter than the second.
        for eps in (1e-12, 9.0):
            yield Case(
                "normalize",
                f"{label} eps={eps}",
                [uniform(shape, 0.2, 1)],
                {"dim": dim, "eps": eps},
            )
        yield Case(
            "weight_norm",
            label,
            [uniform(shape, 0.2, 1), uniform((shape[dim],), 0.5, 1.5, 1)],
            {"dim": dim},
        )
    for shape, window in (((2, 7, 4), 3), ((2, 7, 4), 4), ((2, 5, 1, 4), 9), ((3, 6, 4), 1)):
        yield Case(
            "local_response_norm",
            f"typical window={window}" if len(shape) == 3 else f"{shape}",
            [uniform(shape, -1, 1)],
            {"window": window, "alpha": 0.7, "beta": 0.6, "k": 1.3},
        )

"""Reductions and softmax along an axis."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from kit.cases.case import SHAPES, Case, distinct, uniform

OWN: dict[str, Callable[..., Any]] = {
    "l1_norm": lambda A, dim, keepdim: torch.linalg.vector_norm(A, 1, dim, keepdim),
    "l2_norm": lambda A, dim, keepdim: torch.linalg.vector_norm(A, 2, dim, keepdim),
    "vector_norm": lambda A, ord, dim, keepdim: torch.linalg.vector_norm(A, ord, dim, keepdim),
}
REDUCTIONS = ("sum", "mean", "prod", "max", "min", "amax", "amin", "logsumexp")
SPREADS = ("var", "std", "var_mean")
CUMULATIVE = ("cumsum", "cumprod", "logcumsumexp")


def along_an_axis() -> Iterator[Case]:
    for shape in SHAPES:
        for dim in range(-len(shape), len(shape)):
            for name in ("softmax", "log_softmax"):
                yield Case(name, f"{list(shape)} dim={dim}", [uniform(shape, -2, 2)], {"dim": dim})
            for name, keepdim in product(REDUCTIONS, (False, True)):
                yield Case(
                    name,
                    f"{list(shape)} dim={dim} keepdim={keepdim}",
                    [distinct(shape)],
                    {"dim": dim, "keepdim": keepdim},
                )


def spreads_and_norms() -> Iterator[Case]:
    for shape, dim, keepdim in (
        *(((3, 4), 1, False), ((3, 4), 0, True), ((5,), 0, False)),
        *(((2, 3, 5), 1, True), ((2, 3, 5), -1, False), ((2, 5, 1, 4), -3, False)),
    ):
        parameters = {"dim": dim, "keepdim": keepdim}
        label = f"{list(shape)} dim={dim} keepdim={keepdim}"
        for name, more in (
            *(product(SPREADS, ({"correction": 1 - keepdim},))),
            *(("l1_norm", {}), ("l2_norm", {}), ("vector_norm", {"ord": 3 - keepdim})),
        ):
            yield Case(
                name,
                " ".join([label, *(f"{k}={v}" for k, v in more.items())]),
                [distinct(shape)],
                {**parameters, **more},
            )


def cumulative() -> Iterator[Case]:
    for shape, dim in (
        *(((3, 4), 1), ((3, 4), -2), ((5,), 0), ((2, 3, 5), 1), ((2, 3, 1, 4), -4)),
    ):
        for name in CUMULATIVE:
            yield Case(name, f"{list(shape)} dim={dim}", [distinct(shape)], {"dim": dim})

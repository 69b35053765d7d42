"""Whole networks."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from kit.cases.case import Case, positions, uniform
from kit.cases.normalizations import batch_norm_of_torch
from torch.nn import functional as F


def character_model_of_torch(
    C: torch.Tensor, W1: torch.Tensor, b1: torch.Tensor, W2: torch.Tensor, b2: torch.Tensor,
    bngain: torch.Tensor, bnbias: torch.Tensor, Xb: torch.Tensor, Yb: torch.Tensor, eps: float,
) -> torch.Tensor:  # fmt: skip
    hprebn = F.embedding(Xb, C).flatten(1) @ W1 + b1
    hpreact = batch_norm_of_torch(hprebn, bngain[0], bnbias[0], eps, correction=1)
    return F.cross_entropy(hpreact.tanh() @ W2 + b2, Yb)


OWN: dict[str, Callable[..., Any]] = {"character_model": character_model_of_torch}


def networks() -> Iterator[Case]:
    shapes = ((7, 2), (6, 4), (4,), (4, 7), (7,), (1, 4), (1, 4))
    yield Case(
        "character_model",
        "[5, 3]",
        [
            *(uniform(shape, -1, 1, seed) for seed, shape in enumerate(shapes)),
            *(positions(5, 3, below=7), positions(5, below=7)),
        ],
        {"eps": 0.1},
        character_model_of_torch,
    )

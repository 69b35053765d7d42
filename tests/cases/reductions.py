"""Reductions and softmax along an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch

from cases.case import SHAPES, Case, distinct, uniform
from derive import catalog

OWN: dict[str, Callable[..., Any]] = {}
REDUCTIONS = catalog.FAMILIES["reductions"]


def along_an_axis() -> Iterator[Case]:
    for shape in SHAPES:
        for dim in range(-len(shape), len(shape)):
            for name in ("softmax", "log_softmax"):
                yield Case(
                    name, f"{list(shape)} dim={dim}", lambda s=shape: [uniform(s, -2, 2)],
                    {"dim": dim}, getattr(torch, name),
                )  # fmt: skip
            for name, keepdim in product(REDUCTIONS, (False, True)):
                yield Case(
                    name,
                    f"{list(shape)} dim={dim} keepdim={keepdim}",
                    lambda s=shape: [distinct(s)],
                    {"dim": dim, "keepdim": keepdim},
                    getattr(torch, name),
                )

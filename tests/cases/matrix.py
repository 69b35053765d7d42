"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch.nn import functional as F

from cases.case import Case, distinct, uniform

OWN: dict[str, Callable[..., Any]] = {
    "transpose": lambda A: A.mT.contiguous(),
    "linear": F.linear,
}


def matrix() -> Iterator[Case]:
    for batch in ((), (2,), (2, 3), (1, 2)):
        yield Case(
            "transpose", f"{[*batch, 3, 4]}", lambda b=batch: [distinct((*b, 3, 4))], {},
            OWN["transpose"],
        )  # fmt: skip
        yield Case(
            "matmul",
            f"{[*batch, 4, 3]}",
            lambda b=batch: [uniform((*b, 4, 3), -1, 1), uniform((*b, 3, 5), -1, 1, 1)],
            {},
            torch.matmul,
        )


def linear() -> Iterator[Case]:
    for batch, biased in product(((), (2,), (2, 3)), (False, True)):
        yield Case(
            "linear",
            f"{[*batch, 4]} bias={biased}",
            lambda s=batch, given=biased: [
                *(uniform((*s, 4), -1, 1), uniform((5, 4), -1, 1, 1)),
                uniform((5,), -1, 1, 2) if given else None,
            ],
            {},
            OWN["linear"],
        )

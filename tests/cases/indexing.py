"""Reading, joining and reshaping axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

from cases.case import Case, distinct, positions, uniform

OWN: dict[str, Callable[..., Any]] = {
    "embedding": F.embedding,
    "flatten": lambda x: x.flatten(-2),
    "unflatten": lambda x, inner: x.unflatten(-1, (-1, inner)),
    "concat": lambda A, B, dim=0: torch.concat((A, B), dim),
}


def indexing() -> Iterator[Case]:
    for shape in ((), (7,), (2, 3)):
        yield Case(
            "embedding",
            f"{list(shape)}",
            lambda s=shape: [positions(*s, below=5), uniform((5, 4), -1, 1)],
            {},
            OWN["embedding"],
        )
    for batch in ((), (4,), (5, 4)):
        yield Case(
            "flatten", f"{[*batch, 2, 3]}", lambda s=batch: [distinct((*s, 2, 3))], {},
            OWN["flatten"],
        )  # fmt: skip
        yield Case(
            "unflatten", f"{[*batch, 6]}", lambda s=batch: [distinct((*s, 6))], {"inner": 3},
            OWN["unflatten"],
        )  # fmt: skip
    for shape in ((5,), (3, 4), (2, 3, 5)):
        for dim in range(-len(shape), len(shape)):
            other = [n + 1 if k == dim % len(shape) else n for k, n in enumerate(shape)]
            yield Case(
                "concat",
                f"{list(shape)} {other} dim={dim}",
                lambda a=shape, b=tuple(other): [distinct(a), distinct(b, 1)],
                {"dim": dim},
                OWN["concat"],
            )

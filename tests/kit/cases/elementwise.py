"""Functions of each element, beside torch.<name>."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from kit.cases.case import SHAPES, Case, distinct, uniform
from torch.nn import functional as F

from derive import catalog

# Where a function is smooth, away from its kinks.
DOMAINS = {
    "log": (0.3, 3),
    "log1p": (-0.6, 3),
    "sqrt": (0.3, 3),
    "rsqrt": (0.3, 3),
    "asin": (-0.8, 0.8),
    "acos": (-0.8, 0.8),
    "tan": (-1.2, 1.2),
    "lgamma": (0.4, 4),
    "digamma": (0.4, 4),
    "pow": (0.4, 2),
}


OWN: dict[str, Callable[..., Any]] = {
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "clamp": lambda A, lo, hi: torch.clamp(A, lo, hi),
}
PAIRS = ("maximum", "minimum", "atan2", "pow")


def elementwise() -> Iterator[Case]:
    for name in catalog.FAMILIES["elementwise"]:
        for shape in ((), *SHAPES):
            parameters = {"lo": -0.31, "hi": 0.42} if name == "clamp" else {}
            count = range(2 if name in PAIRS else 1)
            if name in DOMAINS:
                made = [uniform(shape, *DOMAINS[name], seed=n) for n in count]
            else:
                made = [distinct(shape, n) + 0.03 * n for n in count]
            yield Case(name, f"{list(shape)}", made, parameters)
    yield Case("clamp", "lo", [distinct((3, 4))], {"lo": 0.12}, torch_clamp)
    yield Case("clamp", "hi", [distinct((3, 4))], {"hi": 0.12}, torch_clamp)
    yield Case("clamp", "none", [distinct((3, 4))], {}, torch_clamp)


def torch_clamp(A: torch.Tensor, lo: float = -torch.inf, hi: float = torch.inf) -> torch.Tensor:
    return A.clamp(lo, hi)

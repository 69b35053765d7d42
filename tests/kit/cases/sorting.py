"""Operations that sort, beside torch.sort and torch.topk."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from kit.cases.case import Case, distinct
from torch import Tensor


def sparsemax(input: Tensor, dim: int) -> Tensor:
    score = input.sort(dim, descending=True).values.movedim(dim, -1)
    total = score.cumsum(-1) - 1
    count = (torch.arange(1, score.shape[-1] + 1) * score > total).sum(-1, keepdim=True)
    threshold = total.gather(-1, count - 1) / count
    return (input.movedim(dim, -1) - threshold).clamp(min=0).movedim(-1, dim)


def top_k_gates(logits: Tensor, k: float) -> Tensor:
    first, experts = logits.topk(int(k))
    return torch.zeros_like(logits).scatter(-1, experts, first.softmax(-1))


def wasserstein_1d(x: Tensor, y: Tensor) -> Tensor:
    return (x.sort().values - y.sort().values).abs().mean(-1)


def mean_of_largest(losses: Tensor, k: float) -> Tensor:
    return losses.topk(int(k)).values.mean()


OWN: dict[str, Callable[..., Any]] = {
    "sparsemax": sparsemax,
    "top_k_gates": top_k_gates,
    "wasserstein_1d": wasserstein_1d,
    "mean_of_largest": mean_of_largest,
}


def sorting() -> Iterator[Case]:
    for name, shapes, options in (
        ("sparsemax", [(2, 5, 3)], {"dim": 1}),
        ("sparsemax", [(4, 1)], {"dim": -1}),
        ("top_k_gates", [(3, 7)], {"k": 2}),
        ("top_k_gates", [(2, 3, 40)], {"k": 4}),
        ("wasserstein_1d", [(6,), (6,)], {}),
        ("wasserstein_1d", [(2, 3, 5), (2, 3, 5)], {}),
        ("mean_of_largest", [(6,)], {"k": 2}),
        ("mean_of_largest", [(50,)], {"k": 5}),
    ):
        yield Case(
            name,
            f"{list(shapes[0])} {options}",
            [distinct(s, seed).sinh() + 0.03 * seed for seed, s in enumerate(shapes)],
            options,
        )

"""Recurrences along time, beside loops over its positions."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from kit.cases.case import Case, uniform
from torch import Tensor


def selective_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    h, steps = torch.zeros_like(A).expand(len(u), *A.shape), []
    for x, step, into, out in zip(*(s.unbind(1) for s in (u, delta, B, C)), strict=True):
        h = (step[:, :, None] * A).exp() * h + (step * x)[:, :, None] * into[:, None]
        steps.append((h * out[:, None]).sum(2) + D * x)
    return torch.stack(steps, 1)


def gated_linear_attention(
    q: Tensor, k: Tensor, v: Tensor, log_gate: Tensor, scale: float
) -> Tensor:
    state: Tensor | float = 0.0
    steps = []
    for query, key, value, gate in zip(*(s.unbind(2) for s in (q, k, v, log_gate)), strict=True):
        state = gate.exp()[..., None] * state + key[..., None] * value[..., None, :]
        steps.append(scale * (query[..., None, :] @ state).squeeze(-2))
    return torch.stack(steps, 2)


def retention(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor, scale: float) -> Tensor:
    """The recurrent form of it."""
    state: Tensor | float = 0.0
    steps = []
    for query, key, value in zip(*(s.unbind(2) for s in (q, k, v)), strict=True):
        state = gamma[:, None, None] * state + key[..., None] * value[..., None, :]
        steps.append(scale * (query[..., None, :] @ state).squeeze(-2))
    return torch.stack(steps, 2)


def generalized_advantage(
    reward: Tensor, value: Tensor, last_value: Tensor, done: Tensor, gamma: float, lam: float
) -> Tensor:
    steps: list[Tensor] = []
    after, advantage = last_value, torch.zeros_like(last_value)
    for t in reversed(range(reward.shape[1])):
        going = (~done[:, t]).to(reward)
        delta = reward[:, t] + gamma * after * going - value[:, t]
        advantage = delta + gamma * lam * going * advantage
        steps, after = [advantage, *steps], value[:, t]
    return torch.stack(steps, 1)


OWN: dict[str, Callable[..., Any]] = {
    "selective_scan": selective_scan,
    "gated_linear_attention": gated_linear_attention,
    "retention": retention,
    "generalized_advantage": generalized_advantage,
}


def sequences() -> Iterator[Case]:
    done = torch.tensor([[False, True, False, False], [False, False, False, True], [True] * 4])
    attended = ((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 6))
    for name, shapes, more, options in (
        ("selective_scan", ((2, 5, 3), (2, 5, 3), (3, 4), (2, 5, 4), (2, 5, 4), (3,)), (), {}),
        ("gated_linear_attention", (*attended, attended[0]), (), {"scale": 0.7}),
        ("retention", (*attended, (3,)), (), {"scale": 0.7}),
        ("generalized_advantage", ((3, 4), (3, 4), (3,)), (done,), {"gamma": 0.9, "lam": 0.8}),
    ):
        yield Case(
            name,
            str(list(shapes[0])),
            [
                *(uniform(shape, -1, 1, seed) for seed, shape in enumerate(shapes)),
                *(x.clone() for x in more),
            ],
            options,
        )

"""Losses of each element, beside torch.nn.functional."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from kit.cases.case import Case, distinct, labels_of, uniform
from torch.nn import functional as F


def sigmoid_focal_loss_of_torch(
    input: torch.Tensor, target: torch.Tensor, alpha: float, gamma: float, reduction: str
) -> torch.Tensor:
    """As torchvision.ops has it."""
    p = torch.sigmoid(input)
    ce_loss = F.binary_cross_entropy_with_logits(input, target, reduction="none")
    p_t = p * target + (1 - p) * (1 - target)
    alpha_t = alpha * target + (1 - alpha) * (1 - target)
    return reduced(alpha_t * ce_loss * (1 - p_t) ** gamma, reduction)


def kl_div_of_torch(
    input: torch.Tensor, target: torch.Tensor, reduction: str, log_target: bool = False
) -> torch.Tensor:
    """torch's own warns of its mean, which is no divergence."""
    if reduction == "mean":
        return F.kl_div(input, target, reduction="none", log_target=log_target).mean()
    return F.kl_div(input, target, reduction=reduction, log_target=log_target)


def reduced(loss: torch.Tensor, reduction: str) -> torch.Tensor:
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


OWN: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(F, name)
        for name in (
            *("mse_loss l1_loss smooth_l1_loss huber_loss poisson_nll_loss".split()),
            *("gaussian_nll_loss soft_margin_loss".split()),
        )
    },
    "binary_cross_entropy": lambda x, t, w, reduction: F.binary_cross_entropy(
        x, t, w, reduction=reduction
    ),
    "binary_cross_entropy_with_logits": lambda x, t, w, v, reduction: (
        F.binary_cross_entropy_with_logits(x, t, w, pos_weight=v, reduction=reduction)
    ),
    "sigmoid_focal_loss": sigmoid_focal_loss_of_torch,
    "kl_div": kl_div_of_torch,
    "kl_div_log_target": lambda x, t, reduction: kl_div_of_torch(x, t, reduction, True),
}

REDUCTIONS = ("mean", "sum", "none")
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "smooth_l1_loss": ({}, {"beta": 0.6}),
    "huber_loss": ({}, {"delta": 0.6}),
    "sigmoid_focal_loss": ({"alpha": 0.25, "gamma": 2}, {"alpha": 0.4, "gamma": 1.5}),
}
OPAQUE = {"soft_margin_loss": frozenset({1})}
TENSORS: dict[str, Callable[[tuple[int, ...]], list[torch.Tensor]]] = {
    # The differences are off 0 and off the bounds between quadratic and linear.
    **{
        name: lambda s: [distinct(s), 4 * distinct(s, 1) + 0.02]
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
    },
    "sigmoid_focal_loss": lambda s: [uniform(s, -2, 2), uniform(s, 0, 1, 1)],
    "kl_div": lambda s: [uniform(s, -2, 0), uniform(s, 0.1, 1, 1)],
    "kl_div_log_target": lambda s: [uniform(s, -2, 0), uniform(s, -2, 0, 1)],
    "poisson_nll_loss": lambda s: [uniform(s, -1, 1), uniform(s, 0, 3, 1)],
    "gaussian_nll_loss": lambda s: [
        *(uniform(s, -1, 1), uniform(s, -1, 1, 1), uniform(s, 0.3, 2, 2))
    ],
    "soft_margin_loss": lambda s: [uniform(s, -2, 2), distinct(s, 1).sign()],
}


def pointwise_losses() -> Iterator[Case]:
    for name, tensors in TENSORS.items():
        more = ("batchmean",) if name.startswith("kl_div") else ()
        for options in OPTIONS.get(name, ({},)):
            given = "".join(f" {k}={v}" for k, v in options.items())
            for reduction in (*REDUCTIONS, *more):
                yield Case(
                    name,
                    f"[3, 4] {reduction}{given}",
                    tensors((3, 4)),
                    {"reduction": reduction, **options},
                    opaque=OPAQUE.get(name, frozenset()),
                )
        yield Case(
            name,
            "[2, 3, 5] mean",
            tensors((2, 3, 5)),
            {"reduction": "mean", **OPTIONS.get(name, ({},))[0]},
            opaque=OPAQUE.get(name, frozenset()),
        )


def cross_entropies_of_two() -> Iterator[Case]:
    for weighted, reduction in product((False, True), REDUCTIONS):
        weight = uniform((3, 4), 0.4, 2, 2) if weighted else None
        label = f"[3, 4] {reduction}{labels_of({'weight': weighted})}"
        yield Case(
            "binary_cross_entropy",
            label,
            [uniform((3, 4), 0.1, 0.9), uniform((3, 4), 0, 1, 1), weight],
            {"reduction": reduction},
            opaque=frozenset({2}),
        )
        for positive in (False, True):
            yield Case(
                "binary_cross_entropy_with_logits",
                f"{label}{labels_of({'pos_weight': positive})}",
                [
                    *(uniform((3, 4), -3, 3), uniform((3, 4), 0, 1, 1), weight),
                    uniform((4,), 0.4, 2, 3) if positive else None,
                ],
                {"reduction": reduction},
                opaque=frozenset({2, 3}),
            )

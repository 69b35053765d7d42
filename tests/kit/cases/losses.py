"""Losses of classes."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from kit.cases.case import Case, positions, uniform
from kit.cases.pointwise_losses import REDUCTIONS, reduced
from torch.nn import functional as F


def focal_loss_of_torch(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    gamma: float,
    reduction: str,
) -> torch.Tensor:
    right = torch.exp(-F.cross_entropy(input, target, reduction="none"))
    loss = F.cross_entropy(input, target, weight, reduction="none")
    return reduced((1 - right) ** gamma * loss, reduction)


def info_nce_of_torch(
    query: torch.Tensor, positive_key: torch.Tensor, temperature: float, reduction: str
) -> torch.Tensor:
    logits = F.normalize(query, dim=1) @ F.normalize(positive_key, dim=1).mT / temperature
    return F.cross_entropy(logits, torch.arange(len(query)), reduction=reduction)


def dice_loss_of_torch(
    input: torch.Tensor, target: torch.Tensor, smooth: float, reduction: str
) -> torch.Tensor:
    p, t = input.sigmoid().flatten(1), target.flatten(1)
    overlap = (2 * (p * t).sum(1) + smooth) / (p.sum(1) + t.sum(1) + smooth)
    return reduced(1 - overlap, reduction)


def tversky_loss_of_torch(
    input: torch.Tensor,
    target: torch.Tensor,
    alpha: float,
    beta: float,
    smooth: float,
    reduction: str,
) -> torch.Tensor:
    p, t = input.sigmoid().flatten(1), target.flatten(1)
    right, wrong, missed = (p * t).sum(1), (p * (1 - t)).sum(1), ((1 - p) * t).sum(1)
    index = (right + smooth) / (right + alpha * wrong + beta * missed + smooth)
    return reduced(1 - index, reduction)


OWN: dict[str, Callable[..., Any]] = {
    "nll_loss": lambda A, T, W, **given: F.nll_loss(A, T, W, **given),
    "linear_cross_entropy": lambda A, L, T, b, W, **given: F.linear_cross_entropy(
        A, L, T, linear_bias=b, weight=W, **given
    ),
    "cross_entropy": F.cross_entropy,
    "cross_entropy_probabilities": F.cross_entropy,
    "softmax_regression": lambda x, w, b, T: F.cross_entropy(F.linear(x, w, b), T),
    "focal_loss": focal_loss_of_torch,
    "info_nce": info_nce_of_torch,
    "dice_loss": dice_loss_of_torch,
    "tversky_loss": tversky_loss_of_torch,
}


IGNORED = {
    "none": (-100, [1, 0, 2, 2]),
    "some": (-100, [1, -100, 2, 1]),
    "class": (2, [1, 2, 0, 1]),
}


def losses() -> Iterator[Case]:
    for reduction, weighted, ignored in product(
        ("mean", "sum", "none"), (False, True), ("none", "some", "class")
    ):
        ignore_index, classes = IGNORED[ignored]
        parameters = {"reduction": reduction, "ignore_index": ignore_index}
        target = torch.tensor(classes)
        weight = uniform((3,), 0.4, 2, 5) if weighted else None
        label = f"{reduction} weight={weighted} ignore={ignored}"
        yield Case(
            "nll_loss",
            label,
            [uniform((4, 3), -2, 0), target, weight],
            parameters,
            opaque=frozenset({2}),
        )
        for biased, smoothing in product((False, True), (0.0, 0.2)):
            bias = uniform((3,), -1, 1, 6) if biased else None
            yield Case(
                "linear_cross_entropy",
                f"{label} bias={biased} smoothing={smoothing}",
                [uniform((4, 2), -1, 1), uniform((3, 2), -1, 1, 1), target, bias, weight],
                {**parameters, "label_smoothing": smoothing}, opaque=frozenset({4}),
            )  # fmt: skip


def cross_entropies() -> Iterator[Case]:
    for reduction, weighted, smoothing, axes in product(
        ("mean", "sum", "none"), (False, True), (0.0, 0.2), ((), (2,), (2, 5))
    ):
        weight = uniform((3,), 0.4, 2, 5) if weighted else None
        parameters = {"reduction": reduction, "label_smoothing": smoothing}
        label = f"{reduction} weight={weighted} smoothing={smoothing} {[4, 3, *axes]}"
        for ignored in IGNORED:
            ignore_index, _ = IGNORED[ignored]
            target = positions(4, *axes, below=3)
            if ignored == "some":
                target[1] = target[3] = ignore_index
            yield Case(
                "cross_entropy",
                f"{label} ignore={ignored}",
                [uniform((4, 3, *axes), -2, 2), target, weight],
                {**parameters, "ignore_index": ignore_index},
                opaque=frozenset({2}),
            )
        yield Case(
            "cross_entropy_probabilities",
            label,
            [uniform((4, 3, *axes), -2, 2), uniform((4, 3, *axes), -2, 2, 1).softmax(1), weight],
            parameters,
        )
    yield Case(
        "softmax_regression",
        "[7, 4]",
        [
            *(uniform((7, 4), -1, 1), uniform((3, 4), -1, 1, 1), uniform((3,), -1, 1, 2)),
            positions(7, below=3),
        ],
    )


def focal_and_contrastive() -> Iterator[Case]:
    for reduction in REDUCTIONS:
        for weighted, gamma, axes in ((False, 2, ()), (True, 1.5, (2,))):
            weight = uniform((3,), 0.4, 2, 5) if weighted else None
            yield Case(
                "focal_loss",
                f"{[4, 3, *axes]} {reduction} weight={weighted} gamma={gamma}",
                [*(uniform((4, 3, *axes), -2, 2), positions(4, *axes, below=3), weight)],
                {"gamma": gamma, "reduction": reduction},
                opaque=frozenset({2}),
            )
        yield Case(
            "info_nce",
            f"[3, 4] {reduction}",
            [uniform((3, 4), -1, 1), uniform((3, 4), -1, 1, 1)],
            {"temperature": 0.5, "reduction": reduction},
        )


def of_sets() -> Iterator[Case]:
    for reduction in REDUCTIONS:
        for name, options in (
            ("dice_loss", {"smooth": 0.7}),
            ("tversky_loss", {"smooth": 0.7, "alpha": 0.3, "beta": 0.6}),
        ):
            for axes in ((4,), (2, 5)):
                yield Case(
                    name,
                    f"{[3, *axes]} {reduction}",
                    [uniform((3, *axes), -2, 2), uniform((3, *axes), 0, 1, 1)],
                    {**options, "reduction": reduction},
                )

"""Losses of what is nearer than a margin, beside torch.nn.functional."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from kit.cases.case import Case, distinct, positions, uniform
from kit.cases.pointwise_losses import REDUCTIONS, reduced
from torch.nn import functional as F

OWN: dict[str, Callable[..., Any]] = {
    "hinge_loss": lambda x, t, reduction: reduced(F.relu(1 - t * x), reduction),
    "multi_margin_loss": lambda x, t, w, **given: F.multi_margin_loss(x, t, weight=w, **given),
    **{
        name: getattr(F, name)
        for name in (
            *("hinge_embedding_loss", "margin_ranking_loss"),
            *("triplet_margin_loss", "cosine_embedding_loss"),
        )
    },
}


def signs(shape: tuple[int, ...]) -> torch.Tensor:
    """Some 1 and some -1."""
    return distinct(shape, 7).sign()


def margin_losses() -> Iterator[Case]:
    for reduction in REDUCTIONS:
        for name, options, tensors in (
            ("hinge_loss", {}, lambda s: [4 * distinct(s), signs(s)]),
            ("hinge_embedding_loss", {}, lambda s: [4 * distinct(s), signs(s)]),
            ("hinge_embedding_loss", {"margin": 0.6}, lambda s: [4 * distinct(s), signs(s)]),
            (
                "margin_ranking_loss",
                {"margin": 0.35},
                lambda s: [4 * distinct(s), distinct(s, 1), signs(s)],
            ),
        ):
            yield Case(
                name,
                f"[3, 4] {reduction}{''.join(f' {k}={v}' for k, v in options.items())}",
                tensors((3, 4)),
                {"reduction": reduction, **options},
                opaque=frozenset({1}) if name == "hinge_embedding_loss" else frozenset(),
            )
        for p, weighted in ((1, False), (2, True)):
            yield Case(
                "multi_margin_loss",
                f"{reduction} p={p} weight={weighted}",
                [
                    *(4 * distinct((5, 3)), positions(5, below=3)),
                    uniform((3,), 0.4, 2, 1) if weighted else None,
                ],
                {"p": p, "reduction": reduction},
                opaque=frozenset({2}),
            )
        for p in (2, 3):
            yield Case(
                "triplet_margin_loss",
                f"[3, 4] {reduction} p={p}",
                [uniform((3, 4), -1, 1, n) for n in range(3)],
                {"p": p, "reduction": reduction},
            )
        for margin in (0.0, 0.2):
            yield Case(
                "cosine_embedding_loss",
                f"{reduction} margin={margin}",
                [uniform((5, 4), -1, 1), uniform((5, 4), -1, 1, 1), signs((5,))],
                {"margin": margin, "reduction": reduction},
                opaque=frozenset({2}),
            )

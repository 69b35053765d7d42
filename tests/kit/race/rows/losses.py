"""Losses, their mean; targets have no gradient."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from kit.cases.case import generated
from kit.race.row import Draw, Function, Make, Row, of
from kit.race.rows.elementwise import two
from torch import Tensor
from torch.nn import functional as F


def classes(draw: Draw, rows: int, columns: int) -> list[Tensor | None]:
    return [draw.normal(rows, columns), draw.below(columns, rows)]


def signs(draw: Draw, *shape: int) -> list[Tensor | None]:
    return [draw.normal(*shape), draw.sign(*shape)]


def shares(draw: Draw, *shape: int) -> list[Tensor | None]:
    """Logits, and targets between 0 and 1."""
    return [draw.normal(*shape), draw.between(0, 1, *shape)]


def features(draw: Draw, rows: int, inner: int, columns: int) -> list[Tensor | None]:
    return [
        draw.normal(rows, inner),
        draw.normal(columns, inner) / inner**0.5,
        draw.below(columns, rows),
    ]


def picked(x: Tensor, target: Tensor) -> Tensor:
    return x.gather(1, target[:, None]).squeeze(1)


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return (torch.logsumexp(x, 1) - picked(x, target)).mean()


def focal(x: Tensor, target: Tensor) -> Tensor:
    right = picked(torch.log_softmax(x, 1), target)
    return -((1 - right.exp()) ** 2 * right).mean()


def sigmoid_focal(x: Tensor, target: Tensor) -> Tensor:
    """As torchvision.ops has it."""
    p = torch.sigmoid(x)
    entropy = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    share = p * target + (1 - p) * (1 - target)
    weight = 0.25 * target + 0.75 * (1 - target)
    return (weight * entropy * (1 - share) ** 2).mean()


def info_nce(query: Tensor, key: Tensor) -> Tensor:
    logits = F.normalize(query, dim=1) @ F.normalize(key, dim=1).mT / 0.1
    return F.cross_entropy(logits, torch.arange(len(query), device=query.device))


def dice(x: Tensor, target: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    return (1 - (2 * (p * target).sum(1) + 1) / (p.sum(1) + target.sum(1) + 1)).mean()


def tversky(x: Tensor, target: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    found = (p * target).sum(1)
    wrong, missed = (p * (1 - target)).sum(1), ((1 - p) * target).sum(1)
    return (1 - (found + 1) / (found + 0.5 * wrong + 0.5 * missed + 1)).mean()


def huber(x: Tensor, target: Tensor) -> Tensor:
    e = (x - target).abs()
    return torch.where(e < 1, 0.5 * e * e, e - 0.5).mean()


def triplet(anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    near = (anchor - positive + 1e-6).norm(dim=-1)
    far = (anchor - negative + 1e-6).norm(dim=-1)
    return F.relu(1 + near - far).mean()


def cosine_embedding(x: Tensor, y: Tensor, target: Tensor) -> Tensor:
    cosine = F.cosine_similarity(x, y)
    return torch.where(target > 0, 1 - cosine, F.relu(cosine)).mean()


def multi_margin(x: Tensor, target: Tensor) -> Tensor:
    over = F.relu(1 - picked(x, target)[:, None] + x)
    others = torch.arange(x.shape[1], device=x.device) != target[:, None]
    return (over * others).sum(1).mean() / x.shape[1]


OWN = getattr(F, "linear_cross_entropy", None)
"""None before torch 2.13."""


def linear_cross_entropy(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, weight), target)


def in_chunks(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Of torch, without all logits at one time."""
    options = torch.nn.LinearCrossEntropyOptions()
    return F.linear_cross_entropy(x, weight, target, options=options)


def entropy_of_two(x: Tensor, target: Tensor) -> Tensor:
    return -(target * x.log() + (1 - target) * (1 - x).log()).mean()


def linear_rows(**sizes: Any) -> Iterator[Row]:
    """With all logits at one time, and torch in chunks."""
    name = "linear_cross_entropy"
    for label, own in ((name, OWN), (f"{name}, torch in chunks", OWN and in_chunks)):
        yield Row(label, features, own, linear_cross_entropy, ours=generated(name), **sizes)


POINTWISE: dict[str, tuple[Make, Function | None]] = {
    "mse_loss": (two, lambda x, t: (x - t).square().mean()),
    "l1_loss": (two, lambda x, t: (x - t).abs().mean()),
    "smooth_l1_loss": (two, huber),
    "huber_loss": (two, huber),
    "soft_margin_loss": (signs, lambda x, t: torch.log1p(torch.exp(-t * x)).mean()),
    "hinge_embedding_loss": (signs, lambda x, t: torch.where(t > 0, x, F.relu(1 - x)).mean()),
    "poisson_nll_loss": (shares, lambda x, t: (x.exp() - t * x).mean()),
    "binary_cross_entropy_with_logits": (shares, lambda x, t: (F.softplus(x) - t * x).mean()),
    "binary_cross_entropy": (
        lambda d, *s: [d.between(0.1, 0.9, *s), d.between(0, 1, *s)],
        entropy_of_two,
    ),
    "cross_entropy": (classes, cross_entropy),
    "nll_loss": (classes, lambda x, t: -picked(x, t).mean()),
    "multi_margin_loss": (classes, multi_margin),
}
"""Of an input and a target, with torch's name."""

UNPAIRED: dict[str, tuple[Make, Function, tuple[int, ...]]] = {
    "gaussian_nll_loss": (
        lambda d, *s: [*two(d, *s), d.between(0.3, 2, *s)],
        lambda x, t, v: (v.log() + (x - t).square() / v).mean() / 2,
        (1,),
    ),
    "margin_ranking_loss": (
        lambda d, *s: [*two(d, *s), d.sign(*s)],
        lambda x, y, t: F.relu(-t * (x - y)).mean(),
        (2,),
    ),
    "triplet_margin_loss": (of("nk nk nk"), triplet, ()),
    "cosine_embedding_loss": (lambda d, *s: [*two(d, *s), d.sign(s[0])], cosine_embedding, (2,)),
}
"""Of more tensors, with those that have no gradient."""

COMPOSITES: dict[str, tuple[Make, Function, Mapping[str, Any]]] = {
    "hinge_loss": (signs, lambda x, t: F.relu(1 - t * x).mean(), {}),
    "focal_loss": (classes, focal, {}),
    "sigmoid_focal_loss": (shares, sigmoid_focal, {"reduction": "mean"}),
    "dice_loss": (shares, dice, {}),
    "tversky_loss": (shares, tversky, {}),
}
"""Of an input and a target, which torch has not."""

BATCH = {"reduction": "batchmean"}
LINEAR = {"small": (8, 4, 8), "large": (512, 64, 2048)}
ROWS = (
    *(
        Row(name, make, getattr(F, name), composite, fixed=(1,))
        for name, (make, composite) in POINTWISE.items()
    ),
    *(
        Row(name, make, getattr(F, name), composite, fixed=fixed)
        for name, (make, composite, fixed) in UNPAIRED.items()
    ),
    *(
        Row(name, make, None, composite, given, fixed=(1,))
        for name, (make, composite, given) in COMPOSITES.items()
    ),
    Row(
        "cross_entropy_probabilities",
        lambda d, *s: [d.normal(*s), d.normal(*s).softmax(1)],
        F.cross_entropy,
        lambda x, t: -(t * torch.log_softmax(x, 1)).sum(1).mean(),
        fixed=(1,),
    ),
    Row(
        "kl_div",
        lambda d, *s: [d.normal(*s).log_softmax(1), d.normal(*s).softmax(1)],
        partial(F.kl_div, **BATCH),
        lambda x, t: (t * (t.log() - x)).sum() / len(x),
        BATCH,
        fixed=(1,),
    ),
    Row(
        "kl_div_log_target",
        lambda d, *s: [x.log_softmax(1) for x in two(d, *s)],
        partial(F.kl_div, log_target=True, **BATCH),
        lambda x, t: (t.exp() * (t - x)).sum() / len(x),
        BATCH,
        fixed=(1,),
    ),
    Row("info_nce", two, None, info_nce, large=(1024, 256), huge=(4096, 256)),
    *linear_rows(**LINEAR),
)
EXTRA = tuple(
    row
    for sizes in ((2048, 256, 8192), (1024, 256, 32768))
    for row in linear_rows(large=sizes, label="x".join(map(str, sizes)))
)

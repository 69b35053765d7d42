"""Distances and kernels."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from kit.cases.case import Case, uniform
from torch import Tensor
from torch.nn import functional as F


def squares(x1: Tensor, x2: Tensor) -> Tensor:
    return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).square().sum(-1)


def rbf(x1: Tensor, x2: Tensor, gamma: float = 1) -> Tensor:
    return torch.exp(-gamma * squares(x1, x2))


def mahalanobis(u: Tensor, v: Tensor, VI: Tensor) -> Tensor:
    delta = u - v
    return torch.einsum("...k,kl,...l->...", delta, VI, delta).sqrt()


def mmd(X: Tensor, Y: Tensor, gamma: float = 1) -> Tensor:
    return rbf(X, X, gamma).mean() + rbf(Y, Y, gamma).mean() - 2 * rbf(X, Y, gamma).mean()


OWN: dict[str, Callable[..., Any]] = {
    "cdist_squared": squares,
    "cdist": torch.cdist,
    "cdist_manhattan": lambda x1, x2: torch.cdist(x1, x2, p=1),
    "rbf_kernel": rbf,
    "laplacian_kernel": lambda x1, x2, gamma=1: torch.exp(-gamma * torch.cdist(x1, x2, p=1)),
    "cauchy_kernel": lambda x1, x2, gamma=1: 1 / (1 + gamma * squares(x1, x2)),
    "rational_quadratic_kernel": lambda x1, x2, gamma=1, alpha=1: (
        1 + gamma * squares(x1, x2) / alpha
    ).pow(-alpha),
    "polynomial_kernel": lambda x1, x2, gamma=1, coef0=1, degree=3: (
        gamma * x1 @ x2.mT + coef0
    ).pow(degree),
    "sigmoid_kernel": lambda x1, x2, gamma=1, coef0=1: torch.tanh(gamma * x1 @ x2.mT + coef0),
    "pairwise_distance": F.pairwise_distance,
    "cosine_similarity": F.cosine_similarity,
    "mahalanobis": mahalanobis,
    "mmd": mmd,
}
KERNELS: dict[str, list[dict[str, float]]] = {
    "cdist_squared": [{}],
    "cdist": [{}],
    "cdist_manhattan": [{}],
    "rbf_kernel": [{}, {"gamma": 0.3}],
    "laplacian_kernel": [{}, {"gamma": 0.3}],
    "cauchy_kernel": [{}, {"gamma": 0.3}],
    "rational_quadratic_kernel": [{}, {"gamma": 0.3, "alpha": 0.7}],
    "polynomial_kernel": [{}, {"gamma": 0.3, "coef0": 2.5, "degree": 2}],
    "sigmoid_kernel": [{}, {"gamma": 0.3, "coef0": -0.5}],
}


def distances() -> Iterator[Case]:
    for name, given in KERNELS.items():
        for parameters in given:
            for batch in ((6,), (), (2, 6)):
                label = "typical" if batch == (6,) else f"{list(batch)}"
                yield Case(
                    name,
                    f"{label} {parameters or ''}",
                    [uniform((*batch, 3, 4), -1, 1), uniform((*batch, 5, 4), -1, 1, 1)],
                    parameters,
                )
    for shape in ((4,), (3, 4), (2, 3, 5)):
        for keepdim in (False, True):
            yield Case(
                "pairwise_distance",
                f"{'typical' if len(shape) == 3 else list(shape)} keepdim={keepdim}",
                [uniform(shape, -1, 1), uniform(shape, -1, 1, 1)],
                {"keepdim": keepdim},
            )
    for shape, dim in (((5,), 0), ((3, 4), 1), ((3, 4), -2), ((2, 3, 5), 1), ((2, 3, 4, 5), -1)):
        for eps in (1e-8, 0.9):
            label = "typical" if len(shape) == 3 else f"{list(shape)} dim={dim}"
            # The first vectors are shorter than eps, the others longer.
            yield Case(
                "cosine_similarity",
                f"{label} eps={eps}",
                [uniform(shape, 0.01, 0.05), uniform(shape, 0.5, 1.5, 1)],
                {"dim": dim, "eps": eps},
                composite_cosine if eps > 0.1 else F.cosine_similarity,
            )
    for batch in ((6,), (), (2, 6)):
        yield Case(
            "mahalanobis",
            "typical" if batch == (6,) else f"{list(batch)}",
            [
                *(uniform((*batch, 4), 0, 1), uniform((*batch, 4), -1, 0, 1)),
                torch.eye(4).double() + uniform((4, 4), -0.2, 0.2, 2),
            ],
            {},
            mahalanobis,
        )
    for gamma in (1, 0.3):
        yield Case(
            "mmd",
            f"typical gamma={gamma}",
            [uniform((5, 3), -1, 1), uniform((4, 3), -0.5, 1.5, 1)],
            {"gamma": gamma},
            mmd,
        )


def composite_cosine(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
    """torch's own gives the gradient another factor where a norm is below eps."""
    norms = [x.square().sum(dim).sqrt().clamp_min(eps) for x in (x1, x2)]
    return (x1 * x2).sum(dim) / (norms[0] * norms[1])

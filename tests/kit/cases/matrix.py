"""Products of matrices."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from kit.cases.case import Case, distinct, uniform
from torch.nn import functional as F

OWN: dict[str, Callable[..., Any]] = {
    "transpose": lambda A: A.mT.contiguous(),
    "cross": torch.linalg.cross,
    "linear": F.linear,
    "bilinear": F.bilinear,
    "diagonal": torch.linalg.diagonal,
    "quadratic_form": lambda x, A: torch.einsum("...i,ij,...j->...", x, A, x),
    "gram": lambda A: A @ A.mT,
    "khatri_rao": lambda A, B: torch.einsum("ik,jk->ijk", A, B).flatten(0, 1),
    "multi_dot": lambda *matrices: torch.linalg.multi_dot(matrices),
    "tucker": lambda *tensors: torch.einsum("lmr,il,jm,kr->ijk", *tensors),
    "parafac": lambda *matrices: torch.einsum("ir,jr,kr->ijk", *matrices),
}


def matrix() -> Iterator[Case]:
    for batch in ((), (2,), (2, 3), (1, 2)):
        yield Case("transpose", f"{[*batch, 3, 4]}", [distinct((*batch, 3, 4))])
        yield Case(
            "matmul",
            f"{[*batch, 4, 3]}",
            [uniform((*batch, 4, 3), -1, 1), uniform((*batch, 3, 5), -1, 1, 1)],
        )
        yield Case("cross", f"{[*batch, 3]}", shaped((*batch, 3), (*batch, 3)))


def linear() -> Iterator[Case]:
    for batch, biased in product(((), (2,), (2, 3)), (False, True)):
        yield Case(
            "linear",
            f"{[*batch, 4]} bias={biased}",
            [
                *(uniform((*batch, 4), -1, 1), uniform((5, 4), -1, 1, 1)),
                uniform((5,), -1, 1, 2) if biased else None,
            ],
        )


def shaped(*shapes: tuple[int, ...]) -> list[torch.Tensor | None]:
    """A tensor of each shape."""
    return [uniform(shape, -1, 1, seed) for seed, shape in enumerate(shapes)]


def contractions() -> Iterator[Case]:
    for name, *shapes in (
        ("dot", (5,), (5,)),
        ("mv", (3, 4), (4,)),
        ("outer", (3,), (4,)),
        ("trace", (4, 4)),
        ("kron", (2, 3), (5, 4)),
        ("khatri_rao", (2, 4), (3, 4)),
        ("multi_dot", (2, 3), (3, 5), (5, 4)),
        ("tucker", (2, 3, 4), (5, 2), (6, 3), (7, 4)),
        ("parafac", (2, 5), (3, 5), (4, 5)),
    ):
        label = " ".join(f"{list(shape)}" for shape in shapes)
        yield Case(name, label, shaped(*shapes))
    for beta, alpha in ((1, 1), (0.5, -2)):
        given = {"beta": beta, "alpha": alpha}
        label = f"beta={beta} alpha={alpha}"
        yield Case("addmm", label, shaped((3, 4), (3, 5), (5, 4)), given)
        yield Case("baddbmm", label, shaped((2, 3, 4), (2, 3, 5), (2, 5, 4)), given)


def of_batches() -> Iterator[Case]:
    for batch in ((), (2,), (2, 3)):
        yield Case("gram", f"{[*batch, 4, 5]}", shaped((*batch, 4, 5)))
        for name in ("diagonal", "diag_embed"):
            shape = (*batch, 4, 4) if name == "diagonal" else (*batch, 4)
            yield Case(name, f"{list(shape)}", shaped(shape))
        for name, diagonal in product(("tril", "triu"), (0, -1)):
            yield Case(
                name,
                f"{[*batch, 4, 5]} diagonal={diagonal}",
                shaped((*batch, 4, 5)),
                {"diagonal": diagonal},
            )
        yield Case("quadratic_form", f"{[*batch, 4]}", shaped((*batch, 4), (4, 4)))
        for biased in (False, True):
            yield Case(
                "bilinear",
                f"{[*batch, 4]} bias={biased}",
                [
                    *(uniform((*batch, 4), -1, 1), uniform((*batch, 5), -1, 1, 1)),
                    uniform((6, 4, 5), -1, 1, 2),
                    uniform((6,), -1, 1, 3) if biased else None,
                ],
            )

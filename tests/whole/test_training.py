"""Generated functions in training: half precision, autocast, mixed dtypes."""

from contextlib import nullcontext

import pytest
import torch
from kit.cases import CASES
from kit.cases.case import Case, generated
from kit.each import some_now, try_all

NAMES = sorted({case.name for case in CASES})
ROUGH = {"softmax", "softmin", "segment_softmax"}
"""The exact gradient is 0 where the cotangent is alike everywhere."""


def of(name: str) -> list[Case]:
    return [case for case in CASES if case.name == name]


def called(case: Case, tensors: list[torch.Tensor | None], autocast: bool = False):
    """The value, its gradients, and what these are of."""
    leaves = [tensors[n] for n in case.floating() if n not in case.opaque]
    leaves = [x.requires_grad_() for x in leaves]
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        y = case.call(*tensors)
    grads = torch.autograd.grad(y, leaves, torch.ones_like(y), allow_unused=True)
    return y, grads, leaves


def in_dtypes(case: Case, dtypes: tuple[torch.dtype, torch.dtype]) -> list[torch.Tensor | None]:
    """The tensors of a case, every second floating-point one in the second dtype."""
    places = case.floating()
    return [
        x.to(dtypes[places.index(n) % 2]) if n in places and x is not None else x
        for n, x in enumerate(case.tensors())
    ]


KINDS = {
    "mixed": (torch.float32, torch.bfloat16),
    "autocast": (torch.float32, torch.float32),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "float16": (torch.float16, torch.float16),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kinds", some_now([["mixed", "autocast"], ["bfloat16", "float16"]], 1), ids="-".join
)
def test_half_precision_mixed_dtypes_and_autocast(name, kinds):
    """Values and gradients are those of float64 at the same numbers, as near as half precision is.

    The numbers are those that half precision has: a condition may hold at these and not at others.
    """
    rows = [(kind, case.label, case) for kind in kinds for case in of(name)[:2]]
    try_all(rows, lambda kind, label, case: assert_near(case, kind))


def assert_near(case: Case, kind: str) -> None:
    tensors = in_dtypes(case, KINDS[kind])
    y, grads, leaves = called(case, tensors, kind == "autocast")
    assert all(g is None or g.dtype == x.dtype for g, x in zip(grads, leaves, strict=True))
    same = [x if x is None or not x.is_floating_point() else x.detach().double() for x in tensors]
    exact, wanted, _ = called(case, same)
    for found, right in zip((y, *grads), (exact, *wanted), strict=True):
        if right is None or case.name in ROUGH or not right.is_floating_point():
            continue
        size = right.detach().abs().max().item() if right.numel() else 0
        near = {"rtol": 0, "atol": 0.06 * size + 6e-5, "equal_nan": True}
        torch.testing.assert_close(found.detach().double(), right.detach(), **near)


class _Dropped(torch.autograd.Function):
    """Passes on no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, G):
        return None


def test_a_backward_without_a_cotangent_runs_inside_autocast():
    query, key, value = (torch.randn(2, n, 5, requires_grad=True) for n in (3, 4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        y = generated("scaled_dot_product_attention")(query, key, value, None)
        _Dropped.apply(y).sum().backward()
    assert query.grad is None

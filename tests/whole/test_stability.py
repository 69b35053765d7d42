"""float32 at logits of several hundred: finite, and equal to float64, forward and backward."""

from itertools import product
from typing import Any

import pytest
import torch
from kit.cases.case import generated
from kit.each import each_row

SCALE = 300
REDUCTIONS = ("mean", "sum", "none")


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Values of float32, whose float64 copies are the same numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run(name: str, tensors: list[Any], parameters: dict[str, Any], dtype: torch.dtype) -> list[Any]:
    """The value, and the gradient of each floating-point tensor."""
    given = [
        x.to(dtype).requires_grad_() if x is not None and x.is_floating_point() else x
        for x in tensors
    ]
    result = generated(name)(*given, **parameters)
    G = randn(*result.shape, seed=9).to(dtype)
    wanted = [x for x in given if x is not None and x.is_floating_point()]
    return [result, *torch.autograd.grad(result, wanted, G)]


def assert_stable(name: str, tensors: list[Any], **parameters: Any) -> None:
    """Each result of float32 differs from that of float64 by rounding only."""
    single = run(name, tensors, parameters, torch.float32)
    double = run(name, tensors, parameters, torch.float64)
    for n, (a, b) in enumerate(zip(single, double, strict=True)):
        what = "the value" if n == 0 else f"gradient {n - 1}"
        assert torch.isfinite(a).all(), f"{what} of {name} is not finite"
        bound = 1e-5 * max(1.0, b.abs().max().item())
        torch.testing.assert_close(
            a.double(), b, rtol=2e-5, atol=bound, msg=lambda m, w=what: w + m
        )


@each_row("name", "softmax log_softmax logsumexp".split())
@each_row("dim", (0, 1, -1))
@each_row("shift", (0.0, 1000.0, -1000.0))
def test_large_logits(name, dim, shift):
    assert_stable(name, [SCALE * randn(4, 7, 5) + shift], dim=dim)


@pytest.mark.parametrize("name", "softmax log_softmax logsumexp".split())
def test_a_single_large_logit(name):
    A = torch.zeros(3, 5)
    A[:, 2] = 1e4
    assert_stable(name, [A], dim=1)


@pytest.mark.parametrize(("reduction", "weighted"), list(product(REDUCTIONS, (False, True))))
def test_nll_loss_of_large_logits(reduction, weighted):
    A = torch.log_softmax(SCALE * randn(6, 5), 1)
    weight = randn(5, seed=1).abs() + 0.1 if weighted else None
    T = torch.tensor([0, 4, -100, 2, 2, 1])
    assert_stable("nll_loss", [A, T, weight], reduction=reduction)


@each_row(
    "reduction, weighted, biased, smoothing",
    list(product(REDUCTIONS, (False, True), (False, True), (0.0, 0.1))),
)
def test_linear_cross_entropy_of_large_logits(reduction, weighted, biased, smoothing):
    A, L = randn(6, 3), SCALE * randn(5, 3, seed=1)
    bias = SCALE * randn(5, seed=2) if biased else None
    weight = randn(5, seed=3).abs() + 0.1 if weighted else None
    T = torch.tensor([0, 4, -100, 2, 2, 1])
    assert_stable(
        "linear_cross_entropy",
        [A, L, T, bias, weight],
        reduction=reduction,
        label_smoothing=smoothing,
    )

"""Kernels that are read in one order where they have the same value in both."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kit.each import each_row

import derive
from derive.algebra.interpret import evaluate
from derive.pipeline import derive_option
from derive.reports.derivation import symmetric

LINE = "op f(x[i,k], w[i,j]; size(j)=size(i)) -> y\n"
KERNELS = {
    "exp(-sum[k]((x[i,k] - x[j,k])**2))": True,
    "sum[k](x[i,k]*x[j,k]) + 1": True,
    "sum[k](abs(x[i,k] - x[j,k]))": True,
    "sum[k](sin(x[i,k] - x[j,k]))": False,
    "sum[k]((x[i,k] - x[j,k])**3)": False,
    "sum[k](x[i,k]*x[j,k])*(i - j)": False,
    "sum[k](x[i,k]*x[j,k])*w[i,j]": False,
}


@each_row("kernel", KERNELS)
def test_a_tensor_is_symmetric_by_its_equation(kernel):
    op = derive.parse(LINE + f"K[i,j] = {kernel}\ny[i] = sum[j](w[i,j]*K[i,j])")
    assert bool(symmetric(derive_option(op, None).lets)) == KERNELS[kernel]


def test_a_gradient_reads_it_in_one_order():
    text = (
        "op f(x[i,k]; size(j)=size(i)) -> y\nK[i,j] = exp(-sum[k]((x[i,k] - x[j,k])**2))\n"
        "y = sum[i,j](K[i,j])"
    )
    d = derive.derivation(derive.parse(text))
    (f,) = d.shown
    assert str(f) == "grad_x[i,k] = 4·G·Σⱼ K[i,j]·(x[j,k] − x[i,k])"
    assert "symmetry" in {step.rule for step in f.steps}
    assert "K[i′,i]" in str(d.gradients["x"])
    torch.manual_seed(2)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    K = torch.exp(-(x[:, None] - x).square().sum(-1))
    (expected,) = torch.autograd.grad(0.7 * K.sum(), x)
    values = {"x": x.detach().numpy(), "K": K.detach().numpy(), "G": np.array(0.7)}
    for at in torch.cartesian_prod(torch.arange(3), torch.arange(4)).tolist():
        here = dict(zip(f.axes, at, strict=True))
        found = evaluate(f.body, values, {"i": 3, "j": 3, "k": 4}, here, {})
        assert found == pytest.approx(expected[tuple(at)].item(), rel=1e-12)

"""Softmax beside log_softmax: the value does not depend on which gradients are wanted."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

import derive

TEXT = """op f(x[n,k], y[n,k], w[k]) -> L
F[n,k] = x[n,k] + y[n,k] - logsumexp[k](x[n,k] + y[n,k])
L = sum[n,k](w[k]*exp(F[n,k]) + w[k]**2*F[n,k])"""


@pytest.mark.parametrize(
    "wanted", [c for n in (1, 2, 3) for c in combinations("xyw", n)], ids="".join
)
def test_gradients_of_any_inputs_are_those_of_autograd(wanted):
    f = derive.load(derive.parse(TEXT))
    tensors = {
        "x": torch.randn(2, 3, dtype=torch.float64),
        "y": torch.randn(2, 3, dtype=torch.float64),
        "w": torch.rand(3, dtype=torch.float64),
    }
    leaves = [tensors[name].requires_grad_() for name in wanted]
    F = torch.log_softmax(tensors["x"] + tensors["y"], 1)
    want = torch.autograd.grad((tensors["w"] * F.exp() + tensors["w"] ** 2 * F).sum(), leaves)
    made = torch.autograd.grad(f(*tensors.values()), leaves)
    torch.testing.assert_close(made, want)


def test_each_is_computed_only_where_it_is_wanted():
    text = derive.source(derive.parse(TEXT))
    backward = text[text.index("def backward") :]
    assert backward.count("torch.log_softmax(") == 1
    assert backward.count("torch.softmax(") <= 1

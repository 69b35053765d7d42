"""Slopes of what is rectified: of its value where that has a name, else of what stands inside."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kit.lowered import assert_right

import derive
from derive.check.verify import checks_of

SLOPES = {
    "op f(x[n,k], W[k,c], b[c]) -> y\ny[n,c] = relu(sum[k](x[n,k]*W[k,c]) + b[c])": "[y[n,c] > 0]",
    "op f(x[n,k], W[k,c]) -> y\nh[n,c] = relu(sum[k](x[n,k]*W[k,c]))\ny[n] = sum[c](h[n,c])": (
        "[h[n,c] > 0]"
    ),
    "op f(x[n], t[n]) -> y\ny = mean[n](relu(1 - t[n]*x[n]))": "[1 − x[n]·t[n] > 0]",
    "op f(x[n]) -> y\ny[n] = relu(x[n])": "[x[n] > 0]",
    "op f(x[n,k], W[k,c], v[c]) -> y\ny[n] = sum[c](v[c]*relu(sum[k](x[n,k]*W[k,c])))": (
        "[u[n,c] > 0]"
    ),
}


@pytest.mark.parametrize("text", SLOPES)
def test_the_bracket_is_of_what_is_at_hand(text):
    op = derive.parse(text)
    assert SLOPES[text] in str(derive.derivation(op)) and "relu(" not in "".join(
        line for line in str(derive.derivation(op)).splitlines() if "> 0]" in line
    )
    assert_right(text)
    assert all(c.ok for c in checks_of(op, derive.load(op)))


def test_a_slope_at_0_is_0_and_that_of_a_nan_is_1():
    text = next(iter(SLOPES))
    x = torch.tensor([[0.0], [torch.nan], [1.0]], requires_grad=True)
    y = derive.load(derive.parse(text))(x, torch.ones(1, 1), torch.zeros(1))
    (grad,) = torch.autograd.grad(y.sum(), x)
    np.testing.assert_array_equal(grad.numpy(), [[0], [1], [1]])

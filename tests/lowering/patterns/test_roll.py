"""What leaves an axis at one end and comes in at the other is one call, in both directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kit.lines import made
from kit.lowered import assert_code, assert_right
from kit.recognised import named

from derive import load
from derive.api import source

RINGS = {
    "op f(x[n,t]) -> y\ny[n,t] = where(t >= 1, x[n,t - 1], x[n,t - 1 + size(t)])": (
        ["y = x.roll(1, 1)"],
        ["grad_x = G.roll(-1, 1)"],
    ),
    # More than a read is rolled, and what stands beside is not.
    "op f(x[t,n], w[t]) -> y\n"
    "y[t,n] = w[t]*where(t < size(t) - 1, x[t + 1,n]**3, x[t + 1 - size(t),n]**3)": (
        ["y = w.unsqueeze(1) * (x ** 3).roll(-1, 0)"],
        None,
    ),
    "op f(x[n,t]; s=2) -> y\ny[n,t] = exp(x[n,(t - s) % size(t)])": (
        ["y = x.roll(s, 1).exp()"],
        ["grad_x = (G * y).roll(-s, 1)"],
    ),
    "op f(x[n,t]; s=9) -> y\ny[n,t] = x[n,(t + s) % size(t)]*x[n,t]": (
        ["y = x * x.roll(-s, 1)"],
        ["grad_x = G * x.roll(-s, 1) + (G * x).roll(s, 1)"],
    ),
}


@pytest.mark.parametrize("text", RINGS, ids=named)
def test_a_ring_is_one_call(text):
    assert_code(text, *RINGS[text])
    assert_right(text)


OTHERS = (
    # One position is read twice.
    "op f(x[n,t]) -> y\ny[n,t] = where(t >= 1, x[n,t - 1], x[n,t])",
    "op f(x[n,t]) -> y\ny[n,t] = where(t >= 2, x[n,t - 2], -x[n,t - 2 + size(t)])",
    "op f(x[n,t], z[n,t]) -> y\ny[n,t] = where(t >= 2, x[n,t - 2], z[n,t - 2 + size(t)])",
    "op f(x[n,t], w[t]) -> y\n"
    "y[n,t] = where(t >= 2, w[t]*x[n,t - 2], w[t]**2*x[n,t - 2 + size(t)])",
    "op f(x[n,t]; size(j)=3) -> y\ny[n,j] = x[n,(j + 2) % size(t)]",
    "op f(x[n,t]) -> y\ny[n,t] = x[n,(2*t) % size(t)]",
    "op f(x[n,t]) -> y\ny[n,t] = x[n,(size(t) - 1 - t) % size(t)]",
)


@pytest.mark.parametrize("text", OTHERS, ids=named)
def test_what_is_none_stays(text):
    assert "roll(" not in source(made(text))
    assert_right(text)


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("shift", [-7, 0, 3, 5])
def test_of_any_size_by_any_shift(size, shift):
    f = load(made("op f(x[n,t]; s=1) -> y\ny[n,t] = x[n,(t - s) % size(t)]**2"))
    x = torch.rand(3, size, dtype=torch.float64, requires_grad=True)
    y = f(x, s=shift)
    np.testing.assert_allclose(y.detach(), np.roll(x.detach().numpy() ** 2, shift, 1))
    (found,) = torch.autograd.grad(y.square().sum(), x)
    torch.testing.assert_close(found, 4 * x**3)

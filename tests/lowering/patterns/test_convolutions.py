"""Operands are brought into the layout of torch's convolutions, and results out of it."""

import pytest
import torch
from kit.lowered import assert_code, assert_right

import derive

PLAIN = "op f(x[n,c,u], w[o,c,k]) -> y\ny[n,o,t] = sum[c,k](x[n,c,2*t+k]*w[o,c,k])"
OTHERS = {
    "other layouts": "op f(x[u,c], w[k,c,m]) -> y\ny[m,t] = sum[c,k](x[t+k,c]*w[k,c,m])",
    "turned": "op f(x[c,u], w[c,k]) -> y\ny[t] = sum[c,k](x[c,t+size(k)-1-k]*w[c,k])",
    "of one channel": "op f(x[u], w[k]) -> y\ny[t] = sum[k](x[t+k]*w[k])",
}


def test_the_plain_layout_is_one_call_in_both_directions():
    assert_code(
        PLAIN,
        ["y = torch.nn.functional.conv1d(x, w, stride=2)"],
        [
            "grad_x = torch.nn.grad.conv1d_input(x_shape, w, G, stride=2)",
            "grad_w = torch.nn.grad.conv1d_weight(x, w_shape, G, stride=2)",
        ],
    )
    assert_right(PLAIN)


@pytest.mark.parametrize("name", OTHERS)
def test_other_layouts_compute_the_same(name):
    assert_right(OTHERS[name])


def test_rows_are_pooled_where_there_are_none():
    f = derive.load(derive.parse("op f(x[n,s]; size(u)=3) -> y\ny[n,t] = mean[u](x[n,t+u])"))
    for n in (0, 2):
        x = torch.randn(n, 5, requires_grad=True)
        y = f(x)
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert y.shape == (n, 3) and grad.shape == (n, 5)
        torch.testing.assert_close(y, torch.nn.functional.avg_pool1d(x.unsqueeze(1), 3, 1)[:, 0])

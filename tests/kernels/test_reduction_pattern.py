"""The backward of log_softmax where what is summed along its axis is known."""

from __future__ import annotations

import pytest
import torch
from kit.unwritten import first_order

import derive
from derive.kernels.recognise import summed_rows

HEAD = "op f(x[n,k], t[n]: int, a[n], v[k], m[n]: bool) -> y\nl[n,k] = log_softmax[k](x[n,k])\n"
FOUND = (
    "y[] = -sum[n](where(m[n], a[n], v[0])*l[n,t[n]]*(1 + l[n,t[n]]))",
    "y[n] = where(m[n], a[n]**2, 3)*l[n,t[n]]*sum[k](v[k]*l[n,k])",
    "y[] = sum[n](where(m[n], a[n]*exp(l[n,t[n]]) + mean[k](v[k]*l[n,k]), 0))",
)
OTHER = "y[] = sum[n](l[n,t[n]] + sum[k](v[k]*where(m[n], a[n], 2)*exp(x[n,k])*l[n,k]))"


@pytest.mark.parametrize("text", FOUND)
def test_it_is_called(text):
    op = derive.parse(HEAD + text)
    assert first_order(derive.source(op)).count("_log_softmax_backward_data(") == 1
    right(op)


def test_what_is_beside_the_softmax_may_have_another_sum():
    right(derive.parse(HEAD + OTHER))


def test_a_row_that_is_masked_has_no_gradient_whatever_stands_in_it():
    f = derive.load(derive.parse(HEAD + FOUND[2]))
    x, t, a, v, m = given()
    x = x.detach().clone()
    x[1, 0] = float("nan")
    x.requires_grad_()
    f(x, t, a, v, m).backward()
    assert not m[1] and x.grad[1].tolist() == [0, 0, 0, 0] and x.grad[0].isfinite().all()


def given():
    torch.manual_seed(1)
    x, a, v = (torch.rand(s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (3,), (4,)))
    return x, torch.tensor([2, 0, 3]), a, v, torch.tensor([True, False, True])


def right(op):
    f = derive.load(op)
    x, t, a, v, m = given()
    grads = []
    for graph in (False, True):
        y = f(x, t, a, v, m).sum()
        grads.append(torch.autograd.grad(y, (x,), create_graph=graph)[0].detach())
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-13)
    assert torch.autograd.gradcheck(lambda *xs: f(xs[0], t, *xs[1:], m), (x, a, v))
    assert torch.autograd.gradgradcheck(lambda *xs: f(xs[0], t, *xs[1:], m), (x, a, v))


def test_only_an_equation_that_subtracts_a_multiple_of_the_sum_has_a_row():
    assert [row.row.name for row in summed_rows({"y"})] == ["log_softmax backward"]
    assert summed_rows(()) == ()

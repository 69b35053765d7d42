"""Tensors look otherwise from outside: groups as their axes, composites as one."""

import torch

from derive import load, parse


def test_an_axis_that_a_flag_keeps_has_size_1():
    op = parse("op f(x[*p,k]; keepdim=keep(k)) -> y\ny[*p] = sum[k](x[*p,k])")
    x = torch.ones(2, 3, 4)
    assert load(op)(x).shape == (2, 3)
    assert load(op)(x, keepdim=True).shape == (2, 3, 1)


def test_a_composite_axis_is_one_axis_outside():
    f = load(parse("op f(x[n,t,d]) -> y\ny[n,(t d)] = 2*x[n,t,d]"))
    x = torch.rand(2, 3, 5, dtype=torch.float64, requires_grad=True)
    y = f(x)
    assert torch.equal(y, 2 * x.detach().reshape(2, 15))
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((2, 3, 5), 2.0).double())

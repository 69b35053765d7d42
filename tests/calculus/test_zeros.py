"""A factor that is 0 where a bracket is needs it no more, unless beside what may be infinite."""

from __future__ import annotations

import pytest
import torch

import derive

HEAD = "op f(x[n], w[n]; a=0.0) -> y\n"


def test_a_gradient_has_the_number_without_its_bracket():
    op = derive.parse(HEAD + "y[n] = where(a != 0, a**2*x[n]*w[n], 0)")
    assert "a ≠ 0" not in str(derive.derivation(op)).split("gradients")[1]
    assert "!= 0" not in derive.source(op).split("def backward")[1].split("return")[0]


@pytest.mark.parametrize("a", [0.0, 0.5])
def test_what_is_infinite_keeps_it(a):
    op = derive.parse(HEAD + "h[n] = log(x[n])\ny[n] = where(a != 0, a*h[n]*w[n], 0)")
    f = derive.load(op)
    x = torch.tensor([0.0, 2.0], dtype=torch.float64, requires_grad=True)
    w = torch.tensor([1.5, 0.5], dtype=torch.float64, requires_grad=True)
    y = f(x, w, a=a)
    expected = torch.where(torch.tensor(a != 0), a * x.log() * w, 0)
    assert torch.equal(y, expected)
    (grad,) = torch.autograd.grad(y.sum(), [w])
    assert torch.equal(grad, a * x.detach().log() if a else torch.zeros(2, dtype=grad.dtype))


@pytest.mark.parametrize("base", ["x[n]", "abs(x[n])", "(1 - sum[n](x[n]))", "relu(x[n])"])
@pytest.mark.parametrize("p", [0, 1, 2, 3])
def test_a_power_of_zero_is_flat_at_zero(base, p):
    """p*x^(p - 1) is 0*inf for p = 0 and x = 0, where torch has 0."""
    f = derive.load(derive.parse(f"op f(x[n]; p=2) -> y\ny[n] = {base}**p"))
    x = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    names = {"x[n]": x, "abs(x[n])": x.abs(), "relu(x[n])": x.relu()}
    own = names.get(base, 1 - x.sum()).expand(3) ** p
    for create_graph in (False, True):
        (found,) = torch.autograd.grad(f(x, p=p).sum(), x, create_graph=create_graph)
        (wanted,) = torch.autograd.grad(own.sum(), x, retain_graph=True)
        assert torch.equal(found, wanted)

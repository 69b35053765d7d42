"""Outputs and gradients in one function, each computed once, without autograd."""

import pytest
import torch

import derive
from derive import parse

OP = parse("op f(x[n], w[n]) -> L\nL = mean[n]((x[n]*w[n])**2)")


def test_what_both_directions_read_is_computed_once():
    text = derive.value_and_grad(OP).__doc__
    assert text == "Returns L and a dict of the gradients by name, of x[n] and w[n]."
    from derive.joint import value_and_grad_source

    code = value_and_grad_source(OP)
    assert code.count("w.square()") == code.count("x.square()") == 1
    assert "autograd" not in code and "ctx" not in code


def test_gradients_are_those_of_autograd():
    x, w = (torch.rand(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    value, gradients = derive.value_and_grad(OP)(x.detach(), w.detach())
    want = ((x * w) ** 2).mean()
    torch.testing.assert_close(value, want.detach())
    for g, b in zip(gradients.values(), torch.autograd.grad(want, (x, w)), strict=True):
        torch.testing.assert_close(g, b)


def test_an_output_with_axes_has_a_cotangent():
    op = parse("op f(x[n]) -> y\ny[n] = x[n]**2")
    x = torch.tensor([1.0, 2.0, 3.0])
    y, gradients = derive.value_and_grad(op)(x, G=torch.tensor([1.0, 10.0, 100.0]))
    assert y.tolist() == [1, 4, 9]
    assert gradients["x"].tolist() == [2, 40, 600]
    with pytest.raises(ValueError, match=r"f: G must have the shape of y, not \(2,\)"):
        derive.value_and_grad(op)(x, G=torch.ones(2))


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4)])
def test_groups_are_of_any_number_of_axes(shape):
    op = parse("op f(x[*p,k]) -> y\ny[*p] = sum[k](x[*p,k]**2)")
    x = torch.rand(shape, dtype=torch.float64)
    G = torch.rand(shape[:-1], dtype=torch.float64)
    y, gradients = derive.value_and_grad(op)(x, G=G)
    torch.testing.assert_close(y, (x**2).sum(-1))
    torch.testing.assert_close(gradients["x"], 2 * x * G.unsqueeze(-1))


def test_a_composite_axis_is_one_axis_of_a_gradient():
    op = parse("op f(x[n,(t d)], w[d]; size(t)=2) -> L\nL = sum[n,t,d](x[n,(t d)]*w[d])")
    x, w = torch.rand(3, 10).double(), torch.rand(5).double()
    value, gradients = derive.value_and_grad(op)(x, w)
    torch.testing.assert_close(value, (x.reshape(3, 2, 5) * w).sum())
    torch.testing.assert_close(gradients["x"], w.repeat(2).expand(3, 10))
    torch.testing.assert_close(gradients["w"], x.reshape(6, 5).sum(0))


ALIASES = {
    "op f(x[n], w[n]) -> y\ny = sum[n](x[n]*w[n])": ((5,), (5,)),
    "op f(x[n,k], w[(n k)]) -> y\ny = sum[n,k](x[n,k]*w[(n k)])": ((3, 4), (12,)),
    "op f(x[n,k], w[n,k]) -> y\ny = mean[n](sum[k](x[n,k]*w[n,k]))*size(n)": ((3, 4), (3, 4)),
}


@pytest.mark.parametrize("text", ALIASES)
def test_gradients_may_be_changed_in_place(text):
    x, w = given = [torch.randn(shape) for shape in ALIASES[text]]
    before = [t.clone() for t in given]
    _, gradients = derive.value_and_grad(parse(text))(x, w)
    expected = gradients["w"].clone()
    gradients["x"].mul_(0)
    assert torch.equal(gradients["w"], expected)
    gradients["w"].mul_(0)
    assert all(torch.equal(t, old) for t, old in zip(given, before, strict=True))

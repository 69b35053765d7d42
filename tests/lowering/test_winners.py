"""The positions of the largest, kept by the forward for the first derivative."""

import pytest
import torch
from kit.lines import defined

import derive

LARGEST = "op f(x[n,c,t], w[k]) -> y\ny[n,c,k] = w[k]*max[t](x[n,c,t]*x[n,c,0])"


def test_the_backward_looks_for_no_winner_again():
    source = derive.source(derive.parse("op f(x[n,t]) -> y\ny[n] = max[t](sin(x[n,t]))"))
    first = source.partition("def backward(")[2].partition("\n\n\n")[0]
    assert "winner" in first
    assert ".max(" not in first


def test_winners_are_kept_in_their_own_dtype_and_have_no_gradient():
    f = derive.load(derive.parse(LARGEST))
    x = torch.randn(2, 3, 5, dtype=torch.float16, requires_grad=True)
    w = torch.randn(4, dtype=torch.float16, requires_grad=True)
    found = torch.autograd.grad(f(x, w).sum(), (x, w))
    y = w * (x * x[..., :1]).max(2, keepdim=True).values
    torch.testing.assert_close(found, torch.autograd.grad(y.sum(), (x, w)), rtol=1e-2, atol=1e-2)
    x, w = x.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    assert torch.autograd.gradgradcheck(f, (x, w))


@pytest.mark.parametrize("outputs", ["y, place", "place, y"])
@pytest.mark.parametrize("kind", ["min", "max"])
def test_an_extremum_and_its_position_are_outputs_together(outputs, kind):
    lines = f"y[n] = {kind}[t](x[n,t]**2)", f"place[n] = arg{kind}[t](x[n,t]**2)"
    f = derive.load(derive.parse("\n".join([f"op f(x[n,t]) -> {outputs}", *lines])))
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    made = dict(zip(outputs.split(", "), f(x), strict=True))
    right = getattr(x.square(), kind)(1)
    assert torch.equal(made["place"], right.indices)
    ours, theirs = (torch.autograd.grad(y.sum(), x)[0] for y in (made["y"], right.values))
    torch.testing.assert_close(ours, theirs)


def test_winners_are_kept_for_the_backward_of_any_order_alone():
    """The gradient of v has no first order of its own, and reads the winner."""
    op = derive.parse(
        "op f(v[j], k[i]: int, q[p], w[l]) -> y\n"
        "u[l] = sum[a](min[i](where(i != a, v[0]*k[i], inf)))*w[l]\n"
        "y[p,j] = softmax[p](norm2[l](u[l])*q[p])*sum[c | c <= j](v[c])"
    )
    draw = torch.Generator().manual_seed(0)
    v, q, w = (torch.rand(n, generator=draw).double().requires_grad_() for n in (3, 5, 2))
    k = torch.tensor([3, 1, 4, 2])

    made = (f(v, k, q, w).sin().sum() for f in (derive.load(op), defined(op)))
    torch.testing.assert_close(*(torch.autograd.grad(total, (v, q, w)) for total in made))

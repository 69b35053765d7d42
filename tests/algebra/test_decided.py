"""Conditions on numbers are decided; an equation of truths stays one."""

import pytest
import torch

import derive


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("(2 < 0.8) and x[n] < 9", lambda x: x != x),
        ("2 < 0.8", lambda x: x != x),
        ("(2 > 0.8) or x[n] < 9", lambda x: x == x),
        ("(2 > 0.8) and x[n] < 9", lambda x: x < 9),
    ],
)
def test_an_equation_of_truths(condition, holds):
    f = derive.load(derive.parse(f"op f(x[n]) -> y, e\ny[n] = x[n]\ne[n] = {condition}"))
    x = torch.tensor([1.0, 10.0])
    assert torch.equal(f(x)[1], holds(x))


def test_the_branches_of_a_constant_position():
    text = "op f(a, b, c; size(m)=3) -> y\ny = logsumexp[m](where(m == 0, a, where(m == 1, b, c)))"
    found = derive.derivation(derive.parse(text)).gradients
    assert str(found["b"]) == "grad_b = G·exp(b − y)"


def test_a_condition_and_its_complement_are_one():
    text = "op f(x[c], t[c]) -> y\ny[c] = where(x[c] >= t[c], x[c]**2, x[c]*(t[c]*x[c]/t[c]))"
    assert str(derive.derivation(derive.parse(text)).gradients["x"]) == "grad_x[c] = 2·G[c]·x[c]"


def test_what_is_another_number_and_the_number_are_one():
    """Of a nan too, which is another; the guard of one alone is no such."""
    text = "op f(x[c], t[c]) -> y\ny[c] = where(t[c] != 0, sin(x[c]), 0) + [t[c] == 0]*sin(x[c])"
    op = derive.parse(text)
    assert str(derive.derivation(op).gradients["x"]) == "grad_x[c] = G[c]·cos(x[c])"
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.0, 3.0, torch.nan], dtype=torch.float64)
    (found,) = torch.autograd.grad(derive.load(op)(x, t).sum(), x)
    assert torch.equal(found, x.detach().cos())
    apart = "op f(x[c], t[c]) -> y\ny[c] = where(t[c] != 0, x[c]/t[c], x[c])"
    assert "where" in str(derive.derivation(derive.parse(apart)).gradients["x"])

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

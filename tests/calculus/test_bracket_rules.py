"""A bracket that another part of its term implies is gone; slopes of what is rectified."""

import numpy as np
import pytest
import torch
from kit.each import each_row
from kit.lowered import assert_right

import derive
from derive import derivation, parse
from derive.check.checks import checks_of

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


@each_row("base", ["x[n]", "abs(x[n])", "(1 - sum[n](x[n]))", "relu(x[n])"])
@each_row("p", [0, 1, 2, 3])
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


def gradient(text):
    return str(derive.derivation(derive.parse(text)).gradients["x"]).partition(" = ")[2]


def test_a_bracket_that_a_range_decides_is_gone():
    choice = "op f(x[n]) -> y\ny[n] = where({}, x[n]**2, 3*x[n])"
    assert gradient(choice.format("1 + x[n]**2 > 0")) == "2·G[n]·x[n]"
    assert gradient(choice.format("tanh(x[n]) <= 1")) == "2·G[n]·x[n]"
    assert gradient(choice.format("cosh(x[n]) < 1")) == "3·G[n]"
    # exp(-800) is 0 in float64: the value takes the other branch there.
    assert "exp(x[n]) > 0" in gradient(choice.format("exp(x[n]) > 0"))
    assert "tanh(x[n]) ≥ 1" in gradient(choice.format("tanh(x[n]) >= 1"))
    root = gradient("op f(x[g], s) -> y\ny = sum[g](x[g]**s)**(1/s)")
    assert root == "[s ≠ 0]·G·x[g]^(s − 1)·(Σ[g′] x[g′]^s)^(1/s − 1)"


def test_a_rectified_value_has_the_bracket_by_itself():
    assert gradient("op f(x[n]) -> y\ny[n] = relu(x[n])**2") == "2·G[n]·relu(x[n])"
    assert gradient("op f(x[n]) -> y\ny[n] = relu(2*x[n] - 1)**3") == "6·G[n]·relu(2·x[n] − 1)²"
    assert gradient("op f(x[n]) -> y\ny[n] = relu(x[n])").startswith("[x[n] > 0]")
    other = gradient("op f(x[n], z[n]) -> y\ny[n] = relu(x[n])*relu(z[n])")
    assert other == "[x[n] > 0]·G[n]·relu(z[n])"


def test_beside_what_may_be_infinite_it_stays():
    """relu(log x) is 0 at 0, where the slope of log is infinite."""
    assert "> 0]" in gradient("op f(x[n]) -> y\ny[n] = relu(log(x[n]))**2")
    f = derive.load(derive.parse("op f(x[n]) -> y\ny[n] = relu(log(x[n]))**2"))
    x = torch.tensor([0.0, 3.0], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(f(x).sum(), x)
    assert torch.equal(found[0], torch.zeros((), dtype=torch.float64))


@pytest.mark.parametrize("special", [float("nan"), float("inf"), -float("inf"), 0.0])
def test_a_squared_relu_is_as_in_torch_at(special):
    f = derive.load(derive.parse("op f(x[n]) -> y\ny[n] = relu(x[n])**2"))
    x = torch.tensor([special, 1.5, -1.5], dtype=torch.float64, requires_grad=True)
    for create_graph in (False, True):
        (found,) = torch.autograd.grad(f(x).sum(), x, create_graph=create_graph)
        (wanted,) = torch.autograd.grad((x.relu() ** 2).sum(), x)
        assert torch.equal(found.nan_to_num(7), wanted.nan_to_num(7))


def test_a_maximum_read_at_the_place_of_what_it_takes_asks_for_nothing():
    op = parse("op f(x[k], s[k]: int) -> y\ny[k] = max[j | s[j] == s[k]](x[j])*x[k]")
    found = str(derivation(op))
    assert "some" not in found and "any" not in found
    assert "grad_x[k] = G[k]·top[k] + " in found


def test_elsewhere_it_is_asked():
    op = parse("op f(m[k]: bool, z[n]) -> y\ny[n] = where(any[k](m[k]), z[n], 0)")
    assert str(derivation(op).gradients["z"]) == "grad_z[n] = [some]·G[n]"


SLOPES = {
    "op f(x[n,k], W[k,c], b[c]) -> y\ny[n,c] = relu(sum[k](x[n,k]*W[k,c]) + b[c])": "y[n,c] > 0]",
    "op f(x[n,k], W[k,c]) -> y\nh[n,c] = relu(sum[k](x[n,k]*W[k,c]))\ny[n] = sum[c](h[n,c])": (
        "h[n,c] > 0]"
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

"""Python numbers by IEEE 754: what has no value there is infinite or nan, and no error."""

import math

import pytest
import torch
from kit.lowered import assert_right
from kit.texts import source

from derive import load, parse
from derive.check.checks import checks_of
from derive.lowering.ground.numbers import math_call, quotient_of_numbers
from derive.lowering.ground.value import Frame
from derive.program.torch_ir import Binary, Dim, Literal, Name, text

NUMBERS = {
    "log(p)*x[n]": {0: -math.inf, -1: math.nan, 2: math.log(2)},
    "1/p*x[n]": {0: math.inf, 4: 0.25},
    "log(p)/p*x[n]": {0: -math.inf, 1: 0.0},
    "sqrt(p)*x[n]": {-1: math.nan, 9: 3.0},
    "p**(-1/2)*x[n]": {0: math.inf, 4: 0.5},
    "exp(p)*x[n]": {1000: math.inf, 0: 1.0},
    "lgamma(p)*x[n]": {0: math.inf, 2: 0.0},
    "1/(p*size(n))*x[n]": {0: math.inf, 2: 0.5},
}


@pytest.mark.parametrize("body", NUMBERS)
def test_a_parameter_has_no_error(body):
    f = load(parse(f"op f(x[n]; p=1) -> y\ny[n] = {body}"))
    for p, value in NUMBERS[body].items():
        found = f(torch.ones(1, dtype=torch.float64), p=p).item()
        assert found == pytest.approx(value, nan_ok=True)


def test_what_is_certain_stays_plain():
    p, n = Name("p"), Dim("n")
    assert text(math_call("tanh", p)) == "math.tanh(p)"
    assert text(math_call("log", p)) == "rt.ieee_call(math.log, p)"
    assert text(math_call("sqrt", Literal("2"))) == "math.sqrt(2)"
    over = [quotient_of_numbers(Frame(), p, q) for q in (Literal("2"), p, Binary("*", p, n))]
    assert text(over[0]) == "p / 2" and text(over[1]) == "rt.ieee_divide(p, p)"
    assert isinstance(over[2], Binary) and over[2].op == "/"


def test_a_branch_that_a_number_guards_is_verified():
    text = "op f(x[n]; p=2) -> y\ny[n] = where(x[n] > 0 and p > 0, log(p)*x[n]/p, 0)"
    assert_right(text)
    assert all(check.ok for check in checks_of(parse(text), load(parse(text))))
    f = load(parse(text))
    assert f(torch.tensor([1.0, -1.0]), p=0).tolist() == [0, 0]
    assert "rt.ieee_call(math.log, safe_p)" in source(parse(text))


def test_a_size_beside_a_tensor_in_a_divisor():
    """A mean over two axes under a condition on one of them divides by both."""
    op = parse("op f(v[i], w[j]) -> y\ny[j] = mean[d,i | d == j](w[d]*v[i])")
    v, w = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (3, 4))
    assert torch.autograd.gradcheck(load(op), (v, w))

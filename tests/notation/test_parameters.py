"""What follows the semicolon: parameters, defaults, choices, run-time axes."""

import math
import re
from fractions import Fraction

import pytest
import torch
from sympy import Eq, IndexedBase, Ne, symbols

from derive import Operation, SpecError, load, parse
from derive.check.samples import cases, sample
from derive.notation.operation import Number


def made(head, body="y[n] = x[n]*a"):
    return {p.name: p for p in parse(f"op f(x[n]; {head}) -> y; {body}").parameters}


def test_a_default_is_an_exact_number():
    assert made("a=0.1")["a"] == Number("a", Fraction(1, 10), False)
    assert made("a=2")["a"].default == 2
    assert made("a")["a"].default is None


def test_a_number_that_is_a_position_is_an_integer():
    assert made("a=1", "y[n] = where(n >= a, x[n-a], 0)")["a"].integer
    assert not made("a=1")["a"].integer


def test_a_number_may_have_bounds():
    text = "op f(x[n]; a=1, k=2, k != 0, a >= 1/2, a < 3) -> y\ny[n] = x[n]*a/k"
    op = parse(text)
    assert op.parameters[0] == Number("a", Fraction(1), False, ((">=", Fraction(1, 2)), ("<", 3)))
    assert parse(str(op)) == op
    assert op != parse("op f(x[n]; a=1, k=2) -> y\ny[n] = x[n]*a/k")
    x, y, n = IndexedBase("x"), IndexedBase("y"), symbols("n", integer=True)
    a, k = symbols("a k")
    bounds = [Ne(k, 0), a >= Fraction(1, 2), 3 > a]
    same = Operation("f", Eq(y[n], x[n] * a / k), parameters={a: 1, k: 2}, requires=bounds)
    assert same.parameters == op.parameters
    with pytest.raises(SpecError, match="is not a condition on a parameter"):
        Operation("f", Eq(y[n], x[n] * a), parameters={a: 1}, requires=[a + 1 > 0])


def test_a_call_with_a_number_that_is_not_allowed_is_an_error():
    f = load(parse("op f(x[n]; a, a > 1, k=2, k != 0) -> y\ny[n] = x[n]*a/k"))
    x = torch.ones(2)
    assert f(x, a=3).tolist() == [1.5, 1.5]
    for given, says in (
        ({"a": 1}, "f: a must be greater than 1, not 1.0"),
        ({"a": math.nan}, "f: a must be greater than 1, not nan"),
        ({"a": 2, "k": 0}, "f: k must be different from 0, not 0.0"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            f(x, **given)
    assert "a is greater than 1 and k is different from 0." in " ".join(f.__doc__.split())


@pytest.mark.parametrize("bounds", ["a > 1", "a < 0", "a > 0, a < 1/2", "a != 0"])
def test_samples_have_numbers_that_are_allowed(bounds):
    op = parse(f"op f(x[n]; a, {bounds}) -> y; y[n] = x[n]*a")
    load(op)(torch.ones(3), **sample(op, next(cases(op))).parameters)


def test_the_first_option_is_the_default_and_each_has_its_output():
    op = parse("op f(x[n]; how=mean|sum) -> mean: m | sum: s\ns = sum[n](x[n])\nm = s/size(n)")
    (choice,) = op.parameters
    assert choice.outputs == (("mean", "m"), ("sum", "s"))

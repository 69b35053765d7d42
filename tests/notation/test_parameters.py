"""What follows the semicolon: parameters, defaults, choices, run-time axes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from derive import SpecError, parse
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


def test_the_first_option_is_the_default_and_each_has_its_output():
    op = parse("op f(x[n]; how=mean|sum) -> mean: m | sum: s\ns = sum[n](x[n])\nm = s/size(n)")
    (choice,) = op.parameters
    assert choice.outputs == (("mean", "m"), ("sum", "s"))


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("a=1, a=2", "a"),
        ("a=b", "b"),
        ("a=axis(z)", "z"),
        ("a=size(z)", "z"),
        ("how=mean|sum", "how"),
    ],
)
def test_wrong_parameters_are_told(head, says):
    with pytest.raises(SpecError, match=rf"\b{says}\b"):
        made(head)

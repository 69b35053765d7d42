"""The value of what is made of numbers alone, and the refusal of what is none."""

from __future__ import annotations

import math

import pytest

from derive import SpecError, parse
from derive.algebra.expr import Access, Call, Const, Index, num
from derive.notation.numbers import number_of


def test_a_value_is_of_numbers_alone():
    assert number_of(Call("exp", (num(0),)) + num(2)) == 3
    assert number_of(Const("pi") * num(2)) == pytest.approx(2 * math.pi)
    assert number_of(Access("x", (Index("i", "i"),)) + num(1)) is None


@pytest.mark.parametrize("text", ["log(-1)", "log(0)", "sqrt(-2)", "asin(2)"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(SpecError):
        parse(f"y[i] = x[i] + {text}")

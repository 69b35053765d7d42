"""Values of expressions of numbers, against NumPy's functions of float64."""

from __future__ import annotations

import math
from itertools import product

import pytest
from kit.each import each_row

from derive.algebra.expr import Access, Call, Const, Index, Pow, num
from derive.algebra.functions import FUNCTIONS
from derive.algebra.reference_values import constant_value, function_at

POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 2.5, 3.7, 30.0, -30.0, 710.0, -800.0, 1e-9)
OF_WHOLE_NUMBERS = {"int", "floordiv"}


@each_row("name", sorted(set(FUNCTIONS) - OF_WHOLE_NUMBERS))
def test_a_function_has_the_value_that_numpy_has(name):
    function = FUNCTIONS[name]
    for arguments in product(POINTS, repeat=function.arity):
        if name == "polygamma" and arguments[0] not in (0, 1, 2):
            continue
        if name == "clamp" and arguments[1] > arguments[2]:
            continue
        wanted = float(function.numpy(*arguments))
        found = function_at(name, *arguments)
        assert found == pytest.approx(wanted, rel=1e-13, abs=1e-300, nan_ok=True), arguments


@pytest.mark.parametrize(
    ("e", "wanted"),
    [
        (Call("exp", (num(0),)) + num(2), 3.0),
        (Pow(num(2), num(-2)) * num(3), 0.75),
        (Pow(num(0), num(0)), 1.0),
        (Pow(num(0), num(-1)), math.inf),
        (Pow(num(-1), num(0.5)), math.nan),
        (Const("inf") + num(-1) * Const("inf"), math.nan),
        (Call("log", (num(0),)), -math.inf),
        (Call("int", (num(2.5),)), 2.0),
        (Call("floordiv", (num(-7), num(2))), -4.0),
    ],
)
def test_the_value_of_numbers(e, wanted):
    assert constant_value(e) == pytest.approx(wanted, nan_ok=True)


def test_what_reads_a_tensor_has_no_value():
    assert constant_value(Access("x", (Index("i", "i"),)) + num(1)) is None

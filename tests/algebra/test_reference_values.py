"""Reductions of Python numbers: of nothing, at ties, and of nan."""

import math
from itertools import product

import pytest
from kit.each import each_row

from derive.algebra.expr import Access, Call, Const, Index, Pow, num
from derive.algebra.functions import FUNCTIONS
from derive.algebra.reference_values import REDUCTIONS, constant_value, function_at


def of(kind, *values):
    return REDUCTIONS[kind](list(enumerate(values)))


@each_row(
    "kind, value",
    [
        *(("sum", 0), ("prod", 1), ("max", -math.inf), ("amax", -math.inf), ("min", math.inf)),
        *(("amin", math.inf), ("logsumexp", -math.inf), ("any", False), ("all", True)),
    ],
)
def test_of_nothing(kind, value):
    assert of(kind) == value


def test_the_mean_of_nothing_is_nan():
    assert math.isnan(of("mean"))
    assert of("mean", 1, 2, 6) == 3


def test_the_first_of_equal_values_wins_and_nan_before_all():
    assert of("argmax", 1, 5, 5) == 1
    assert of("argmin", 2, 5, 2) == 0
    assert math.isnan(of("max", 1, math.nan, 9))
    assert of("argmax", 1, math.nan, 9) == 1


def test_logsumexp_is_of_large_and_infinite_values_too():
    assert of("logsumexp", 1000.0, 1000.0) == pytest.approx(1000 + math.log(2))
    assert of("logsumexp", -math.inf, -math.inf) == -math.inf
    assert of("logsumexp", 1.0, math.inf) == math.inf


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


@each_row(
    "e, wanted",
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

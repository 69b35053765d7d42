"""Reductions of Python numbers: of nothing, at ties, and of nan."""

from __future__ import annotations

import math

import pytest

from derive.algebra.reference_values import REDUCTIONS


def of(kind, *values):
    return REDUCTIONS[kind](list(enumerate(values)))


@pytest.mark.parametrize(
    ("kind", "value"),
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

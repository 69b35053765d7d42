"""Powers of numbers: rational where they are, whole roots otherwise."""

from __future__ import annotations

from fractions import Fraction

import pytest

from derive.algebra.poly import add_root, is_root, rational_power

HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("value", "exponent", "power"),
    [
        (Fraction(4, 9), HALF, Fraction(2, 3)),
        (Fraction(8), Fraction(-2, 3), Fraction(1, 4)),
        (Fraction(2), HALF, None),
        (Fraction(-8), Fraction(1, 3), None),
        (Fraction(0), HALF, Fraction(0)),
        (Fraction(0), Fraction(-1), None),
        (Fraction(3), Fraction(2000), None),
        (Fraction(1), Fraction(1, 10**9), Fraction(1)),
    ],
)
def test_a_power_is_rational_or_none(value, exponent, power):
    assert rational_power(value, exponent) == power


def test_a_root_is_of_a_positive_number():
    assert is_root(Fraction(2), HALF)
    assert not is_root(Fraction(-2), HALF)
    assert not is_root(Fraction(2), Fraction(3))


def test_a_root_of_a_fraction_is_of_both_of_its_numbers():
    roots = {3: Fraction(1, 3)}
    add_root(roots, Fraction(2, 3), HALF)
    assert roots == {2: HALF, 3: Fraction(-1, 6)}

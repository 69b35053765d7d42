"""Sums of terms: signs, and complementary brackets as one choice."""

import numpy as np
from kit.lowered import assert_code, assert_right


def test_signs_are_written_and_no_factor_of_minus_one():
    text = "op f(x[i], z[i]) -> y\ny[i] = x[i] - z[i] - 3"
    assert_code(text, ["y = x - z - 3"], ["grad_x = G", "grad_z = -G"])
    assert_right(text)


def test_complementary_brackets_are_one_choice():
    text = "op f(x[i], z[i], m[i]: bool) -> y\ny[i] = [m[i]]*x[i] + [not m[i]]*z[i]"
    assert_code(
        text,
        ["y = rt.where(m, x, z)"],
        ["grad_x = rt.where(m, G, 0)", "grad_z = rt.where(~m, G, 0)"],
    )
    assert_right(text, m=np.array([True, False, True]))


def test_what_is_placed_is_added_to_the_others():
    text = "op f(x[i,i,j]) -> y\ny[i,j] = x[i,i,j] + x[i,0,j]"
    assert_code(text, ["y = x.diagonal(0, 0, 1).mT + x[:, 0]"])
    assert_right(text)

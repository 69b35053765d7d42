"""One axis read at a number, on a diagonal, or where a position is computed."""

import numpy as np
import pytest
from kit.lowered import assert_code, assert_right

from derive import load, parse
from derive.check.checks import checks_of


def test_a_computed_position_is_gathered():
    text = "op f(x[c], T[n]: int) -> y\ny[n] = x[2*T[n]]"
    assert_right(text, T=np.array([1, 0, 1]))
    assert_code(text, ["y = x.index_select(0, 2 * T)"])


def test_a_position_of_parameters_is_selected():
    assert_code("op f(x[n,k]; at=1) -> y\ny[n] = x[n,at]", ["y = x[:, at]"])


@pytest.mark.filterwarnings("ignore")
def test_a_condition_may_be_a_position():
    op = parse(
        "op f(v[j], w[l], x[i,i]) -> y\nc = v[0] < 0.8\n"
        "y[i] = sum[l](where(c, l - i, x[i,i])*w[l])*where(i == 1, amax[j](v[j]), 1)"
    )
    assert all(c.ok for c in checks_of(op, load(op)))

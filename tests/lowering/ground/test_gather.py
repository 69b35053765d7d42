"""Reads at computed positions, and values added at them."""

import numpy as np
import pytest
from kit.lowered import assert_code, assert_right, sides

T = np.array([1, 0, 1])
FORMS = {
    "op f(E[v,d], T[n]: int) -> y\ny[n,d] = E[T[n],d]": (
        "y = E.index_select(0, T)",
        "grad_E = G.new_zeros(E_shape).index_add(0, T, G)",
    ),
    "op f(x[n,c], T[n]: int) -> y\ny[n] = x[n,T[n]]": (
        "y = x.gather(1, T.unsqueeze(1)).squeeze(1)",
        "grad_x = G.new_zeros(x_shape).scatter_add(1, T.unsqueeze(1), G.unsqueeze(1))",
    ),
    "op f(x[n,c,d], T[n]: int) -> y\ny[n,d] = x[n,T[n],d]": (
        "y = x.gather(1, T.unsqueeze(1).unsqueeze(2).expand((x.shape[0], 1, "
        "x.shape[2]))).squeeze(1)"
    ),
}


@pytest.mark.parametrize("text", FORMS)
def test_one_position_twice_adds_up(text):
    assert_code(text, *sides(FORMS[text]))
    assert_right(text, T=T)

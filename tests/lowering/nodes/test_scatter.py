"""Deltas that no sum removed place a value: on a diagonal, at what is read."""

import numpy as np
from kit.lowered import assert_code, assert_right


def test_values_are_placed_on_a_diagonal():
    text = "op f(x[i,i]) -> y\ny[i] = x[i,i]**2"
    assert_code(text, ["y = x.diagonal(0, 0, 1).square()"])
    assert_right(text)


def test_values_are_added_where_an_integer_says():
    text = "op f(x[n,c], T[n]: int) -> y\ny[n] = x[n,T[n]]**2"
    assert_code(
        text,
        ["y = x.gather(1, T.unsqueeze(1)).squeeze(1).square()"],
        [
            (
                "grad_x = G.new_zeros(x.shape).scatter_add(1, T.unsqueeze(1), (2 * G * "
                "x.gather(1, T.unsqueeze(1)).squeeze(1)).unsqueeze(1))"
            )
        ],
    )
    assert_right(text, T=np.array([1, 0, 1]))

"""Conditions are bool tensors; those of parameters alone are Python's."""

import numpy as np
from kit.lowered import assert_code, assert_right


def test_a_condition_of_tensors_and_positions_is_a_mask():
    text = "op f(x[i], T[i]: int; s=2) -> y\ny[i] = where(T[i] == 3 or x[i] > s and i < s, x[i], 0)"
    assert_code(
        text,
        [
            (
                "y = rt.where((T == 3) | (x > s) & (torch.arange(x.shape[0], device=x.device) <"
                " s), x, 0)"
            )
        ],
    )
    assert_right(text, T=np.array([3, 1, 3, 0]), x=np.array([1.0, 2.5, 3.5, 0.5]))


def test_a_condition_of_parameters_is_a_branch():
    text = "op f(x[i]; s=2) -> y\ny[i] = where(s > 0, x[i]**2, x[i])"
    assert_code(text, ["y = x * (x if 0 < s else x.new_full((), 1).expand(x.shape))"])
    for s in (3, -1):
        assert_right(text, {"s": s})


def test_a_position_is_compared_with_another():
    text = "op f(x[i,j]) -> y\ny[i,j] = [j != i]*x[i,j]"
    assert_code(
        text,
        [
            "positions_of_x = torch.arange(x.shape[0], device=x.device).unsqueeze(1)",
            ("y = torch.where(positions_of_x != torch.arange(x.shape[1], device=x.device), x, 0)"),
        ],
    )
    assert_right(text)

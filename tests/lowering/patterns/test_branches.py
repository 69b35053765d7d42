"""Pairs of brackets of which just one holds are one choice."""

import numpy as np
import pytest
import torch
from kit.lowered import assert_right

from derive import load, parse

HEAD = "op f(x[i], z[i], m[i]: bool) -> y\n"


@pytest.mark.parametrize(
    "line",
    [
        "y[i] = [not m[i]]*x[i] + z[i]*[m[i]]*x[i]",
        "y[i] = x[i]*([m[i]] + 3*[not m[i]])*z[i]",
        "y[i] = [m[i]]*x[i] + [z[i] < 1]*z[i]",
    ],
)
def test_one_choice_and_two_that_may_both_be_taken(line):
    assert_right(HEAD + line, m=np.array([True, False, True]))


def test_a_choice_between_positions_and_values_keeps_their_digits():
    f = load(parse("op f(x[i,j], m[i]: bool) -> y\ny[i,j] = where(m[i], j, x[i,j])"))
    x = torch.full((3, 4), 1 / 3, dtype=torch.float64)
    y = f(x, torch.tensor([True, False, True]))
    wanted = torch.where(torch.tensor([[True], [False], [True]]), torch.arange(4.0).double(), x)
    assert y.dtype == x.dtype and torch.equal(y, wanted)

"""Positions that are numbers."""

import pytest
import torch
from kit.each import each_row
from kit.lines import made

from derive.api import load, source


@each_row(
    "position, good, bad",
    [
        ("p", (0, 3), (-1, 4)),
        ("p + 1", (-1, 2), (-2, 3)),
        ("size(t) - 1 - p", (0, 3), (-1, 4)),
        ("size(m) - size(n) - p", (0, 2), (3, -2)),
    ],
)
def test_a_negative_position_does_not_wrap(position, good, bad):
    f = load(made(f"op f(x[n,t], z[m]; p=0) -> y\ny[n] = x[n,{position}]**2*z[0]"))
    x, z = torch.rand(3, 4, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    for p in good:
        at = eval(position, {"p": p, "t": 4, "m": 5, "n": 3, "size": int})
        torch.testing.assert_close(f(x, z, p=p), x[:, at] ** 2 * z[0])
    for p in bad:
        with pytest.raises(IndexError):
            f(x, z, p=p)


def test_the_last_position_and_those_of_guards_are_read_as_they_are():
    for position in ("size(t) - 1", "2"):
        assert "nonnegative" not in source(made(f"op f(x[n,t]) -> y\ny[n] = x[n,{position}]**2"))

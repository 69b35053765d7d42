"""A kernel that is right for some numbers alone stands beside the equation, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from kit.lines import made, named, run

from derive import source

SHRUNK = "op f(x[i]; w=0.5) -> y\ny[i] = where(abs(x[i]) <= w, 0, x[i] - w*sign(x[i]))"
HUBER = (
    "op f(x[i,j], t[j]; d=1.0) -> y\ne[i,j] = x[i,j] - t[j]\n"
    "y[i,j] = where(abs(e[i,j]) <= d, e[i,j]**2/2, d*(abs(e[i,j]) - d/2))"
)
BOUNDED = "op f(x[i]; a=-1.0, b=1.0) -> y\ny[i] = where(x[i] <= a, a, where(x[i] >= b, b, x[i]))"
NUMBERS = {
    SHRUNK: ("softshrink", ({"w": 0.3}, {"w": 0.0}, {"w": -0.3})),
    HUBER: ("huber_loss", ({"d": 0.7}, {"d": 0.0}, {"d": -0.7})),
    BOUNDED: ("hardtanh", ({"a": -0.5, "b": 0.25}, {"a": 0.5, "b": -0.25})),
}


@pytest.mark.parametrize("text", NUMBERS, ids=named)
def test_any_number(text):
    name, given = NUMBERS[text]
    op = made(text)
    assert name in source(op)
    shapes = {"i": 5, "j": 3}
    for parameters in given:
        random = np.random.default_rng(1)
        tensors = {t.name: random.normal(size=[shapes[i.name] for i in t.axes]) for t in op.inputs}
        run(text, tensors, **parameters)


def test_a_known_number_is_in_it_or_not():
    plain = "op f(x[i]) -> y\ny[i] = where(abs(x[i]) <= {0}, 0, x[i] - {0}*sign(x[i]))"
    code = source(made(plain.format("0.25")))
    assert "softshrink(x, 0.25)" in code
    assert " else " not in code.partition("def _f_forward")[2].partition("class")[0]
    assert "softshrink" not in source(made(plain.format("(-0.25)")))


def test_what_stands_in_for_a_kernel_is_computed_there_alone():
    code = source(made(HUBER)).partition("def _f_forward")[2].partition("class")[0]
    assert all("if" in line for line in code.splitlines() if ".abs()" in line)

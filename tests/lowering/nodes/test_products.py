"""Products: numbers and small tensors first, what is divided by last, brackets as masks."""

from __future__ import annotations

import numpy as np
from kit.lines import made
from kit.lowered import assert_code, assert_right
from kit.recognised import functions

from derive.algebra.expr import And, Index, Rel, num
from derive.algebra.logic import conjunction
from derive.pipeline import source


def test_what_is_small_is_multiplied_first():
    text = "op f(x[i,j], z[i]) -> y\ny[i,j] = 2*x[i,j]*z[i]/3/sqrt(z[i])"
    assert_code(text, ["y = 2 * z.sqrt().unsqueeze(1) / 3 * x"])
    assert_right(text)


def test_powers_of_one_half_are_roots():
    text = "op f(x[i]) -> y\ny[i] = x[i]**(-1/2) + x[i]**(1/2) + 1/x[i]**2"
    assert_right(text)


def test_brackets_are_one_condition():
    i = Index("i", "i")
    a, b = Rel("<", i, num(3)), Rel("<", num(0), i)
    assert conjunction([a]) is a
    assert conjunction([a, b]) is And((a, b))


def test_factors_go_to_what_is_placed_and_to_what_it_is_added_to():
    text = (
        "op f(x[n,k], t[n]: int, a[n], G[]) -> y\nl[n,k] = log_softmax[k](x[n,k])\n"
        "y[] = G*sum[n](l[n,t[n]] + a[n]*mean[k](l[n,k]))"
    )
    assert_right(text, t=np.array([1, 0, 1]), G=np.array(0.7))
    (line,) = [line for line in functions(source(made(text)))[-1] if "scatter_add" in line]
    assert "mul" not in line and "*" not in line.split("scatter_add")[0]

"""Products: numbers and small tensors first, what is divided by last, brackets as masks."""

from __future__ import annotations

from kit.lowered import assert_code, assert_right

from derive.algebra.expr import And, Index, Rel, num
from derive.algebra.logic import conjunction


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

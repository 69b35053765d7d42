"""Heads for what SymPy lacks: never evaluated, their indices last and a condition by name."""

import pytest
import sympy
from sympy import Eq, IndexedBase, symbols

import derive
from derive.notation.heads import Iverson, LogSumExp, Mean, clamp, log1p

i, k = symbols("i k", integer=True)
x, A, y = map(IndexedBase, ("x", "A", "y"))


def test_a_head_is_built_again_from_its_parts():
    e = Mean(A[i, k], k, where=k > i)
    assert e.func(*e.args) == e
    assert str(e) == "Mean(A[i, k], k, where=k > i)"
    assert str(LogSumExp(A[i, k], k)) == "LogSumExp(A[i, k], k)"


def test_nothing_is_evaluated():
    assert log1p(sympy.Integer(0)).func is log1p
    assert clamp(sympy.Integer(3), 0, 1).func is clamp
    assert Mean(sympy.Integer(1), k).func is Mean


def test_text_is_no_expression():
    with pytest.raises(sympy.SympifyError):
        Mean("x", k)


def test_heads_are_what_the_text_says():
    e = LogSumExp(A[i, k], k) * Iverson(x[i] > 0) + Mean(A[i, k], k)
    text = str(derive.Operation("f", Eq(y[i], e)))
    assert "logsumexp[k]" in text and "mean[" in text and "[x[i] > 0]" in text

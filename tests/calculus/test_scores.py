"""The contraction that a softmax is taken of has a name, and an adjoint of its own."""

from __future__ import annotations

from derive import parse
from derive.calculus.equations import flatten_operation


def variables(line, head="Q[t,d], K[s,d]"):
    op = parse(f"op f({head}) -> Y\n{line}")
    return [let.name for let in flatten_operation(op) if let.variable]


def test_a_contraction_under_a_softmax_is_named():
    assert variables("Y[t,s] = softmax[s](sum[d](Q[t,d]*K[s,d]))") == ["scores"]
    assert variables("Y[t,s] = log_softmax[s](sum[d](Q[t,d]*K[s,d])/2)") == ["scores"]


def test_what_is_no_contraction_is_not():
    assert variables("Y[t,d] = softmax[d](Q[t,d])", "Q[t,d]") == []
    assert variables("Y[t] = exp(sum[d](Q[t,d]*K[t,d]))", "Q[t,d], K[t,d]") == []


def test_what_may_be_infinite_is_not():
    line = "Y[t,s] = softmax[s](sum[d](Q[t,d]/K[s,d]))"
    assert "scores" not in variables(line)

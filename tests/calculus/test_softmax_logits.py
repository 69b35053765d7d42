"""The contraction that a softmax is taken of has a name, and an adjoint of its own."""

from __future__ import annotations

import pytest
import torch

from derive import load, parse
from derive.calculus.build_lets import flatten_operation


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


def test_a_mask_that_is_added_is_not_multiplied_out():
    """c*(1 - m) with a large c leaves no digit of what stands beside c*m."""
    for softmax in ("softmax", "log_softmax", "logsumexp"):
        for mask in ("- 1000000000*(1 - m[s])", "+ (m[s] - 1)*10000", "+ c*(1 - m[s])"):
            text = f"Y[t,s] = {softmax}[s](Q[t,s] {mask})"
            text = text.replace("Y[t,s]", "Y[t]") if softmax == "logsumexp" else text
            head = "Q[t,s], m[s]" + ("; c=-1e4" if "c*" in mask else "")
            assert variables(text, head) == ["scores"]
    assert variables("Y[t,s] = softmax[s](Q[t,s] - 2*(1 - m[s]))", "Q[t,s], m[s]") == []


@pytest.mark.parametrize("softmax", ["softmax", "log_softmax"])
def test_scores_beside_a_mask_keep_their_digits(softmax):
    x, m = torch.randn(3, 5), torch.tensor([1.0, 1, 0, 1, 1])
    text = f"op f(x[i,j], m[j]) -> y\ny[i,j] = {softmax}[j](x[i,j] + (1 - m[j])*(-1e9))"
    plain = getattr(torch, softmax)(x + (1 - m) * -1e9, -1)
    torch.testing.assert_close(load(parse(text))(x, m), plain)


def test_a_softmax_of_branches_is_one():
    """exp(x - logsumexp x) of a row that is -1e9 as a whole is 1 at each of its places."""
    text = """op f(e[i,j], m[i,j]: bool) -> y
y[i,j] = softmax[j](where(m[i,j], -1000000000, where(e[i,j] > 0, e[i,j], 0.01*e[i,j])))"""
    m = torch.zeros(3, 4, dtype=torch.bool)
    m[1] = True
    y = load(parse(text))(torch.randn(3, 4), m)
    torch.testing.assert_close(y.sum(1), torch.ones(3))

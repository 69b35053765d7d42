"""Products of matrices within sums have equations of their own."""

from __future__ import annotations

import pytest

import derive

torch = pytest.importorskip("torch")
F = torch.nn.functional


def swiglu(x, gate, up, down):
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def test_a_product_within_a_sum_is_named_and_kept():
    x, gate, up, down = (torch.randn(s) for s in ((5, 7), (4, 7), (4, 7), (6, 4)))
    op = derive.read_torch(swiglu, x, gate, up, down)
    assert [e.name for e in op.equations] == ["h", "h2", "y"]
    first = derive.source(op).partition("def _swiglu_backward(")[2].partition("\n\n\n")[0]
    assert first.count(" @ ") + first.count("addmm") == 6


def test_a_sum_that_is_no_product_stays():
    op = derive.read_torch(lambda x, w: (x.sum(1, keepdim=True) * w).sum(), *torch.randn(2, 3, 5))
    assert len(op.equations) == 1

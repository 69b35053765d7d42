"""Reads by whole indices name axes; a diagonal, a number and a shift have calls of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kit.lowered import assert_code, assert_right

import derive

FORMS = {
    "op f(x[i,j]) -> y\ny[j,i] = x[i,j]": "x.mT",
    "op f(x[i,j]) -> y\ny[j] = x[2,j]": "x.select(0, 2)",
    "op f(x[i,i]) -> y\ny[i] = x[i,i]": "x.diagonal(0, 0, 1)",
    "op f(x[u]) -> y\ny[s] = x[s+2]": "x.narrow(0, 2, x.shape[0] - 2)",
}


@pytest.mark.parametrize("text", FORMS)
def test_a_read_is_a_view(text):
    assert_code(text, [f"y = {FORMS[text]}"])
    assert_right(text)


TOGETHER = {
    "op f(x[v,w,d], S[n,t]: int, T[n]: int) -> y\ny[n,t,d] = x[S[n,t],T[n],d]": (
        "_read_at(x, 0, S, T.unsqueeze(1))"
    ),
    "op f(x[c,v,w], S[n]: int, T[n]: int) -> y\ny[c,n] = x[c,S[n],T[n]]": "_read_at(x, 1, S, T)",
}


@pytest.mark.parametrize("text", TOGETHER)
def test_positions_of_several_axes_are_read_together(text):
    """One after the other, all of the second axis would be copied for each of the first."""
    assert_code(text, [f"y = {TOGETHER[text]}"])
    positions = {"S": np.array([[1, 0], [0, 1], [0, 0]]), "T": np.array([0, 1, 1])}
    if "S[n]" in text:
        positions["S"] = positions["S"][:, 0]
    assert_right(text, **positions)


@pytest.mark.parametrize("wrong", [-1, 4])
def test_no_position_is_counted_from_the_end(wrong):
    f = derive.load(derive.parse("op f(x[v,w], S[n]: int, T[n]: int) -> y\ny[n] = x[S[n],T[n]]"))
    good, bad = torch.tensor([1, 2]), torch.tensor([0, wrong])
    for positions in ((good, bad), (bad, good)):
        with pytest.raises(IndexError, match="out of bounds"):
            f(torch.randn(4, 4), *positions)


def test_positions_beside_an_index_are_read_together():
    text = (
        "op f(x[c,a,b], p[n]: int, q[n]: int; size(i)=3, size(j)=2) -> y\n"
        "y[n,c,i,j] = x[c,p[n]+i,q[n]+j]"
    )
    f = derive.load(derive.parse(text))
    x = torch.randn(2, 7, 6, dtype=torch.float64, requires_grad=True)
    p, q = torch.tensor([0, 4, 2, 0]), torch.tensor([4, 0, 3, 4])
    patches = [x[:, i : i + 3, j : j + 2] for i, j in zip(p, q, strict=True)]
    torch.testing.assert_close(f(x, p, q), torch.stack(patches))
    assert torch.autograd.gradcheck(f, (x, p, q)) and torch.autograd.gradgradcheck(f, (x, p, q))
    both = torch.stack([x.detach(), x.detach() + 1])
    found = torch.func.vmap(f, (0, None, None))(both, p, q)
    torch.testing.assert_close(found[1], f(x, p, q) + 1)

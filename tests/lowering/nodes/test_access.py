"""Reads by whole indices name axes; a diagonal, a number and a shift have calls of their own."""

import numpy as np
import pytest
import torch
from kit import texts
from kit.lines import defined
from kit.lowered import assert_right

import derive
from derive.check import oracle
from derive.check.checks import checks_of

TOGETHER = {
    "op f(x[v,w,d], S[n,t]: int, T[n]: int) -> y\ny[n,t,d] = x[S[n,t],T[n],d]": (
        "rt.read_at(x, (0, 1), S, T.unsqueeze(1))"
    ),
    "op f(x[c,v,w], S[n]: int, T[n]: int) -> y\ny[c,n] = x[c,S[n],T[n]]": (
        "rt.read_at(x, (1, 2), S, T)"
    ),
    "op f(x[v,c,w], S[n]: int, T[n]: int) -> y\ny[n,c] = x[S[n],c,T[n]]": (
        "rt.read_at(x, (0, 2), S, T)"
    ),
    "op f(x[b,v,w,c], S[b]: int, T[b]: int) -> y\ny[b,c] = x[b,S[b],T[b],c]": (
        "rt.read_at(x, (0, 1, 2), rt.positions(x.shape[0], x), S, T)"
    ),
}


@pytest.mark.parametrize("text", TOGETHER)
def test_positions_of_several_axes_are_read_together(text):
    """One after the other, all of the second axis would be copied for each of the first."""
    assert f"return {TOGETHER[text]}\n" in texts.source(derive.parse(text))
    positions = {"S": np.array([[1, 0], [0, 1], [0, 0]]), "T": np.array([0, 1, 1])}
    if "S[n,t]" not in text:
        positions["S"] = positions["S"][:, 0]
    if "S[b]" in text:
        text = text.replace("x[b,", "x[n,").replace("[b", "[n").replace("y[b", "y[n")
    assert_right(text, **positions)


SAMPLED = (
    "op f(x[b,c,v,w], S[b,n]: int, T[b,n]: int) -> y\ny[b,c,n] = x[b,c,S[b,n],T[b,n]]**2",
    "op f(x[b,v,w], S[b,n,k]: int, T[b,n]: int) -> y\ny[b,n,k] = x[b,S[b,n,k],T[b,n]]**2",
    "op f(x[b,u,v,w], S[b,n]: int, T[b,n]: int) -> y\ny[b,n] = x[b,S[b,n],T[b,n],S[b,n]]**2",
)


@pytest.mark.parametrize("text", SAMPLED)
def test_samples_along_the_last_axes_are_gathered_and_scattered_along_one(text):
    op = derive.parse(text)
    code = texts.source(op)
    assert ".gather(" in code and "scatter_add(" in code and "index_put" not in code
    f = derive.load(op)
    x, s, t = (torch.rand(4, *(5, 6, 7)[: len(op.inputs[0].axes) - 1]).double(), *[None] * 2)
    s, t = torch.randint(5, (4, 9)), torch.randint(5, (4, 9))
    s = s.unsqueeze(2).expand(4, 9, 2).contiguous() if "S[b,n,k]" in text else s
    x.requires_grad_()
    have, want = f(x, s, t), defined(op)(x, s, t)
    torch.testing.assert_close(have, want)
    torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), x) for y in (have, want)))
    for wrong in (-1, 99):
        # In row-major order it would be a position of another row.
        with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
            f(x, s, t.masked_fill(t == 0, wrong))


@pytest.mark.parametrize("size", (0, 3))
def test_guarded_positions_of_several_axes_are_read_together(size):
    text = (
        "op f(x[v,w,d], S[n]: int, T[n]: int) -> y\n"
        "y[n,d] = where(S[n] >= 0 and S[n] < size(v) and T[n] < size(w), x[S[n],T[n],d], 0)"
    )
    op = derive.parse(text)
    assert "rt.read_at_if_any(" in texts.source(op)
    given = {"x": np.arange(4.0 * size).reshape(size, 2, 2), "S": np.array([-1, 0, 2, 5])}
    given["T"] = np.array([0, 1, 1, 2])
    (wanted,) = oracle.outputs(op, given, {}).values()
    x, *positions = (torch.tensor(v) for v in given.values())
    y = derive.load(op)(x.requires_grad_(), *positions)
    np.testing.assert_allclose(y.detach().numpy(), wanted)
    (grad,) = torch.autograd.grad(y.sum(), x)
    inside = (given["S"] >= 0) & (given["S"] < size) & (given["T"] < 2)
    assert grad.sum() == 2 * inside.sum()


def test_a_position_without_axes_is_read_with_others():
    text = "op f(x[v,c,w], S[]: int, T[n]: int) -> y\ny[n,c] = x[S[],c,T[n]]"
    assert "rt.read_at(" in texts.source(derive.parse(text))
    assert_right(text, S=np.array(1), T=np.array([1, 0]))
    assert_right(
        text.replace("T[n]", "T[]").replace("y[n,c]", "y[c]"), S=np.array(1), T=np.array(0)
    )


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


@pytest.mark.filterwarnings("ignore")
def test_a_condition_may_be_a_position():
    op = derive.parse(
        "op f(v[j], w[l], x[i,i]) -> y\nc = v[0] < 0.8\n"
        "y[i] = sum[l](where(c, l - i, x[i,i])*w[l])*where(i == 1, amax[j](v[j]), 1)"
    )
    assert all(c.ok for c in checks_of(op, derive.load(op)))

"""Sums up to one's own position, and sums and lookups by an integer tensor, without masks."""

import numpy as np
import pytest
import torch
from kit.each import each_row, some_now
from kit.lines import defined, lines, made, run
from kit.lowered import code_table
from kit.texts import source
from kit.unwritten import source_without_reuse

from derive import load, parse
from derive.check.checks import QUICK, VALUES, checks_of

CODE = code_table(
    """\
op f(A[*p,k,*q]; dim=axis(k)) -> y; y[*p,k,*q] = sum[l | l<=k](A[*p,l,*q])
    y = A.cumsum(dim)
        grad_A = G.flip(dim).cumsum(dim).flip(dim)
op f(A[n,k]) -> y; y[n,k] = sum[l | k<=l](A[n,l])
    y = A.flip(1).cumsum(1).flip(1)
        grad_A = G.cumsum(1)
op f(A[n,k]) -> y; y[n,k] = sum[l | l<k](A[n,l])
    y = torch.nn.functional.pad(A, (1, 0)).cumsum(1).narrow(1, 0, A.shape[1])
        cumsum_G = torch.nn.functional.pad(G.flip(1), (1, 0)).cumsum(1)
        grad_A = cumsum_G.narrow(1, 0, G.shape[1]).flip(1)
op f(A[n,k], B[k,n]) -> y; y[n,k] = 2*B[k,n]*sum[l | l<k+1](exp(A[n,l])*B[l,n])
    y = 2 * B.mT * (B.mT * A.exp()).cumsum(1)
op f(A[n,k,d]) -> y; y[k] = sum[l,n,d | l<=k and d<2](A[n,l,d])
op f(A[n,k], m[k]: bool) -> y; y[n,k] = sum[l | l<=k and m[l]](A[n,l]**2)
    y = rt.where(m, A.square(), 0).cumsum(1)
        grad_A = rt.where(m, 2 * A * G.flip(1).cumsum(1).flip(1), 0)
op f(A[n,k]) -> y; y[n,k] = logsumexp[l | l<=k](A[n,l])
    y = A.logcumsumexp(1)
op f(A[k,n]) -> y; y[n,k] = logsumexp[l | l>=k](2*A[l,n])
    y = (2 * A.mT).flip(1).logcumsumexp(1).flip(1)
op f(A[n,k]) -> y; y[n,k] = prod[l | l<=k](A[n,l])
    y = A.cumprod(1)
op f(A[n,k]) -> y; y[n,k] = mean[l | l<=k](A[n,l])
op f(A[n,k], m[n,k]: bool) -> y; y[n,k] = prod[l | l<=k and m[n,l]](A[n,l])
    y = rt.where(m, A, 1).cumprod(1)
op f(A[n,k]) -> y; y[n,k,j] = prod[l | j<l and l<=k](A[n,l])
# The position of an index is among those up to it: its winner needs no guard.
op f(A[n,k]) -> y; y[n,k] = max[l | l<=k](A[n,l])
    y = rt.running_max(A, 1)
        grad_A = G.new_zeros(G.shape).scatter_add(1, winner, G)
op f(A[*p,k,*q]; dim=axis(k)) -> y; w[*p,k,*q] = argmin[l | l>=k](A[*p,l,*q]); \
  y[*p,k,*q] = min[l | l>=k](A[*p,l,*q]**3)*A[*p,w[*p,k,*q],*q]
op f(A[n,k], s[n,k]: int) -> y; w[n,k] = max[l | k>=l](where(s[n,l]>0, l, -1)); \
  y[n,k] = where(w[n,k]>=0, A[n,w[n,k]], 0)*amin[l | l<=k](A[n,l])
op f(q[b,k,d], x[b,k,d]) -> y; y[b,k] = sum[l,d | l<=k](q[b,k,d]*x[b,l,d])
    y = (q * x.cumsum(1)).sum(2)
op f(q[k,d], x[k,e]) -> y; y[k] = sum[l,d,e | l>=k and e<2](q[k,d]*x[l,e])
op f(q[k,d], x[k,d], z[d]) -> y; y[k] = sum[l,d | l<k](q[k,d]*x[l,d]*z[d])
# A product with a masked matrix is cheaper where the cumulative sum has an axis more.
op f(q[k,d], x[k,d], v[k,e]) -> y; y[k,e] = sum[l,d | l<=k](q[k,d]*x[l,d]*v[l,e])
    y = (q @ x.mT).tril() @ v
# One side is counted from the end: of a turned axis, and turned again.
op f(A[n,k], B[k,n]) -> y; y[n,k] = B[k,n]*sum[l | l<=size(k)-1-k](A[n,size(k)-1-l])
    y = B.mT * A.flip(1).cumsum(1).flip(1)
op f(A[n,k]) -> y; y[n,k] = sum[l | l<=k](A[n,size(k)-1-l])
    y = A.flip(1).cumsum(1)
        grad_A = G.flip(1).cumsum(1)
op f(A[n,k]) -> y; y[n,k] = sum[l | size(k)-1-k<l](A[n,l]**2)
op f(A[k,n]) -> y; y[k,n] = prod[l | l<=size(k)-1-k](A[size(k)-1-l,n])
    y = A.flip(0).cumprod(0).flip(0)
op f(A[n,k]) -> y; y[n,k] = logsumexp[l | k+l<size(k)](A[n,size(k)-1-l])
    y = A.flip(1).logcumsumexp(1).flip(1)
# What a product leaves as it is stands for a condition.
op f(A[n,k]) -> y; y[n,k] = prod[l](where(l<=k, A[n,l], 1))
    y = A.cumprod(1)
op f(A[n,k], m[k]: bool) -> y; y[n,k] = prod[l | m[l]](where(l>k, 1, A[n,l]**2))
# Parts of what was added up: an adjoint is placed before it is.
op f(A[n,k]; size(u)=size(k)-2) -> y; c[n,k] = sum[l | l<=k](A[n,l]); y[n,u] = c[n,u+2]**2 - c[n,u]
    c = A.cumsum(1)
        grad_A = grad_c.flip(1).cumsum(1).flip(1)
op f(A[n,k]) -> y; c[n,k] = prod[l | l<=k](A[n,l]); y[n,k] = A[n,k]*where(k<1, 1, c[n,k-1])
op f(A[n,k], B[n,k]) -> y; y = sum[n,k]((sum[l | l<=k](A[n,l]) - sum[l | l<=k](B[n,l]))**2)
# A sum of what is read at the one index and what is at the other: each by itself.
op f(x[n,k,d], w[n,k]) -> y; y[n,k,d] = sum[l | l<=k](x[n,l,d]*w[n,l])/sum[l | l<=k](w[n,l])
op f(A[k,d], B[k], C[k,d]) -> y; y[k] = sum[l,d | k<=l and d<2](B[l]*(sin(A[k,d]) - C[l,d]))
# Not cumulative: two ends, another size, a factor with both.
op f(A[k]) -> y; y[k] = sum[l | k-2<=l and l<=k](A[l])
op f(A[k], B[t]) -> y; y[t] = B[t]*sum[k | k<=t](A[k])
op f(A[k]) -> y; y[k] = sum[l | l<=k](sin(A[l]*A[k]))
op f(A[k]) -> y; y[k] = sum[l | l<=2*k](A[l])
# Segments.
op f(A[n,d], s[n]: int; num=size(g)) -> y; y[g,d] = sum[n | s[n]==g](A[n,d])
    y = rt.index_add_inside(A.new_zeros((num, A.shape[1])), 0, s, A)
        grad_A = rt.index_select_inside(G, 0, s)
op f(A[n,d], s[n]: int; num=size(g)) -> y; y[g,d] = mean[n | s[n]==g](A[n,d])
op f(A[n,m,d], s[n,m]: int, B[g,e]) -> y; y[d,g,e] = B[g,e]*sum[n,m | g==s[n,m]](sin(A[n,m,d]))
op f(A[n,m,d], s[n,b]: int; num=size(g)) -> y; y[d,g,b] = sum[n,m | s[n,b]==g](A[n,m,d]**2)
op f(B[g,d], s[n]: int) -> y; y[n] = sum[g,d | s[n]==g](B[g,d])
    y = rt.index_select_inside(B.sum(1), 0, s)
op f(B[g,n], s[n]: int) -> y; y[n] = sum[g | s[n]-1==g](B[g,n])
# What is looked up is multiplied by what stands beside it, and summed over an index of both.
op f(B[g,d], m[n,d], s[n]: int) -> y; y[n] = sum[g,d | s[n]==g](sin(B[g,d]*B[g,d])*m[n,d])
op f(w[n], s[n]: int; num=size(g)) -> y; \
  y[g] = sum[n | s[n]==g](1)*sum[n | s[n]==g and w[n] > 0.7](w[n])
# Not by places: the summand has the place too.
op f(A[n], B[g], s[n]: int) -> y; y[g] = sum[n | s[n]==g](sin(A[n]*B[g]))
"""
)


@each_row("text", [t for t, code in CODE.items() if any(code)])
def test_the_code_that_an_expert_writes(text):
    code = source_without_reuse(made(text))
    for function, expected in zip(("forward", "backward"), CODE[text], strict=True):
        for line in expected or ():
            assert line in lines(code, function)


@pytest.mark.parametrize("columns", some_now([VALUES, QUICK], 1), ids=len)
@each_row("text", CODE)
def test_the_family_of_checks(text, columns):
    """Values and gradients now; all checks, on sizes of every kind, in the long campaign."""
    op = made(text)
    assert not [c for c in checks_of(op, load(op), columns=columns) if not c.ok]


@each_row("size", [0, 1])
@each_row("text", [t for t in CODE if not any(part in t for part in ("s[n", "B[t]", "size(u)"))])
def test_axes_without_or_with_one_value(text, size):
    op = made(text)
    sizes = {"k": size, "n": 3, "d": 4, "p": 2, "q": 3, "b": 5, "e": 6}
    rng = np.random.default_rng(0)
    tensors = {}
    for t in op.inputs:
        shape = [sizes[i.extent] for i in t.axes]
        tensors[t.name] = np.full(shape, True) if t.kind == "bool" else rng.uniform(0.5, 1, shape)
    run(text, tensors, **{p.name: 1 for p in op.parameters})


SEGMENTS = "op f(A[n,d], s[n]: int; num=size(g)) -> y\ny[g,d] = sum[n | s[n]==g](A[n,d])"


@pytest.mark.parametrize("num", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 6])
def test_segments_of_any_number(num, n):
    A = np.random.default_rng(0).uniform(0.5, 1.5, (n, 3))
    run(SEGMENTS, {"A": A, "s": np.arange(n) * 7 % 4 - 1}, num=num)


def test_a_lookup_on_an_axis_without_values_is_zero():
    text = "op f(B[g,d], s[n]: int) -> y\ny[n,d] = sum[g | s[n]==g](B[g,d])"
    run(text, {"B": np.zeros((0, 3)), "s": np.array([0, 2, -1, 5])})


def test_what_is_in_no_segment_is_not_read():
    A = torch.tensor([[1.0, 2.0], [torch.nan, torch.inf], [3.0, 4.0]], requires_grad=True)
    y = load(made(SEGMENTS))(A, torch.tensor([1, -1, 1]), num=2)
    assert y.tolist() == [[0.0, 0.0], [4.0, 6.0]]
    y.backward(torch.ones(2, 2))
    assert A.grad.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_a_nan_does_not_reach_positions_before_it():
    A = torch.tensor([1.0, 2.0, torch.nan, 4.0])
    for text, expected in (
        ("y[k] = sum[l | l<=k](A[l])", [1.0, 3.0]),
        ("y[k] = sum[l | l<k](A[l])", [0.0, 1.0, 3.0]),
    ):
        y = load(made(f"op f(A[k]) -> y\n{text}"))(A)
        assert y[: len(expected)].tolist() == expected
        assert y[len(expected) :].isnan().all()


def test_gradients_of_a_weighted_cumulative_sum_are_such_sums():
    code = source(made("op f(q[k,d], x[k,d]) -> y\ny[k] = sum[l,d | l<=k](q[k,d]*x[l,d])"))
    backward = lines(code, "backward")
    assert backward[1].endswith("grad_q = G.unsqueeze(1) * x.cumsum(0)")
    assert backward[2].endswith("grad_x = (G.unsqueeze(1) * q).flip(0).cumsum(0).flip(0)")


def test_a_segment_is_summed_up_to_the_index_that_its_values_lack():
    """x[i,l] has one end of the segment and not the other, of the same size."""
    op = made("op f(x[i,l]; size(l)=size(i)) -> y\ny[i,j] = sum[l | j < l and l < i](x[i,l])")
    code = source(op)
    assert "x.tril(-1)" in code and "unsqueeze" not in code
    assert not [c for c in checks_of(op, load(op)) if not c.ok]


def test_no_mask_of_all_pairs_is_made():
    """Nodes and edges: neither direction has a tensor of both."""
    op = made(
        "op f(h[n,d], src[e]: int, dst[e]: int, b[e]) -> y\nm[e,d] = h[src[e],d]*b[e]\n"
        "y[n,d] = tanh(sum[e | dst[e] == n](m[e,d]*b[e])/(1 + sum[e | dst[e] == n](1)))"
    )
    assert "arange" not in source(op)
    assert not [c for c in checks_of(op, load(op)) if not c.ok]


def test_what_stands_beside_a_lookup_of_nothing_is_not_read():
    text = "op f(B[g,d], m[n,d], s[n]: int) -> y\ny[n] = sum[g,d | s[n]==g](B[g,d]*m[n,d])"
    m = torch.tensor([[1.0, 2.0], [torch.nan, 3.0]], requires_grad=True)
    y = load(made(text))(torch.tensor([[2.0, 5.0]]), m, torch.tensor([0, 4]))
    assert y.tolist() == [12.0, 0.0]
    y.sum().backward()
    assert m.grad.tolist() == [[2.0, 5.0], [0.0, 0.0]]


@each_row("kind", ["max", "min"])
@each_row("side", ["l<=k", "l>=k"])
def test_running_extrema_with_ties_and_values_that_are_not_finite(kind, side):
    """The first of equal values wins, and the first nan, as in torch.max."""
    text = f"op f(A[n,k]) -> y, w\ny[n,k] = {kind}[l | {side}](A[n,l])\n"
    f = load(parse(f"{text}w[n,k] = arg{kind}[l | {side}](A[n,l])"))
    chosen = torch.tensor([0.0, 1, 2, torch.inf, -torch.inf, torch.nan], dtype=torch.float64)
    picks = torch.randint(0, 6, (60, 7), generator=torch.Generator().manual_seed(0))
    A = chosen[picks % torch.tensor([[3], [5], [6]]).repeat(20, 1)].requires_grad_()
    values, places = f(A)
    for k in range(7):
        start = 0 if side == "l<=k" else k
        part = A[:, : k + 1] if side == "l<=k" else A[:, k:]
        want, at = getattr(part, kind)(1)
        torch.testing.assert_close(values[:, k], want, equal_nan=True, rtol=0, atol=0)
        torch.testing.assert_close(places[:, k], at + start)
        pair = (torch.autograd.grad(v.sum(), A, retain_graph=True) for v in (values[:, k], want))
        torch.testing.assert_close(*pair)


@each_row("side", ["l<=k", "l>=k"])
def test_the_first_of_those_that_a_mask_leaves_is_none_of_the_others(side):
    first = f"argmin[l | {side} and m[n,l]](A[n,l])"
    A = np.array([[3.0, 9.0, 1.0, 2.0], [1.0, 2.0, 0.5, 3.0]])
    m = np.array([[False, True, False, False], [True, False, True, False]])
    run(f"op f(A[n,k], m[n,k]: bool) -> y\ny[n,k] = {first}*A[n,k]", {"A": A, "m": m})


def test_an_extremum_that_may_be_of_nothing_keeps_its_guard():
    f = load(parse("op f(A[k]) -> y\ny[k] = where(k>0, max[l | l<k](A[l]), 0)"))
    A = torch.tensor([3.0, 1.0, 5.0, 7.0], requires_grad=True)
    assert torch.autograd.grad(f(A).sum(), A)[0].tolist() == [2.0, 0.0, 1.0, 0.0]


def test_counts_are_exact_integers():
    op = made("op f(s[n]: int, x; num=size(g)) -> y, c\nc[g] = sum[n](where(s[n]==g, 1, 0))\ny = x")
    _, c = load(op)(torch.tensor([0, 2, 2, 5]), torch.tensor(1.0), num=3)
    assert c.dtype == torch.int64
    assert c.tolist() == [1, 0, 2]


def test_a_segment_sum_that_is_read_back_makes_no_pairs():
    op = parse(
        "op f(x[e], dst[e]: int, y[n]) -> l\nmu[n] = sum[e | dst[e] == n](x[e])*y[n]\n"
        "l[e] = (x[e] - mu[dst[e]])**2"
    )
    assert [c for c in checks_of(op, load(op)) if not c.ok] == []
    backward = source(op).partition("def backward")[2]
    assert "dst.unsqueeze" not in backward
    assert "reuse.mul(grad_mu.index_select(0, dst), y.index_select(0, dst))" in backward
    assert "torch.where" not in backward


SQUARES = {
    "op f(x[s], z[s]) -> y\ny = sum[t](sum[s | s<=t](x[s])*sum[s | s<=t](z[s]))": (
        "grad_x = G * z.cumsum(0).flip(0).cumsum(0).flip(0)"
    ),
    "op f(p[n,k], q[n,k]) -> y\ny = mean[n](sum[k](sum[l | l<=k](p[n,l] - q[n,l])**2))": (
        "grad_p = grad_u.flip(1).cumsum(1).flip(1)"
    ),
    "op f(x[s], w[s]) -> y\ny[t] = sum[s]([s<=t]*x[s]*w[s])**3": (
        "flipped_cumsum_G = (G * u.square()).flip(0).cumsum(0).flip(0)"
    ),
}


@pytest.mark.parametrize("text", SQUARES)
def test_a_product_of_sums_under_conditions_makes_no_pairs(text):
    op = parse(text)
    assert SQUARES[text] in source_without_reuse(op)
    assert [check for check in checks_of(op, load(op)) if not check.ok] == []


@pytest.mark.parametrize("sign", ["<=", ">="])
@pytest.mark.parametrize("kind", ["max", "min", "amax", "amin"])
def test_of_equal_elements_the_second_derivative_has_those_of_the_first(kind, sign):
    op = made(f"op f(A[k]) -> y\ny[k] = {kind}[l | l{sign}k](A[l]**2)*A[k]**3")
    f, plain = load(op), defined(op)
    for A in torch.randint(-2, 3, (8, 6), generator=torch.Generator().manual_seed(0)).double():
        A.requires_grad_()
        sums = (g(A).sin().sum() for g in (f, plain))
        slopes = [torch.autograd.grad(y, A, create_graph=True)[0] for y in sums]
        torch.testing.assert_close(*slopes)
        torch.testing.assert_close(*(torch.autograd.grad(x.sin().sum(), A)[0] for x in slopes))
    (none,) = torch.autograd.grad(f(A[:0]).sum(), A, create_graph=True)
    assert torch.autograd.grad(none.sum(), A)[0].tolist() == [0.0] * 6

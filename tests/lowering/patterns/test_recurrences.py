"""Sums over later positions that are recurrences: no tensor of all pairs, right with zeros."""

from functools import partial

import numpy as np
import pytest
import torch
from kit.each import each_row, some_now
from kit.lines import made, named, run
from kit.plain import plain
from kit.texts import source
from kit.unwritten import source_without_reuse

from derive import load
from derive.check.checks import QUICK, VALUES, checks_of

LOGSUMEXP = "op f(A[*p,k,*q]; dim=axis(k)) -> F\nF[*p,k,*q] = logsumexp[l | l<=k](A[*p,l,*q])"
PROD = "op f(A[*p,k,*q]; dim=axis(k)) -> F\nF[*p,k,*q] = prod[l | l<=k](A[*p,l,*q])"
EXCLUSIVE = PROD.replace("l<=k", "l<k")
TIES = PROD.replace("prod", "amax")
CODE = {
    LOGSUMEXP: ["grad_A = rt.decayed_sum(G, clamped_F, ctx.dim) * (A - clamped_F).exp()"],
    PROD: ["grad_A = rt.exclusive_cumprod(A, ctx.dim) * rt.adjoint_recurrence(G, A, ctx.dim)"],
    "op f(A[n,k]) -> y\ny[n,k] = logsumexp[l | l>=k](2*A[n,l])": [
        "flipped_decayed_sum = rt.decayed_sum(G.flip(1), clamped_y.flip(1), 1).flip(1)"
    ],
    "op f(A[n,k]) -> y\ny[k] = sum[n](prod[l | l>=k](sin(A[n,l])))": None,
    # The gradient of c is the sum of that of each factor.
    "op f(A[n,k], c) -> y\ny[n,k] = prod[l | l<=k](A[n,l] + c)": ["grad_c = grad_factor.sum()"],
    "op f(A[n,k], V[n,d]) -> y\ny[n,k,d] = prod[l | l>=k](A[n,l]*V[n,d])": None,
    "op f(A[k], V[d,k], c[d]) -> y\ny[d] = sum[k](V[d,k]*prod[l | l<=k](c[d]*sin(A[l])))": None,
    "op f(A[k], V[d,k]) -> y\ny[d,k] = sum[l | l<=k](V[d,l]*prod[j | j<=l](A[j]))": None,
    # The current position is left out, from either end.
    EXCLUSIVE: [
        "y = rt.exclusive_cumprod(A, dim)",
        "grad_A = F * rt.window(rt.linear_recurrence(G, A, dim, reverse=True)",
    ],
    "op f(A[k,n], V[k]) -> z\ny[k,n] = A[k,n]*prod[l | l>k](V[l] - sin(A[l,n]))\n"
    "z[k] = sum[j | j>=k](y[j,0])": None,
    # A cumulative softmax, from either end, and of some positions only.
    "op f(A[k,n], V[k,n]) -> y\n"
    "y[k,n] = sum[l | l<=k](exp(A[l,n])*V[l,n]) / sum[l | l<=k](exp(A[l,n]))": None,
    "op f(A[k], V[d,k], m[k]: bool) -> y\n"
    "y[d,k] = sum[l | l>=k and m[l]](exp(A[l])*V[d,l]) / sum[l | l>=k](exp(A[l]))": [
        "rt.where(m, V, 0) * (A.unsqueeze(0) - clamped_lse).exp(), -clamped_lse, 1"
    ],
    # Ties of a running extremum, from either end, of an input and of a value, beside other indices.
    TIES: ["rt.sum_while_equal(G_quotient, F, dim)"],
    "op f(A[n,k], V[d,k]) -> y\ny[d,n,k] = V[d,k]*amin[l | l>=k](sin(A[n,l]))": None,
    "op f(A[k], V[n,k], W[n,k]) -> y\nm[k] = max[l | l<=k](A[l])\n"
    "y[k] = sum[n,l](where(l<=k and A[l]==m[k], V[n,l]*W[n,k]*A[k], 0))": None,
    "op f(A[n,k], c[k]) -> y\ny[k] = sum[n](amax[l | l<=k](A[n,l]*c[l])*A[n,k])": None,
}
PAIRS = {
    # Not recurrences of the axis: a condition of its own, a weight of both, an end left out.
    "op f(A[k], m[k]: bool) -> y\ny[k] = logsumexp[l | l<=k and m[l]](A[l])": None,
    "op f(A[k], B[k]) -> y\ny[k] = prod[l | l<=k](1 + A[l]*B[k])": None,
    "op f(A[k], B[k]) -> y\ny[k] = logsumexp[l | l<=k](A[l]*B[k])": None,
}


@pytest.mark.parametrize("text", [t for t, code in CODE.items() if code], ids=named)
def test_the_code(text):
    op = made(text)
    code = plain(source_without_reuse(op)) + plain(source(op))
    found = [line.strip().replace("return ", "y = ") for line in code.splitlines()]
    for line in CODE[text]:
        assert any(line in f for f in found)
    own = code.partition("def forward(")[2].partition("def setup_context")[0]
    assert "V[" in text or "arange" not in own


@pytest.mark.parametrize("columns", some_now([VALUES, QUICK], 1), ids=len)
@each_row("text", [*CODE, *PAIRS])
def test_the_family_of_checks(text, columns):
    """Values and gradients now; all checks, on sizes of every kind, in the long campaign."""
    op = made(text)
    assert not [c for c in checks_of(op, load(op), columns=columns) if not c.ok]


@each_row("size", [0, 1, 2, 3, 7, 8, 13])
@each_row("text", [*CODE, *PAIRS])
def test_any_number_of_positions(text, size):
    op = made(text)
    sizes = {"k": size, "n": 3, "d": 4, "p": 2, "q": 3}
    rng = np.random.default_rng(0)
    tensors = {}
    for t in op.inputs:
        shape = [sizes[i.extent] for i in t.axes]
        values = rng.normal(size=shape)
        tensors[t.name] = values > 0 if t.kind == "bool" else values
    run(text, tensors, **{p.name: 1 for p in op.parameters})


def exclusive_cumprod(x, dim):
    return torch.cat((torch.ones_like(x[:, :1]), x[:, :-1]), 1).cumprod(dim)


@pytest.mark.parametrize("zeros", [(), (3,), (0, 6), (2, 3, 5), range(7)], ids=str)
@pytest.mark.parametrize("text", [PROD, EXCLUSIVE], ids=["whole", "exclusive"])
def test_products_with_zeros(zeros, text):
    f, reference = load(made(text)), torch.cumprod if text == PROD else exclusive_cumprod
    A = torch.randn(2, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A[:, list(zeros), 1] = 0
    G = torch.randn(A.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    A.requires_grad_(True)
    G.requires_grad_(True)
    both = []
    for function in (lambda x: f(x, dim=1), partial(reference, dim=1)):
        (first,) = torch.autograd.grad(function(A), A, G, create_graph=True)
        both.append((first, *torch.autograd.grad(first.square().sum(), (A, G))))
    torch.testing.assert_close(*both)
    assert torch.autograd.gradgradcheck(lambda x: f(x, dim=1), (A,), G)


def test_the_second_derivative_where_a_cotangent_is_zero():
    f = load(made(LOGSUMEXP))
    A = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    G = torch.ones(3, 5, dtype=torch.float64)
    G[0], G[1, 2], G[2, 1:4] = 0, 0, -1
    A.requires_grad_(True)
    G.requires_grad_(True)
    assert torch.autograd.gradgradcheck(lambda x: f(x, dim=1), (A,), G)


def gradient(f, A, G):
    A = torch.tensor(A, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(f(A), A, torch.tensor(G, dtype=torch.float64))
    return found


@pytest.mark.parametrize("scale", [1, 1e3, 1e300])
def test_logsumexps_of_any_size(scale):
    f = load(made(LOGSUMEXP))
    for A in ([1.0, -1.0, 0.5, 2.0, -2.0], [-1.0, 0.0, 1.0, 1.5, 2.0], [2.0, 1.0, 0.0, -1.0, -2.0]):
        A = [scale * a for a in A]
        G = [1.0, -2.0, 0.0, 3.0, 0.5]
        found = gradient(lambda x: f(x, dim=0), A, G)
        a, F = found.new_tensor(A), found.new_tensor(A).logcumsumexp(0)
        weights = torch.exp(a.unsqueeze(1) - F).triu()
        torch.testing.assert_close(found, weights @ found.new_tensor(G))


def test_infinities_stay_where_they_are():
    f = load(made(LOGSUMEXP))
    inf, nan = torch.inf, torch.nan
    for A, expected in (
        ([-inf, -inf, 0.0, 0.0], [0.0, 0.0, 1.5, 0.5]),
        ([0.0, -inf, -inf, 0.0], [3.5, 0.0, 0.0, 0.5]),
        ([0.0, inf, 0.0, 1.0], [1.0, nan, 0.0, 0.0]),
        ([-inf, -inf, -inf, -inf], [0.0, 0.0, 0.0, 0.0]),
    ):
        found = gradient(lambda x: f(x, dim=0), A, [1.0] * 4)
        torch.testing.assert_close(found, found.new_tensor(expected), equal_nan=True)


@each_row("kind", ["amax", "amin"])
@each_row("side", ["l<=k", "l>=k"])
def test_ties_of_a_running_extremum_share_its_gradient(kind, side):
    """As in torch, in both modes; what comes before a nan does not feel it."""
    f = load(made(f"op f(A[n,k]) -> y\ny[n,k] = {kind}[l | {side}](A[n,l])"))

    def reference(A):
        parts = (A[:, : k + 1] if side == "l<=k" else A[:, k:] for k in range(9))
        return torch.stack([getattr(part, kind)(1) for part in parts], 1)

    chosen = torch.tensor([0.0, 1, 2, torch.inf, -torch.inf], dtype=torch.float64)
    random = torch.Generator().manual_seed(0)
    A = chosen[torch.randint(0, 5, (40, 9), generator=random)].requires_grad_()
    G, T = torch.randn(2, 40, 9, dtype=torch.float64, generator=random).requires_grad_()
    both = []
    for function in (f, reference):
        (first,) = torch.autograd.grad(function(A), A, G, create_graph=True)
        second = torch.autograd.grad(first, G, T)[0]
        both.append((first, second, torch.func.jvp(function, (A.detach(),), (T.detach(),))[1]))
    torch.testing.assert_close(*both)
    at = 6 if side == "l<=k" else 2
    B = torch.where(torch.arange(9) == at, torch.nan, A.detach()).requires_grad_()
    kept = torch.arange(9) < at if side == "l<=k" else torch.arange(9) > at
    (found,) = torch.autograd.grad(f(B), B, G)
    torch.testing.assert_close(found, torch.autograd.grad(reference(A), A, G * kept)[0])


@pytest.mark.parametrize("factor", ["s[l,d]*A[d]", "exp(s[l,d]*A[d])"])
def test_a_factor_that_reads_a_tensor_without_the_axis(factor):
    """As that of a selective scan: the gradient of A is a sum over the axis of recurrences."""
    text = f"y[t,d] = sum[k | k<=t](x[k,d]*prod[l | k<l and l<=t]({factor}))"
    f = load(made(f"op f(x[t,d], s[t,d], A[d]) -> y\n{text}"))

    def reference(x, s, A):
        w, h = (s * A).exp() if "exp" in factor else s * A, [x[0]]
        for k in range(1, len(x)):
            h.append(w[k] * h[-1] + x[k])
        return torch.stack(h)

    x, s, A = (torch.rand(n, dtype=torch.float64).requires_grad_() for n in ((5, 2), (5, 2), (2,)))
    torch.testing.assert_close(f(x, s, A), reference(x, s, A))
    pairs = (torch.autograd.grad(g(x, s, A).sin().sum(), (x, s, A)) for g in (f, reference))
    torch.testing.assert_close(*pairs)
    assert torch.autograd.gradgradcheck(f, (x, s, A))
    long = [torch.full((2**18, 1), -1e-4, requires_grad=True) for _ in range(2)]
    f(*long, A.detach()[:1].float().requires_grad_()).sum().backward()
    assert long[1].grad.isfinite().all()


@pytest.mark.parametrize("text", [LOGSUMEXP, PROD, TIES], ids=named)
def test_no_tensor_of_all_pairs_is_made(text):
    """A gradient over more positions than a tensor of all pairs has room for."""
    f = load(made(text))
    A = torch.rand(2**20, dtype=torch.float64).requires_grad_()
    f(A, dim=0).sum().backward()
    assert A.grad.isfinite().all()

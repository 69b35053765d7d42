"""Gradients in float32 where terms cancel: as near to the truth as those of autograd."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import derive
from derive import catalog
from derive.check.precision import lost_digits
from derive.check.samples import cases, sample


def error(function: Callable[..., Any], plain: Callable[..., Any], tensors: list[Any]) -> Any:
    """(error of the function, that of autograd): the largest over all gradients, in float32.

    The truth is float64 of the same numbers.
    """

    def gradients(f: Callable[..., Any], dtype: Any) -> list[Any]:
        given = [t.to(dtype).requires_grad_() for t in tensors]
        result = f(*given)
        G = torch.randn(result.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
        return list(torch.autograd.grad(result, given, G))

    truth = gradients(plain, torch.float64)
    return tuple(
        max((a - b).abs().max().item() for a, b in zip(gradients(f, torch.float32), truth))  # noqa: B905
        for f in (function, plain)
    )


def randn(*shape: int, scale: float = 1.0) -> Any:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


ADDITIVE = """op additive(q[b,t,e], k[b,s,f], v[b,s,d], W[e,h], U[f,h], w[h]) -> o
u[b,t,s,h] = tanh(sum[e](q[b,t,e]*W[e,h]) + sum[f](k[b,s,f]*U[f,h]))
p[b,t,s] = softmax[s](sum[h](w[h]*u[b,t,s,h]))
o[b,t,d] = sum[s](p[b,t,s]*v[b,s,d])"""


def test_a_slope_beside_a_sum_that_is_zero_stays_whole():
    """Sum_s grad_scores is 0, and 1 - tanh^2 is not -tanh^2."""
    d = derive.derivation(derive.parse(ADDITIVE))
    for name in ("q", "k", "W", "U"):
        assert "(1 − u[b,t,s,h]²)" in str(d.gradients[name])


@pytest.mark.parametrize("scale", [3.0, 100.0])
def test_additive_attention_at_flat_ends_of_tanh(scale):
    def plain(q, k, v, W, U, w):
        return ((q @ W)[:, :, None] + (k @ U)[:, None]).tanh().matmul(w).softmax(-1) @ v

    q, k, v = randn(2, 3, 5, scale=scale), randn(2, 4, 6, scale=scale), randn(2, 4, 7, scale=scale)
    tensors = [q, k, v, randn(5, 8), randn(6, 8), randn(8)]
    ours, autograd = error(derive.load(derive.parse(ADDITIVE)), plain, tensors)
    assert ours <= 2 * autograd + 1e-6


POSITIONS = """op f(q[i,d], k[j,d], v[j,e], slope) -> o
P[i,j] = softmax[j | j <= i](sum[d](q[i,d]*k[j,d]) + slope*(j - i))
o[i,e] = sum[j](P[i,j]*v[j,e])"""


def test_a_difference_of_positions_stays_whole():
    """It is small where a softmax is not 0; the positions are as large as the axis is long."""

    def plain(q, k, v, slope):
        i, j = torch.arange(len(q))[:, None], torch.arange(len(k))
        S = (q @ k.mT + slope * (j - i)).masked_fill(j > i, -math.inf)
        return S.softmax(1) @ v

    op = derive.parse(POSITIONS)
    assert "(j − i)" in str(derive.derivation(op).gradients["slope"])
    tensors = [randn(600, 2), randn(600, 2), randn(600, 3), torch.tensor(0.5)]
    ours, autograd = error(derive.load(op), plain, tensors)
    assert ours <= 3 * autograd


SOFTMAXES = {
    "named": """op f(q[i,d], k[j,d], v[j,e]) -> o
P[i,j] = softmax[j](sum[d](q[i,d]*k[j,d]))
o[i,e] = sum[j](P[i,j]*v[j,e])""",
    "in one": """op f(q[i,d], k[j,d], v[j,e]) -> o
o[i,e] = sum[j](softmax[j](sum[d](q[i,d]*k[j,d]))*v[j,e])""",
    "as a quotient": """op f(q[i,d], k[j,d], v[j,e]) -> o
S[i,j] = sum[d](q[i,d]*k[j,d])
o[i,e] = sum[j](exp(S[i,j])*v[j,e])/sum[l](exp(S[i,l]))""",
    "projected": """op f(q[i,d], k[j,d], v[j,e]) -> o
P[i,j] = softmax[j](sum[d](q[i,d]*k[j,d]))
c[i,e] = sum[j](P[i,j]*v[j,e])
o[i,e] = 3*c[i,e]""",
}


@pytest.mark.parametrize("form", SOFTMAXES)
@pytest.mark.parametrize("scale", [10, 30])
def test_a_saturated_softmax_has_the_gradient_of_autograd(form, scale):
    factor = 3 if form == "projected" else 1

    def plain(q, k, v):
        return factor * (q @ k.mT).softmax(1) @ v

    tensors = [randn(7, 24, scale=scale), randn(5, 24, scale=scale), randn(5, 9, scale=scale)]
    ours, autograd = error(derive.load(derive.parse(SOFTMAXES[form])), plain, tensors)
    assert ours <= 2 * autograd + 1e-6


def test_two_values_that_are_compared_with_their_means_have_two_names():
    op = derive.parse("op f(v[i], X[i,j]) -> e\ne[j,i] = minimum(softmax[i](v[i]), X[i,j])")
    v = randn(4).double().requires_grad_()
    X = (torch.linspace(0, 0.5, 12, dtype=torch.float64).reshape(4, 3)).requires_grad_()
    G = randn(3, 4).double()
    found = torch.autograd.grad(derive.load(op)(v, X), (v, X), G)
    plain = torch.minimum(v.softmax(0)[:, None], X).mT
    torch.testing.assert_close(found, torch.autograd.grad(plain, (v, X), G), rtol=1e-12, atol=1e-12)


def test_the_mean_over_a_sum_that_the_share_is_in_keeps_it():
    """dL/dW of a softmax of x @ W sums over n, in whose rows the shares are as well."""
    op = derive.parse("op f(x[n,d], W[d,k]) -> y\ny[n,k] = softmax[k](sum[d](log(x[n,d])*W[d,k]))")
    x, W = randn(3, 2).double().exp().requires_grad_(), randn(2, 4).double().requires_grad_()
    G = randn(3, 4).double()
    found = torch.autograd.grad(derive.load(op)(x, W), (x, W), G)
    plain = (x.log() @ W).softmax(1)
    torch.testing.assert_close(found, torch.autograd.grad(plain, (x, W), G), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("offset", [0, 100, 1000])
@pytest.mark.parametrize("name", ["barlow_twins_loss", "batch_norm", "layer_norm", "std", "var"])
def test_a_mean_that_is_left_out_costs_no_more_than_the_last_bits_of_the_inputs(name, offset):
    """The sum of x - mean(x) counts as 0, although the mean is rounded."""
    function = derive.load(catalog.find(name))
    tensors = [offset + randn(7, 5)]
    tensors += [offset + randn(7, 5).flip(0)] if name == "barlow_twins_loss" else []
    tensors += [randn(5)] if name == "layer_norm" else []

    def gradients(given):
        given = [t.detach().requires_grad_() for t in given]
        result = function(*given, **({"dim": 0} if name in ("std", "var") else {}))
        G = torch.randn(result.shape, generator=torch.Generator().manual_seed(3)).to(result.dtype)
        return torch.autograd.grad(result, given, G)

    exact = [t.double() for t in tensors]
    moved = [t * (1 + 2.0**-23 * randn(7, 5).sign()[: len(t)]) if t.dim() > 1 else t for t in exact]
    truth = gradients(exact)
    for a, b, c in zip(gradients(tensors), truth, gradients(moved), strict=True):
        assert (a - b).abs().max() <= 3 * (c - b).abs().max() + 1e-6 * b.abs().max()


@pytest.mark.parametrize("option", ["", "; stable"])
def test_lost_digits_of_differences_are_told_with_the_option_that_keeps_them(option):
    op = derive.parse(
        f"op f(x[i], w[i]{option}) -> y\ny = sum[i,j](w[i]*w[j]*log1p((x[i] - x[j])**2))"
    )
    made = sample(op, next(case for case in cases(op) if case.label == "typical"))
    told = lost_digits(op, derive.load(op), made, scale=100.0)
    assert ("stable, after the ';'" in told) == (not option) == bool(told)


@pytest.mark.parametrize("by", ["w[k]", "w[n]"])
def test_a_gradient_that_is_nearly_nothing_is_no_loss(by):
    """The equations cancel to exactly 0 where the gradient is 1e-21."""
    op = derive.parse(f"op f(w{by[1:]}, x[n,k]) -> y\ny[n,k] = softmax[k]({by}*x[n,k])")
    for case in cases(op):
        assert not lost_digits(op, derive.load(op), sample(op, case), scale=100.0)

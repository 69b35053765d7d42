"""Sums of products are matrix products where two tensors share what is summed."""

import pytest
import torch
from kit.lines import made
from kit.lowered import assert_right
from kit.recognised import functions
from kit.unwritten import source_without_reuse

from derive import load, parse
from derive.lowering.ground.value import with_letters


def test_integers_are_summed_exactly():
    """2^24 + 1 is no float32, and 2^53 + 1 is no float64."""
    f = load(
        parse(
            "op f(A[i,k]: int, B[k,j]: int, m[n,k]: bool, x[i]) -> s, t, y\n"
            "s[i,j] = sum[k](A[i,k]*B[k,j])\nt[n,j] = sum[k | m[n,k]](B[k,j])\n"
            "y[i,j] = s[i,j]*x[i]"
        )
    )
    A, B = torch.tensor([[2**53 + 1, 1]]), torch.tensor([[1, 1, 1], [1, 2, 2**53 + 1]])
    s, t, _ = f(A, B, torch.ones(4, 2, dtype=torch.bool), torch.ones(1))
    assert torch.equal(s, (A[..., None] * B).sum(1)) and torch.equal(t, B.sum(0).expand(4, 3))


MASKED = {
    "op f(q[b,t,d], k[b,s,d], v[b,s,e]) -> y\n"
    "y[b,t,e] = sum[s,d | s <= t](q[b,t,d]*k[b,s,d]*v[b,s,e])": (
        "(q @ k.mT).tril() @ v",
        "lower_G_v @ k",
    ),
    "op f(x[t,c], m[n,t]: bool) -> y\ny[n,c] = sum[t | m[n,t]](x[t,c]**2)": (
        "m.to(x.dtype) @ x.square()",
        "2 * x * (m.mT @ G)",
    ),
    "op f(a[i,k], c[j,k], w[i,e]) -> y\ny[j,e] = sum[i,k | i != j](a[i,k]*c[j,k]*w[i,e])": (
        "torch.where(off_diagonal, a @ c.mT, 0).mT @ w",
        "torch.where(off_diagonal, w @ G.mT, 0) @ c",
    ),
    "op f(a[i,k], c[j,k], m[i,j]: bool) -> y\ny[i] = sum[j,k | m[i,j]](a[i,k]*c[j,k]**2)": (
        "rt.where(m, a @ c.square().mT, 0).sum(1)",
        None,
    ),
}


@pytest.mark.parametrize("text", MASKED)
def test_a_mask_is_applied_to_the_product_that_has_its_indices(text):
    value, gradient = MASKED[text]
    ours = functions(source_without_reuse(made(text)))
    assert ours[0][-1] == f"y = {value}"
    name = parse(text).inputs[0].name
    assert gradient is None or f"grad_{name} = {gradient}" in ours[1]


BETWEEN = [
    "sum[s,d | s <= t and d < 3](q[b,t,d]*k[b,s,d]*v[b,s,e])",
    "sum[s,d | s <= t and s != e](q[b,t,d]*k[b,s,d]*v[b,s,e])",
    "sum[s,d | s + d <= t](q[b,t,d]*k[b,s,d]*v[b,s,e])",
    "sum[s,d | s <= t or d == e](q[b,t,d]*k[b,s,d]*v[b,s,e])",
    "mean[s,d | s <= t](q[b,t,d]*exp(k[b,s,d])*v[b,s,e])",
    "sum[s,d | s <= t + 1 and d <= s](q[b,t,d]*k[b,s,d]*v[b,s,e]**2)",
    "sum[s,d | d <= e](q[b,t,d]*v[b,s,e])",
    "sum[s,d | s <= e and d <= t](k[b,s,d])*sum[d](q[b,t,d])",
    "sum[s | s <= t](k[b,s,s]*v[b,s,e])*q[b,t,0]",
    "sum[s,d | s != t](q[b,t,d]*k[b,s,d]*k[b,s,e]*v[b,s,e])",
]


@pytest.mark.parametrize("body", BETWEEN)
def test_masks_between_what_is_multiplied_are_right(body):
    inputs = "q[b,t,d], k[b,s,d], v[b,s,e]"
    if "k[b,s,s]" in body:
        inputs = inputs.replace("k[b,s,d]", "k[b,s,s]")
    assert_right(f"op f({inputs}) -> y\ny[b,t,e] = {body}".replace("k[b,s,e]", "v[b,s,e]"))


def test_an_einsum_has_the_letters_of_the_equation():
    """A letter of the spec stays, a bound index has that of its size, others have any."""
    shown = {"i0": "n", "i1": "d'", "e0": "n", "e1": "k", "e2": "size_of_heads"}.get

    def display_name(name):
        return shown(name, name)

    equation = '"<i0 e0><_0 e1>,<_0 e1><i1 e2>-><i0 e0><i1 e2>"'
    assert with_letters(equation, display_name) == '"nk,kd->nd"'
    assert with_letters('"<_0 e0><i0 e0>-><i0 e0>"', display_name) == '"in->n"'
    assert with_letters('"<_0 e2>...->..."', display_name) == '"i...->..."'
    assert with_letters('"amax"', display_name) == '"amax"'

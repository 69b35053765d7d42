"""Deltas that no sum removed: f at i = e(k), zeros where no k leads."""

import numpy as np
import pytest
import torch
from kit.lowered import assert_right
from kit.recognised import functions
from kit.texts import source
from kit.unwritten import source_without_reuse

from derive import load, parse
from derive.algebra.expr import Access, Delta, Index, Mul, Reduce
from derive.lowering.patterns.scatter_elements import as_summation

GRADIENTS = {
    "op f(x[i,i]) -> y\ny[i] = x[i,i]**2": "diag_embed()",
    "op f(x[i,j]) -> y\ny[i] = x[i,1]**2": ".unsqueeze(1), (1, x.shape[1] - 2))",
    "op f(x[n,t,c]) -> y\ny[n,c] = sin(x[n,size(t)-1,c])": "(0, 0, x.shape[1] - 1, 0))",
    "op f(x[t,n]) -> y\ny[n] = x[size(t)-2,n]**2*x[0,n]": "(0, 0, x.shape[0] - 2, 1))",
    "op f(x[*p,k]) -> y\ny[*p] = x[*p,size(k)-1]**3": "(x.shape[-1] - 1, 0))",
    "op f(x[*p,k,j]) -> y\ny[*p] = x[*p,size(k)-1,0]**3": "functional.pad",
    "op f(x[k,*p,j]) -> y\ny[*p] = x[2,*p,1]**3": ", -2, x.shape[0])",
    "op f(x[u]) -> y\ny[s] = x[s+2]**2": "grad_x = ",
}


@pytest.mark.parametrize("text", GRADIENTS)
def test_what_is_read_at_a_place_goes_back_there(text):
    assert GRADIENTS[text] in "\n".join(functions(source_without_reuse(parse(text)))[1])
    assert_right(text)


def test_what_is_spread_is_scaled_before_and_not_the_table():
    text = "op f(x[v,d], e[n,t]: int) -> y\ny[n,d] = mean[t](x[e[n,t],d])"
    assert "scaled_G = (G / e.shape[1])" in source(parse(text))


@pytest.mark.parametrize("read", ["i", "j"])
def test_a_diagonal_matrix_is_not_transposed(read):
    text = f"op f(x[n,i]) -> y\ny[n,i,j] = where(i == j, x[n,{read}]**3, 0)"
    assert ".mT" not in source(parse(text))
    assert_right(text)


def test_what_is_read_twice_adds_up():
    assert_right("op f(x[c], T[n]: int) -> y\ny[n] = x[T[n]]**2", T=np.array([1, 0, 1]))


def test_a_product_with_a_sum_of_deltas_is_one_sum():
    i, k = Index("i", "n"), Index("k", "k")
    inner = Reduce("sum", (k,), Mul((Delta(i, Access("T", (k,))), Access("G", (k,)))))
    found = as_summation(Mul((Access("x", (i,)), inner)), (i,))
    assert len(found.binders) == 1 and len(found.factors) == 3


@pytest.mark.parametrize("place", [0, 2, 3])
def test_a_winner_of_the_row_that_a_delta_names(place):
    """A delta that is no target is a test at the targets of the others."""
    text = "op f(v[l], x[l,i], T: int) -> y\ny[l] = [T == l]*max[a,h | h == l](v[l]*x[h,a])"
    assert_right(text, T=np.array(place))


@pytest.mark.parametrize("size", [5, 9, 12])
def test_a_place_of_the_whole_may_be_beyond_a_piece(size):
    f = load(
        parse(
            "op f(v[i], x[l,l]) -> y\n"
            "e[i,n,l] = concat[n](x[l,0]*v[n], x[l,l]*v[n])\ny = exp(e[1,9,1])"
        )
    )
    v, x = (torch.rand(*n, dtype=torch.float64, requires_grad=True) for n in ((size,), (3, 3)))
    assert torch.autograd.gradcheck(f, (v, x))


@pytest.mark.parametrize(
    "text",
    [
        "op f(x[t], z[k]; size(s)=size(t)+size(k)) -> y; y[s] = sum[t,k]([s == t + k]*x[t]*z[k])",
        "op f(x[i,u], z[u]) -> y; y[i] = sum[u]([u == 2*i + 1]*x[i,u]*z[u])",
    ],
)
def test_no_bracket_of_an_equality_becomes_a_mask(text):
    forward = source(parse(text)).partition("def forward(")[2]
    assert "==" not in forward.partition("backward(ctx")[0]
    assert_right(text)

"""Sums of products are matrix products where two tensors share what is summed."""

from __future__ import annotations

import pytest
from kit.lowered import assert_code, assert_right

FORMS = {
    "op f(A[i,k], B[k,j]) -> y\ny[i,j] = sum[k](A[i,k]*B[k,j])": "A @ B",
    "op f(A[k,i], B[j,k]) -> y\ny[i,j] = sum[k](A[k,i]*B[j,k])": "A.mT @ B.mT",
    "op f(A[b,i,k], B[b,j,k]) -> y\ny[b,i,j] = sum[k](A[b,i,k]*B[b,j,k])": "A @ B.mT",
    "op f(A[i,k], v[k]) -> y\ny[i] = sum[k](A[i,k]*v[k])": "A @ v",
    "op f(u[k], v[k]) -> y\ny = sum[k](u[k]*v[k])": "(u * v).sum()",
    "op f(A[i,j,k], B[k,j,s], c[s]) -> y\ny[i] = sum[j,k,s](A[i,j,k]*B[k,j,s]*c[s])": (
        "(A * (B.transpose(0, 1) @ c)).sum((1, 2))"
    ),
}


@pytest.mark.parametrize("text", FORMS)
def test_a_contraction_is_the_product_that_one_would_write(text):
    assert_code(text, [f"y = {FORMS[text]}"])
    assert_right(text)


def test_the_gradients_of_a_matrix_product_are_matrix_products():
    text = "op f(A[i,k], B[k,j]) -> y\ny[i,j] = sum[k](A[i,k]*B[k,j])"
    assert_code(text, ["y = A @ B"], ["grad_A = G @ B.mT", "grad_B = A.mT @ G"])

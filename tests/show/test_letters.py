"""Bound indices have letters of the operation where it has another for their extent."""

import pytest

import derive

GRADIENTS = {
    "op f(A[i,k]) -> C\nC[i,j] = sum[k](A[i,k]*A[j,k])": "Σⱼ A[j,k]·(G[j,i] + G[i,j])",
    "op f(A[k]) -> F\nF[k] = sum[l | l <= k](A[l])": "Σ[l | k ≤ l] G[l]",
    "op f(A[*p,k]) -> S\nS[*p,k] = softmax[k](A[*p,k])": (
        "S[*p,k]·(G[*p,k] − Σₖ′ G[*p,k′]·S[*p,k′])"
    ),
    # l is that of another extent, and j bound beside i.
    "op f(A[i,l]) -> y\ny[j] = sum[i,l](A[i,l]*A[j,l])": "Σⱼ A[j,l]·(G[i] + G[j])",
}


@pytest.mark.parametrize("text", GRADIENTS)
def test_a_bound_letter_that_is_taken_is_another_of_the_operation(text):
    d = derive.derivation(derive.parse(text))
    assert str(d.shown[0]).partition(" = ")[2] == GRADIENTS[text]

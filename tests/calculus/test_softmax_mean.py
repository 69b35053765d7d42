"""Differences from a mean: P*(Y - Sum_k P*Y) for a share P."""

from __future__ import annotations

from kit.equations import index

from derive import derivation, parse
from derive.algebra.expr import Access
from derive.algebra.poly import Term, make_term
from derive.calculus.softmax_mean import sums_apart

i, j, k = index("i"), index("j"), index("k")


def test_sums_that_share_no_index_are_apart():
    A, y, z = Access("A", (i, j)), Access("y", (j,)), Access("z", (k,))
    t = make_term(1, (i, j, k), (A, y, z))
    assert isinstance(t, Term)
    found = [len(factors) for _, factors in sums_apart(t)]
    assert sorted(found) == [1, 2]


def test_the_gradient_of_a_softmax_is_a_difference_from_a_mean():
    op = parse("op f(a[n], v[n]) -> y\np[n] = exp(a[n])/sum[m](exp(a[m]))\ny = sum[n](p[n]*v[n])")
    found = str(derivation(op).gradients["a"])
    assert found == "grad_a[n] = G·p[n]·(v[n] − Σₙ′ v[n′]·p[n′])"


def test_values_that_are_sums_have_a_name():
    op = parse(
        "op f(Q[t,d], K[s,d], V[s,e]) -> Y\n"
        "Y[t,e] = sum[s](softmax[s](sum[d](Q[t,d]*K[s,d]))*V[s,e])"
    )
    text = str(derivation(op))
    assert "value_scores[t,s] = Σₑ G[t,e]·V[s,e]" in text
    assert text.count("value_scores[t,s′]") == 1

"""Formulas with softmaxes, bounds, deltas and cases as they are read, and what is no such thing."""

import numpy as np
import pytest
from kit.each import each_row

import derive
from derive.algebra.expr import Access, Call, Delta, Index, Iverson, Mul, Reduce, Rel, Where, num
from derive.algebra.interpret import evaluate
from derive.show.formula import latex, unicode
from derive.show.identities import AxisFunction

GIVEN = {
    "S[i,k] = exp(A[i,k] - logsumexp[l](A[i,l]))": "softmaxₖ(A[i,k])",
    "S[i,k] = [k <= i]*exp(A[i,k] - logsumexp[l | l <= i](A[i,l]))": "softmax[k | k ≤ i](A[i,k])",
    "S[i,k] = softmax[i,k](A[i,k] + B[i])": "softmaxᵢₖ(A[i,k] + B[i])",
    # Of others than those that it is shared among, or under another condition.
    "S[i,k] = exp(A[k,i] - logsumexp[l](A[i,l]))": "exp(A[k,i] − logsumexpₗ(A[i,l]))",
    "S[i,k] = [k < i]*exp(A[i,k] - logsumexp[l | l <= i](A[i,l]))": (
        "[k < i]·exp(A[i,k] − logsumexp[l | l ≤ i](A[i,l]))"
    ),
    "S[i,k] = exp(A[i,k] + logsumexp[l](A[i,l]))": "exp(A[i,k] + logsumexpₗ(A[i,l]))",
    "S[i,k] = exp(B[i] - logsumexp[l](A[i,l]))*A[i,k]": "exp(B[i] − logsumexpₗ(A[i,l]))·A[i,k]",
    "S[i,k] = clamp(A[i,k], B[i], inf)": "max(A[i,k], B[i])",
    "S[i,k] = clamp(A[i,k], -inf, B[i])": "min(A[i,k], B[i])",
    "S[i,k] = clamp(A[i,k], -1, 1)": "clamp(A[i,k], −1, 1)",
    "S[i,k] = sqrt(2)*A[i,k]/2": "A[i,k]/√2",
    "S[i,k] = sqrt(2)*A[i,k]/sqrt(pi)": "√(2/π)·A[i,k]",
    "S[i,k] = sqrt(A[i,k])/3": "√(A[i,k])/3",
    "S[i,k] = sum[l](A[i,l]) - A[i,k]": "Σₗ A[i,l] − A[i,k]",
    "S[i,k] = -sum[l](A[i,l]) - A[i,k]": "−A[i,k] − Σₗ A[i,l]",
}


@each_row("equation", GIVEN)
def test_an_equation_is_shown_in_the_words_of_the_notation(equation):
    inputs = "A[i,k], B[i]" if "B" in equation else "A[i,k]"
    op = derive.parse(f"op f({inputs}) -> S\n{equation}")
    assert str(derive.derivation(op).equations[0]).partition(" = ")[2] == GIVEN[equation]


CASES = {
    "y[n] = maximum(x[n], z[n])": "G[n]·([z[n] < x[n]] + [x[n] = z[n]]/2)",
    "y[n] = where(z[n] > 1, x[n], clamp(2 - x[n], 0, inf))": (
        "G[n]·where(z[n] > 1, 1, −[2 − x[n] ≥ 0])"
    ),
}


@pytest.mark.parametrize("equation", CASES)
def test_what_all_cases_have_in_common_stands_before_them(equation):
    d = derive.derivation(derive.parse(f"op f(x[n], z[n]) -> y\n{equation}"))
    assert str(d.gradients["x"]) == f"grad_x[n] = {CASES[equation]}"


def test_what_stands_outside_of_brackets_too_is_not_taken_out():
    x, y = Access("x", ()), Access("y", ())
    assert unicode(Mul((Iverson(Rel("<", y, num(1))), x)) + x * y) == "[y < 1]·x + x·y"


C, N = Index("c", "c"), Index("n", "n")
K = Access("K", (N,))


def shown(*factors):
    return unicode(Mul((Delta(C, K), *factors)))


def test_a_delta_says_that_its_position_is_one():
    assert shown(Iverson(Rel("<=", num(0), K))) == "δ[c,K[n]]"
    assert shown(Iverson(Rel("<=", num(-1), K))) == "δ[c,K[n]]"
    assert shown(Iverson(Rel(">", num(2), K))) == "[K[n] < 2]·δ[c,K[n]]"
    assert shown(Iverson(Rel("<=", num(1), K))) == "[K[n] ≥ 1]·δ[c,K[n]]"
    assert shown(Iverson(Rel("!=", K, num(0)))) == "[K[n] ≠ 0]·δ[c,K[n]]"


def test_beside_a_delta_tensors_are_read_at_the_axis():
    assert shown(Access("x", (N, K))) == "δ[c,K[n]]·x[n,c]"
    assert shown(Access("x", (Access("p", (K,)),))) == "δ[c,K[n]]·x[p[c]]"
    assert shown(K) == "δ[c,K[n]]·K[n]"


def test_within_a_sum_over_the_axis_its_letter_is_another():
    other = Reduce("sum", (C,), Mul((Access("x", (C,)), Access("y", (K,)))))
    assert shown(other, Access("y", (K,))) == "δ[c,K[n]]·y[c]·Σ[c′] x[c′]·y[K[n]]"


def test_a_convolution_has_the_bounds_of_its_reads_once():
    op = derive.parse(
        "op f(x[t], w[k]; size(u)=9) -> y\n"
        "y[u] = sum[k | 0 <= 2*u + k - 1 and 2*u + k - 1 < size(t)](x[2*u + k - 1]*w[k])"
    )
    assert str(derive.derivation(op).gradients["x"]) == (
        "grad_x[t] = Σₖᵤ δ[t,k + 2·u − 1]·G[u]·w[k]"
    )


PLACES = [-2.0, -0.5, 0.0, 0.5, 2.0]


@pytest.mark.parametrize("op", [">", ">="])
def test_a_number_up_to_a_limit_of_either_sign(op):
    x, d = Access("x", ()), Access("d", ())
    size, sign = Call("abs", (x,)), Call("sign", (x,))
    e = Where(Rel(op, size, d), Mul((d, sign)), x)
    assert unicode(e) == "sign(x)·min(|x|, d)"
    for a in PLACES:
        for b in PLACES:
            found = evaluate(e, {"x": np.array(a), "d": np.array(b)}, {}, {}, {})
            assert found == np.sign(a) * min(abs(a), b)
    assert unicode(Where(Rel("<", size, d), Mul((d, sign)), x)).startswith("where")
    assert unicode(Where(Rel(op, size, d), Mul((d, sign)), d)).startswith("where")


@pytest.mark.parametrize("op", [">", ">="])
def test_an_exponential_up_to_one(op):
    x = Access("x", ())
    e = Where(Rel(op, x, num(0)), num(1), Call("exp", (x,)))
    assert unicode(e) == "exp(min(x, 0))"
    for a in PLACES:
        assert evaluate(e, {"x": np.array(a)}, {}, {}, {}) == np.exp(min(a, 0))
    assert unicode(Where(Rel("<", x, num(0)), num(1), Call("exp", (x,)))).startswith("where")
    assert unicode(Where(Rel(op, x, num(1)), num(1), Call("exp", (x,)))).startswith("where")


def shown_gradient(text):
    return str(derive.derivation(derive.parse(text)).shown[0]).partition(" = ")[2]


def test_what_an_equation_is_divided_by_is_not_said_to_be_other_than_zero():
    power = "abs(x[n])**p"
    assert "≠" in shown_gradient(f"op f(x[n]; p=2) -> y\ny[n] = ({power} + 1)**p")
    assert "≠" not in shown_gradient(f"op f(x[n]; p=2) -> y\ny[n] = ({power} + 1)**(1/p)")
    guarded = "op f(x[n]; p=2) -> y\ny[n] = where(p != 0, x[n]**3/p, 0)"
    assert shown_gradient(guarded) == "3·[p ≠ 0]·G[n]·x[n]²/p"


def test_sums_that_are_divided_by_a_size_are_means():
    centred = "op f(x[i,j]) -> y\ny[i,j] = x[i,j] - sum[k](x[i,k])/size(j)"
    assert shown_gradient(centred) == "G[i,j] − meanₖ(G[i,k])"
    twice = "op f(x[i,j]) -> y\ny = sum[i,j](x[i,j])**2/(size(i)*size(j))"
    assert shown_gradient(twice) == "2·G·meanᵢ′ⱼ′(x[i′,j′])"
    half = "op f(x[i,j]) -> y\ny = sum[i,j](x[i,j])**2/size(i)"
    assert shown_gradient(half) == "2·G/size(i)·Σᵢ′ⱼ′ x[i′,j′]"


def test_a_softmax_in_latex():
    k = Index("k", "k")
    assert latex(AxisFunction("softmax", (k,), Access("A", (k,)))) == (
        r"\operatorname*{softmax}_{k}\left(A_{k}\right)"
    )

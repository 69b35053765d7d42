"""Formulas in the form that an expert writes: conditions, cases, roots, closed forms."""

import warnings

import numpy as np
import pytest
from kit.each import each_row

import derive
from derive.algebra.expr import Access, Add, Index, Iverson, Mul, Not, Num, Rel, Size, num
from derive.algebra.interpret import evaluate
from derive.check.checks import checks_of
from derive.show.formula import unicode
from derive.show.legible import by_cases, legible

FORMS = {
    "y[n] = where(x[n] > 0, x[n], s*x[n])": {"x": "G[n]·where(x[n] > 0, 1, s)"},
    "y[n] = where(x[n] > 0, x[n], expm1(x[n]))": {"x": "G[n]·exp(min(x[n], 0))"},
    "y[n] = where(x[n] > 0, x[n], s*(exp(x[n]) - 1))": {
        "x": "G[n]·where(x[n] > 0, 1, s·exp(x[n]))"
    },
    "y[n] = clamp(x[n], -s, s)": {"x": "[−s ≤ x[n] ≤ s]·G[n]"},
    "y[n] = clamp(x[n], s, inf)": {"x": "[x[n] ≥ s]·G[n]"},
    "y[n] = clamp(x[n], -inf, s)": {"x": "[x[n] ≤ s]·G[n]"},
    "y[n] = where(t[n] == 0, x[n], where(t[n] == 3, h[n], log(z[n])))": {
        "h": "[t[n] ≠ 0]·[t[n] = 3]·G[n]",
        "t": "0",
        "x": "[t[n] = 0]·G[n]",
        "z": "[t[n] ≠ 0 and t[n] ≠ 3]·G[n]/z[n]",
    },
    "y[n] = x[n]**s": {"x": "s·G[n]·x[n]^(s − 1)"},
    "y[n] = x[n]*(1 + erf(x[n]/sqrt(2)))/2": {
        "x": "G[n]·(√(2/π)·x[n]·exp(−x[n]²/2) + 1 + erf(x[n]/√2))/2"
    },
    "y[n] = abs(x[n] - t[n] + s)": {
        "x": "G[n]·sign(x[n] − t[n] + s)",
        "t": "−G[n]·sign(x[n] − t[n] + s)",
    },
    # One let of 1 − sigmoid serves both.
    "y[n] = (1 - sigmoid(z[n]))*tanh(x[n]) + sigmoid(z[n])*h[n]": {
        "z": "G[n]·(1 − sigmoid(z[n]))·sigmoid(z[n])·(h[n] − tanh(x[n]))",
        "x": "G[n]·(1 − sigmoid(z[n]))·(1 − tanh(x[n])²)",
        "h": "G[n]·sigmoid(z[n])",
    },
    "y[n] = x[n]*sigmoid(x[n])": {"x": "G[n]·sigmoid(x[n])·(1 + x[n]·(1 − sigmoid(x[n])))"},
    "y[n] = -(t[n]*log(sigmoid(x[n])) + (1 - t[n])*log(1 - sigmoid(x[n])))": {
        "x": "G[n]·(sigmoid(x[n]) − t[n])",
        "t": "−G[n]·x[n]",
    },
    "p[n] = sigmoid(x[n])\ny[n] = p[n]**2*log(1 - p[n])": {"x": "G[n]·(2·y[n]·(1 − p[n]) − p[n]³)"},
    # What is straight through is shown by its value.
    "y[n] = sin(x[n] + detach(s*round(x[n]/s) - x[n]))": {"x": "G[n]·cos(s·round(x[n]/s))"},
    "y[n] = exp(z[n] + detach(x[n]))": {"x": "0", "z": "G[n]·y[n]"},
    # What chooses among the summands stands under the sum; what counts them does not.
    "op f(x[k], w[k], m[k,l]: bool) -> y\ny[k] = w[k]*sum[l | 0 <= l and l <= k and m[k,l]](x[l])"
    "/(1 + sum[l](m[k,l]))": {
        "x": "Σ[k′ | k ≤ k′ and m[k′,k]] G[k′]·w[k′]/(1 + Σₖ′′ [m[k′,k′′]])",
        "w": "G[k]/(1 + Σₖ′ [m[k,k′]])·Σ[k′ | k′ ≤ k and m[k,k′]] x[k′]",
    },
    "op f(x[k], w[h]) -> y\ny[k,h] = w[h]*sum[l | k - 2 <= l and l < k + 3](x[l])": {
        "x": "Σ[k′,h | k′ − 2 ≤ k < 3 + k′] G[k′,h]·w[h]",
        "w": "Σ[k,k′ | k − 2 ≤ k′ < 3 + k] G[k,h]·x[k′]",
    },
    # The cases of a short axis, each by itself.
    "op f(x[n,t,k]; size(t)=2) -> y\ny[n,k] = x[n,0,k]*sin(x[n,1,k])": {
        "x": "δ[t,0]·G[n,k]·sin(x[n,1,k]) + δ[t,1]·G[n,k]·x[n,0,k]·cos(x[n,1,k])"
    },
}


@each_row("text", FORMS)
def test_the_gradient_reads_as_an_expert_writes_it(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not text.startswith("op"):
            used = [n for n in ("x", "t", "z", "h") if f"{n}[n]" in text]
            line = f"op f({', '.join(f'{n}[n]' for n in used)}{'; s=0.5' if 's' in text else ''})"
            text_ = f"{line} -> y\n{text}"
        else:
            text_ = text
        d = derive.derivation(derive.parse(text_))
    assert not d.adjoints
    found = {name: str(f).partition(" = ")[2] for name, f in d.gradients.items()}
    assert found == FORMS[text]


def test_an_axis_of_size_1_is_0_on_the_left_side_too():
    d = derive.derivation(derive.parse("op f(x[n,0], w[0,c]) -> y\ny[n,c] = x[n,0]*w[0,c]"))
    assert str(d.gradients["x"]) == "grad_x[n,0] = Σ[c] G[n,c]·w[0,c]"
    assert str(d.gradients["w"]) == "grad_w[0,c] = Σₙ G[n,c]·x[n,0]"


def test_a_masked_softmax_has_the_closed_form():
    d = derive.derivation(
        derive.parse(
            "op f(S[i,j], V[j,e]) -> O\nP[i,j] = softmax[j | j<=i](S[i,j])\n"
            "O[i,e] = sum[j](P[i,j]*V[j,e])"
        )
    )
    # The mean is of the very numbers beside it: Σₑ G[i,e]·O[i,e] is the same but for rounding.
    assert [str(f) for f in (*d.adjoints, *d.gradients.values())] == [
        "grad_P[i,j] = Σₑ G[i,e]·V[j,e]",
        "grad_S[i,j] = P[i,j]·(grad_P[i,j] − Σⱼ′ grad_P[i,j′]·P[i,j′])",
        "grad_V[j,e] = Σᵢ G[i,e]·P[i,j]",
    ]


def test_a_bracket_that_a_factor_has_by_itself_is_not_said_again():
    """P[i,j] is 0 where j > i, and what is finite times 0 is 0."""
    d = derive.derivation(
        derive.parse(
            "op f(Q[i], K[j]) -> y\nP[i,j] = softmax[j | j<=i](Q[i]*K[j])\ny[i,j] = P[i,j]**2*K[j]"
        )
    )
    assert [str(e) for e in (*d.adjoints, *d.gradients.values())] == [
        "grad_scores[i,j] = 2·(G[i,j]·y[i,j] − P[i,j]·Σⱼ′ G[i,j′]·y[i,j′])",
        "grad_Q[i] = Σⱼ grad_scores[i,j]·K[j]",
        "grad_K[j] = Σᵢ grad_scores[i,j]·Q[i] + Σᵢ G[i,j]·P[i,j]²",
    ]


INLINE = "o[t,d] = sum[u](softmax[u | u <= t](scale*sum[d](q[t,d]*k[u,d]))*v[u,d])"
NAMED = (
    "scores[t,u] = scale*sum[d](q[t,d]*k[u,d])\nP[t,u] = softmax[u | u <= t](scores[t,u])\n"
    "o[t,d] = sum[u](P[t,u]*v[u,d])"
)


@pytest.mark.parametrize(
    ("equations", "adjoints"),
    [(INLINE, ["grad_scores"]), (NAMED, ["grad_P", "grad_scores"])],
    ids=["inline", "named"],
)
def test_the_scores_of_a_softmax_have_an_adjoint(equations, adjoints):
    """Σⱼ P·grad_P is taken from scores once, not from what each of their factors is given."""
    spec = f"op f(q[t,d], k[u,d], v[u,d]; scale=0.3) -> o\n{equations}"
    d = derive.derivation(derive.parse(spec))
    assert [a.name for a in d.adjoints] == adjoints
    assert str(d.gradients["q"]) == "grad_q[t,d] = scale·Σᵤ grad_scores[t,u]·k[u,d]"
    assert str(d.gradients["k"]) == "grad_k[u,d] = scale·Σₜ grad_scores[t,u]·q[t,d]"


SHARES = {
    "by hand": "y[n,k] = exp(sum[d](x[n,d]*W[d,k]))/sum[j](exp(sum[d](x[n,d]*W[d,j])))",
    "its logarithm": "y[n,k] = log_softmax[k](sum[d](x[n,d]*W[d,k]) + x[n,0])",
    "over two axes": "y[n,k] = softmax[n,k](tanh(sum[d](x[n,d]*W[d,k])))",
    "of another": (
        "y[n,k] = softmax[k](sum[j](W[j,k]*softmax[j](sum[d](x[n,d]*W[d,j])))/sqrt(size(d)))"
    ),
}


@pytest.mark.parametrize("equations", SHARES.values(), ids=SHARES)
def test_scores_are_found_where_they_stand(equations):
    op = derive.parse(f"op f(x[n,d], W[d,k]; size(d)=4, size(k)=4) -> y\n{equations}")
    assert derive.derivation(op).adjoints[0].name.startswith("grad_scores")
    assert all(c.ok for c in checks_of(op, derive.load(op)))


def test_scores_that_may_not_be_finite_have_no_name():
    op = derive.parse(
        "op f(x[n,d], W[d,k]) -> y\n"
        "y[n,k] = where(x[n,0] > 0, softmax[k](sum[d](log(x[n,d])*W[d,k])), 0)"
    )
    assert not derive.derivation(op).adjoints


def test_a_factor_that_stands_twice_is_a_power():
    d = derive.derivation(derive.parse("op f(x[n], s[n]) -> y\ny[n] = x[n]*x[n]/(s[n]*s[n])"))
    assert str(d.equations[0]) == "y[n] = x[n]²/s[n]²"
    other = derive.derivation(derive.parse("op f(x[n], s[n]) -> y\ny[n] = x[n]*x[0]/s[n]"))
    assert str(other.equations[0]) == "y[n] = x[n]·x[0]/s[n]"


def test_what_is_read_once_is_written_where_it_is():
    text = (
        "op f(w[n], x[n], t[n]) -> y\ny[n] = w[n]*(t[n]*clamp(log(x[n]), -9, inf)"
        " + (1 - t[n])*clamp(log(1 - x[n]), -9, inf))"
    )
    d = derive.derivation(derive.parse(text))
    assert d.definitions == ()
    assert str(d.gradients["w"]) == (
        "grad_w[n] = G[n]·(t[n]·max(log(x[n]), −9) + (1 − t[n])·max(log(1 − x[n]), −9))"
    )


def test_a_logsumexp_in_a_share_is_that_of_a_softmax():
    text = "op f(s[n,m]; size(m)=size(n)) -> y\ny[n] = logsumexp[m](s[n,m]) - s[n,n]"
    d = derive.derivation(derive.parse(text))
    assert d.definitions == ()
    assert str(d.gradients["s"]) == "grad_s[n,m] = G[n]·(softmaxₘ(s[n,m]) − δ[n,m])"


def test_a_term_that_is_no_more_is_left_out():
    d = derive.derivation(derive.parse("op f(x[n]) -> y\ny[n] = log(x[n]) + 0*log(1 - x[n])"))
    assert str(d.equations[0]) == "y[n] = log(x[n])"


def test_what_is_taken_away_has_no_bracket():
    d = derive.derivation(derive.parse("op f(x[n], a) -> y\ny[n] = x[n]**2 - (a*x[n] + x[n]**3)"))
    assert str(d.equations[0]) == "y[n] = x[n]² − a·x[n] − x[n]³"


A, B, X, Y = (Access(name, ()) for name in "abxy")
K, J = Index("i", "i"), Index("j", "j")


def bracket(op, left=A, right=B):
    return Iverson(Rel(op, left, right))


SUMS = {
    "a denial": ([Mul((bracket("!="), X)), Mul((bracket("=="), X))], "x"),
    "less, equal, greater": ([bracket("<"), bracket("<", B, A), bracket("==")], "1"),
    "less or equal": ([Mul((bracket("<"), X)), Mul((bracket("==", B, A), X))], "[a ≤ b]·x"),
    "half of it": (
        [bracket("<"), Mul((Num(num(1).value / 2), bracket("==")))],
        "[a < b] + [a = b]/2",
    ),
    "both hold": ([bracket("<="), bracket("==")], "[a ≤ b] + [a = b]"),
    "others": ([bracket("<"), bracket(">", A, X)], "[a < b] + [a > x]"),
    "a choice": ([Mul((bracket(">"), X)), Mul((bracket("<="), Y))], "where(a > b, x, y)"),
    "no more": ([bracket("!="), bracket("=="), Y], "1 + y"),
    "not": ([Iverson(Not(A)), Iverson(A)], "1"),
}


@each_row("case", SUMS)
def test_a_sum_by_cases_has_the_value_of_the_sum(case):
    args, expected = SUMS[case]
    made = by_cases(args)
    assert unicode(made) == expected
    for a in (-1.5, 0.5, 2.0) if case != "not" else (True, False):
        for b in (-1.5, 0.5, 2.0):
            given = {"a": np.array(a), "b": np.array(b), "x": np.array(0.7), "y": np.array(3.0)}
            assert evaluate(made, given, {}, {}, {}) == evaluate(
                Add(tuple(args)), given, {}, {}, {}
            )


POSITIONS = {
    "below and from the next": (Rel("<=", J - K, num(0)), Rel(">=", J - K, num(1)), True),
    "another form": (Rel("<", J, K), Rel("<=", K, J), True),
    "with a size": (Rel("<", J + K, Size("i")), Rel(">", J + K, Size("i") - 1), True),
    "one left out": (Rel("<", J, K), Rel(">", J, K), False),
    "numbers": (Rel("<=", A, num(0)), Rel(">=", A, num(1)), False),
}


@pytest.mark.parametrize("case", POSITIONS)
def test_of_two_conditions_on_positions_one_holds(case):
    one, two, always = POSITIONS[case]
    made = legible(Add((Mul((Iverson(one), X)), Mul((Iverson(two), X)))))
    assert (made is X) == always
    if isinstance(one.left, Access):
        return
    for i in range(4):
        for j in range(4):
            given = {K: i, J: j}
            found = [evaluate(Iverson(c), {}, {"i": 4, "j": 4}, given, {}) for c in (one, two)]
            assert not always or sum(found) == 1


GRADIENTS = {
    "y[n] = maximum(a[n], b[n]) + minimum(a[n], b[n])": "G[n]",
    "y[n] = where(a[n] != 0, b[n], 0) + where(a[n] == 0, b[n], 0)": "G[n]",
    "y[n] = relu(a[n]) - relu(-a[n])": "[a[n] ≠ 0]·G[n]",
}


@pytest.mark.parametrize("equation", GRADIENTS)
def test_a_gradient_has_no_cases_that_are_all(equation):
    inputs = "a[n], b[n]" if "b" in equation else "a[n]"
    d = derive.derivation(derive.parse(f"op f({inputs}) -> y\n{equation}"))
    assert str(d.shown[-1]).partition(" = ")[2] == GRADIENTS[equation]


def test_two_triangles_are_the_whole():
    text = "op f(x[i,j]) -> y\ny[i,j] = where(j - i <= 1, x[i,j], 0) + where(j - i >= 2, x[i,j], 0)"
    assert str(derive.derivation(derive.parse(text)).shown[0]) == "grad_x[i,j] = G[i,j]"

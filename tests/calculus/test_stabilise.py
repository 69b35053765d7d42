"""Stable forms: equal to what was written, right far out, and found only where they hold."""

import math

import numpy as np
import pytest
import torch
from kit.each import each_row
from kit.equations import defined

import derive
from derive.algebra.expr import Call, accesses, walk
from derive.algebra.factor import to_tree
from derive.algebra.interpret import array
from derive.calculus.build_lets import flatten_operation
from derive.check import oracle

SOFTPLUS = np.frompyfunc(lambda u: float(np.logaddexp(0, u)), 1, 1)


def softplus(u):
    return SOFTPLUS(u).astype(float)


def total(u):
    return np.logaddexp.reduce(u, axis=-1)


# What is written, its value by a formula that overflows nowhere, functions that must not stand.
IDENTITIES = {
    "1/sum exp": ("y[j] = sum[k](exp(B[j,k]))**(-1)", lambda B: np.exp(-total(B))),
    "root of sum exp": ("y[j] = sqrt(sum[k](exp(B[j,k])))", lambda B: np.exp(total(B) / 2)),
    "log sum exp": ("y[j] = log(sum[k](exp(B[j,k])))", lambda B: total(B)),
    "share": ("y[j,k] = exp(B[j,k])/sum[l](exp(B[j,l]))", lambda B: np.exp(B - total(B)[:, None])),
    "log share": ("y[j,k] = log(exp(B[j,k])/sum[l](exp(B[j,l])))", lambda B: B - total(B)[:, None]),
    "log of a product": (
        "y[j,k] = log(3*exp(B[j,k])*size(k))",
        lambda B: math.log(3 * B.shape[1]) + B,
    ),
    "log of a power": ("y[j,k] = log(exp(B[j,k])**(-2))", lambda B: -2 * B),
    "logsumexp of a shifted sum": (
        "y[j] = logsumexp[k](B[j,k] + B[j,0])",
        lambda B: B[:, 0] + total(B),
    ),
    "log mean exp": ("y[j] = log(mean[k](exp(B[j,k])))", lambda B: total(B) - math.log(B.shape[1])),
    "log mean exp of some": (
        "y[j] = log(mean[k | k >= 1](exp(B[j,k])))",
        lambda B: total(B[:, 1:]) - math.log(B.shape[1] - 1),
    ),
    "share of a mean": (
        "y[j,k] = exp(B[j,k])/(3*mean[l](exp(B[j,l])))",
        lambda B: np.exp(B - total(B)[:, None]) * B.shape[1] / 3,
    ),
    "log1p(exp)": ("y[j,k] = log1p(exp(B[j,k]))", softplus),
    "log1p(-sigmoid)": ("y[j,k] = log1p(-sigmoid(B[j,k]))", lambda B: -softplus(B)),
    "log(exp + exp)": (
        "y[j] = log(exp(B[j,0]) + 2*exp(B[j,1]))",
        lambda B: np.logaddexp(B[:, 0], math.log(2) + B[:, 1]),
    ),
    "log(exp + exp + 1)": (
        "y[j] = log(1 + exp(B[j,0]) + exp(B[j,1]))",
        lambda B: softplus(np.logaddexp(B[:, 0], B[:, 1])),
    ),
    "log(1 + sum exp)": ("y[j] = log(1 + sum[k](exp(B[j,k])))", lambda B: softplus(total(B))),
    "log(exp + sum exp)": (
        "y[j] = log(exp(-B[j,0]) + sum[k](exp(B[j,k])))",
        lambda B: np.logaddexp(-B[:, 0], total(B)),
    ),
    "share of two": (
        "y[j] = exp(B[j,0])/(exp(B[j,0]) + exp(B[j,1]))",
        lambda B: np.exp(-softplus(B[:, 1] - B[:, 0])),
    ),
    "share of one and a named sum": (
        "t[j] = exp(-B[j,0]) + sum[k](exp(B[j,k]))\ny[j] = -log(exp(-B[j,0])/t[j])",
        lambda B: softplus(total(B) + B[:, 0]),
    ),
    "share of three": (
        "y[j] = exp(B[j,0])/(exp(B[j,0]) + exp(-B[j,0]) + exp(B[j,1]))",
        lambda B: np.exp(B[:, 0] - np.logaddexp(np.logaddexp(B[:, 0], -B[:, 0]), B[:, 1])),
    ),
    "exp/(1 + exp)": ("y[j,k] = exp(B[j,k])/(1 + exp(B[j,k]))", lambda B: np.exp(-softplus(-B))),
    "exp/(1 + exp)^2": (
        "y[j,k] = exp(B[j,k])/(1 + exp(B[j,k]))**2",
        lambda B: np.exp(-softplus(-B) - softplus(B)),
    ),
    "log(1 + exp)": ("y[j,k] = log(1 + exp(B[j,k]))", softplus),
    "1/(1 + exp)": ("y[j,k] = 1/(1 + exp(B[j,k]))", lambda B: np.exp(-softplus(B))),
    "1/(1 + exp(-))": ("y[j,k] = 1/(1 + exp(-B[j,k]))", lambda B: np.exp(-softplus(-B))),
    "1/(1 + exp)^2": ("y[j,k] = (1 + exp(B[j,k]))**(-2)", lambda B: np.exp(-2 * softplus(B))),
    "log sigmoid": ("y[j,k] = log(sigmoid(B[j,k]))", lambda B: -softplus(-B)),
    "log(1 - sigmoid)": ("y[j,k] = log(1 - sigmoid(B[j,k]))", lambda B: -softplus(B)),
    "log of a written sigmoid": ("y[j,k] = log(1/(1 + exp(B[j,k])))", lambda B: -softplus(B)),
    "guarded sum": ("y[j] = log(sum[k | k >= 1](exp(B[j,k])))", lambda B: total(B[:, 1:])),
    "through a name": (
        "s[j,k] = exp(B[j,k])\ny[j,k] = s[j,k]/sum[l](exp(B[j,l]))",
        lambda B: np.exp(B - total(B)[:, None]),
    ),
    "a share of names": (
        "e[j,k] = exp(B[j,k])\nt[j] = sum[k](e[j,k])\ny[j,k] = e[j,k]/t[j]",
        lambda B: np.exp(B - total(B)[:, None]),
    ),
    "a share by a named reciprocal": (
        "e[j,k] = exp(B[j,k])\nt[j] = sum[k](e[j,k])\nr[j] = t[j]**(-1)\ny[j,k] = e[j,k]*r[j]",
        lambda B: np.exp(B - total(B)[:, None]),
    ),
    "log of a named sum": (
        "e[j,k] = exp(B[j,k])\nt[j] = sum[k](e[j,k])\ny[j] = log(t[j])",
        lambda B: total(B),
    ),
    "log of a share, step by step": (
        "m[j] = max[k](B[j,k])\nd[j,k] = B[j,k] - m[j]\ne[j,k] = exp(d[j,k])\n"
        "t[j] = sum[k](e[j,k])\nr[j] = t[j]**(-1)\np[j,k] = e[j,k]*r[j]\ny[j,k] = log(p[j,k])",
        lambda B: B - total(B)[:, None],
    ),
    "log of a named share": (
        "S[j,k] = exp(B[j,k])/sum[l](exp(B[j,l]))\ny[j,k] = log(S[j,k])",
        lambda B: B - total(B)[:, None],
    ),
}
# The value itself of a power of a sum of exponentials overflows.
OVERFLOWING = {"root of sum exp", "1/sum exp"}


def lets_of(text):
    op = derive.parse(text)
    return op, flatten_operation(op)


def needed(lets, name):
    """The lets that a value is computed from, in order."""
    wanted, pending = set(), [name]
    while pending:
        let = lets.get(pending.pop())
        if let is not None and let.name not in wanted:
            wanted.add(let.name)
            pending += [a.tensor for a in accesses(defined(let))]
    return [let for let in lets if let.name in wanted]


def value(text, B):
    """What y is computed from, by the flat forms alone."""
    op, lets = lets_of(text)
    known = {"B": B}
    sizes = oracle.sizes(op, known, {})
    for let in needed(lets, "y"):
        known[let.name] = array(let.formals, defined(let), known, sizes, {}, let.dtype)
    return known["y"]


@each_row("n", [2, 3])
@each_row("name", IDENTITIES)
def test_a_stable_form_has_the_value_of_what_is_written(name, n):
    text, reference = IDENTITIES[name]
    B = np.random.default_rng(n).normal(size=(n, n + 1))
    op = derive.parse(text)
    np.testing.assert_allclose(oracle.outputs(op, {"B": B}, {})["y"], reference(B), rtol=1e-12)
    np.testing.assert_allclose(value(text, B), reference(B), rtol=1e-12)


@each_row("name", sorted(set(IDENTITIES) - OVERFLOWING))
def test_nothing_overflows_far_out(name):
    """An overflow is a warning of NumPy, and every warning is an error here."""
    text, reference = IDENTITIES[name]
    B = 1000 * np.random.default_rng(0).normal(size=(2, 3))
    np.testing.assert_allclose(value(text, B), reference(B), rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("power", ["-1", "-2"])
def test_a_negative_power_far_out_is_small_and_not_nan(power):
    B = np.full((2, 3), 1000.0)
    assert np.all(value(f"y[j] = sum[k](exp(B[j,k]))**({power})", B) == 0)


def test_a_logarithm_near_one_is_exact():
    B = np.full((1, 1), 1e-18)
    np.testing.assert_allclose(value("y[j,k] = log(1 + B[j,k])", B), B, rtol=1e-15)


def functions(text):
    """The functions in the flat form of the output."""
    _, lets = lets_of(text)
    found = [e.function for e in walk(to_tree(lets["y"].body)) if isinstance(e, Call)]
    return sorted(found)


def kinds(text):
    return [let.kind for let in lets_of(text)[1]]


def test_exponentials_stay_apart_where_nothing_divides_them():
    """exp(a)*exp(b) factors over separate indices, exp(a + b) does not."""
    assert functions("y[k,l] = exp(a[k])*exp(b[l])") == ["exp", "exp"]
    assert functions("y[k] = exp(a[k])*exp(a[k]*b[k])") == ["exp", "exp"]


def test_a_sum_with_weights_is_no_logsumexp():
    assert "logsumexp" not in kinds("y[j] = log(sum[k](B[j,k]*exp(B[j,k])))")
    assert functions("y[j] = log(sum[k](B[j,k]*exp(B[j,k])))") == ["exp", "log"]


def test_a_sum_of_another_function_is_no_logsumexp():
    assert kinds("y[j] = log(sum[k](cosh(B[j,k])))") == ["sum"]


@each_row(
    "text, found",
    [
        ("y[j,k] = log(2 + exp(B[j,k]))", ["exp", "log"]),
        ("y[j,k] = 1/(2 + exp(B[j,k]))", ["exp"]),
        ("y[j] = log(exp(B[j,0]) - exp(B[j,1]))", ["exp", "exp", "log"]),
        ("y[j] = log(exp(B[j,0]) + B[j,1]*exp(B[j,1]))", ["exp", "exp", "log"]),
        ("y[j] = 1/(exp(B[j,0]) + exp(B[j,1]))", ["exp", "exp"]),
        ("y[j,k] = exp(B[j,k])*sigmoid(B[j,k])", ["exp", "sigmoid"]),
        ("y[j,k] = log1p(B[j,k] + x[j])", ["log1p"]),
        ("y[j,k] = log(1 + exp(B[j,k]) + B[j,k])", ["exp", "log"]),
        ("y[j,k] = log(2 - sigmoid(B[j,k]))", ["log", "sigmoid"]),
        ("y[j,k] = log(B[j,k]*B[j,k])", ["log"]),
        ("y[j,k] = log(B[j,k]*x[j])", ["log"]),
    ],
)
def test_forms_that_only_look_alike_stay(text, found):
    assert functions(text) == found


def test_the_logarithm_of_a_product_of_signs_is_not_split():
    B = np.array([[-2.0, -3.0]])
    np.testing.assert_allclose(value("y[j] = log(B[j,0]*B[j,1])", B), [math.log(6)])


def test_equal_sums_share_one_logsumexp():
    text = "y[j,k] = exp(B[j,k])/sum[l](exp(B[j,l])) + log(sum[l](exp(B[j,l])))"
    assert kinds(text).count("logsumexp") == 1


def test_a_lone_logsumexp_takes_the_name_that_the_spec_gives_it():
    _, lets = lets_of("m[j] = log(sum[k](exp(B[j,k])))\ny[j] = 2*m[j]")
    first = next(iter(lets))
    assert (first.name, first.kind, first.internal) == ("m", "logsumexp", False)


def test_a_variable_is_not_looked_behind():
    """Where something is differentiated in a name, the name stands for itself."""
    op = derive.parse("e[j,k] = exp(B[j,k])\nt[j] = sum[k](e[j,k])\ny[j,k] = e[j,k]/t[j]")
    opened, kept = flatten_operation(op), flatten_operation(op, None, ("e", "t"))
    assert {a.tensor for a in accesses(opened["y"].body)} == {"B", "lse"}
    assert {a.tensor for a in accesses(kept["y"].body)} == {"e", "t"}


def test_a_named_sum_that_divides_no_exponential_is_kept():
    """Its logsumexp would be a second pass for nothing."""
    op = derive.parse("e[j,k] = exp(B[j,k])\nt[j] = sum[k](e[j,k])\ny[j,k] = B[j,k]/t[j]")
    assert {a.tensor for a in accesses(flatten_operation(op)["y"].body)} == {"B", "t"}


def test_a_rewritten_equation_says_by_what():
    op = derive.parse("e[j,k] = exp(B[j,k])\nt[j] = sum[k](e[j,k])\ny[j,k] = e[j,k]/t[j]")
    (step,) = flatten_operation(op).steps
    assert step.subject[0] == "y"
    assert step.states == "exp(f)/Σₖ exp(f) = exp(f − logsumexpₖ f)"


def test_a_stable_difference_of_positions_is_formed():
    spec = "op f(x[j], s{}) -> y\ny[i] = x[i]*sum[j | j <= i](exp(-s*(i - j))*x[j])"
    x, s = torch.rand(4000), torch.tensor(0.3)
    f, stable = (derive.load(derive.parse(spec.format(option))) for option in ("", "; stable"))
    exact = f(x.double(), s.double())
    torch.testing.assert_close(stable(x.double(), s.double()), exact)
    # A difference that is written as a factor is formed without being asked for, too.
    far = [((g(x, s) - exact) / exact).abs().max() for g in (f, stable)]
    assert far[1] < 1e-6
    assert far[0] < 1e-6


ROOTS = {
    "a norm": "r[n] = norm2[k](x[n,k])\n",
    "0 at 0": "s[n] = sum[k](x[n,k]**2)\nr[n] = where(s[n] == 0, 0, sqrt(s[n]))\n",
    "above 0": "s[n] = sum[k](x[n,k]**2)\nr[n] = where(s[n] > 0, sqrt(s[n]), 0)\n",
}


@pytest.mark.parametrize("case", ROOTS)
def test_the_square_of_a_root_asks_nothing_of_what_is_under_it(case):
    op = derive.parse(f"op f(x[n,k]) -> y\n{ROOTS[case]}y[n,k] = x[n,k]*r[n]**4 + sin(r[n]**2)")
    derivation = derive.derivation(op)
    assert "≠" not in str(derivation)
    x = torch.randn(3, 4, dtype=torch.float64)
    x[1] = 0
    x.requires_grad_()
    y = derive.load(op)(x)
    s = x.square().sum(1, keepdim=True)
    expected = x * s**2 + torch.sin(s)
    torch.testing.assert_close(y, expected, rtol=1e-14, atol=0)
    G = torch.randn_like(y)
    for _ in range(2):
        (g,) = torch.autograd.grad(y, x, G, create_graph=True)
        (h,) = torch.autograd.grad(expected, x, G, create_graph=True)
        torch.testing.assert_close(g, h, rtol=1e-13, atol=1e-14)
        y, expected = g.sin(), h.sin()


@pytest.mark.parametrize(
    "equations",
    [
        # What is under it may be below 0; another root; an odd power.
        "s[n] = sum[k](x[n,k])\nr[n] = where(s[n] > 0, sqrt(s[n]), 0)\ny[n] = r[n]**2",
        "s[n] = sum[k](x[n,k]**2)\nr[n] = where(s[n] > 1, sqrt(s[n]), 0)\ny[n] = r[n]**2",
        "r[n] = norm2[k](x[n,k])\ny[n] = r[n]**3",
    ],
)
def test_other_powers_of_roots_are_kept(equations):
    op = derive.parse(f"op f(x[n,k]) -> y\n{equations}")
    assert "r" in {a.tensor for a in accesses(flatten_operation(op)["y"].body)}

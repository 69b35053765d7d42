"""What is known of values: ranges, and whether they are finite, defined and moderate."""

import math

import numpy as np
import pytest
from kit.each import each_row

from derive.algebra.expr import Access, Call, Guard, Pow, Rel, num
from derive.algebra.factor import to_tree
from derive.algebra.interpret import evaluate
from derive.algebra.poly import as_atom
from derive.calculus.build_lets import flatten_operation
from derive.calculus.value_analysis import Facts, ValueFacts
from derive.notation.specification import parse

BODIES = {
    "exp(x[i])": (0, math.inf, True),
    "1 + x[i]**2": (1, math.inf, True),
    "-x[i]**2": (-math.inf, 0, False),
    "sum[k](exp(v[k]))": (0, math.inf, True),
    "[x[i] > 0]": (0, 1, False),
    "tanh(x[i]) + 2": (1, 3, True),
    "maximum(x[i], 3)": (3, math.inf, True),
    "clamp(x[i], -1, 2)": (-1, 2, False),
    "sum[k](v[k])": (-math.inf, math.inf, False),
    "logsumexp[k](v[k]) - v[0]": (-math.inf, math.inf, False),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_value_lies_where_it_is_said_to(body):
    lets = flatten_operation(parse(f"op f(x[i], v[k]) -> y, z\ny[i] = {body}\nz[k] = x[0]*v[k]"))
    flat = lets["y"].body
    facts = ValueFacts(lets.get).facts(flat)
    assert (facts.low, facts.high, facts.nonzero) == BODIES[body]
    rng = np.random.default_rng(0)
    if all(let.name in "yz" for let in lets):
        tensors = {"x": rng.standard_normal(3) * 4, "v": rng.standard_normal(5) * 4}
        for n in range(3):
            indices = dict.fromkeys(lets["y"].formals, n)
            sizes = {i.extent: 3 for i in lets["y"].formals} | {"k": 5}
            value = evaluate(to_tree(flat), tensors, sizes, indices, {})
            assert facts.low <= value <= facts.high


@pytest.mark.parametrize(
    ("body", "fails"),
    [
        ("log(x[i])", True),
        ("log(1 + exp(x[i])**2)", False),
        ("1/x[i]", True),
        ("1/(2 + cos(x[i]))", False),
        ("sqrt(x[i]**2)", True),
        ("sqrt(x[i]**2 + 1)", False),
        ("exp(x[i])", True),
        ("exp(-x[i]**2)", False),
        ("asin(x[i])", True),
        ("asin(tanh(x[i])/2)", False),
        ("log1p(x[i]**2)", False),
    ],
)
def test_a_function_may_fail_where_its_operand_may_leave_its_domain(body, fails):
    lets = flatten_operation(parse(f"op f(x[i]) -> y\ny[i] = {body}"))
    values = ValueFacts(lets.get)
    factors = [f for let in lets for t in let.body.terms for f in t.factors]
    assert any(values.may_fail(f) for f in factors) is fails


MODERATE = (
    "x[i]",
    "x[i]**2",
    "tanh(5*x[i])",
    "exp(-x[i]**2)",
    "exp(2*sin(x[i]))",
    "1/(1 + x[i]**2)",
    "1/(cosh(x[i]) + exp(x[i]))",
    "max[k](w[i,k])",
    "abs(x[i] - 3)",
    "softmax[k](w[i,k])*v[k]",
    "log_softmax[k](w[i,k])*v[k]",
)
GROWING = (
    "exp(x[i])",
    "log(x[i])",
    "1/x[i]",
    "1/(x[i] + 1)",
    "max[k](where(w[i,k] > 0, w[i,k], -inf))",
    "max[k](exp(w[i,k]))",
    "tan(x[i])",
    "x[i]*exp(x[i])",
)


def facts_of(body: str) -> Facts:
    """The facts of y[i] = body."""
    axes = "i,k" if "softmax" in body else "i"
    op = parse(f"op f(x[i], w[i,k], v[k]) -> y, z\ny[{axes}] = {body}\nz[k] = w[0,k]*v[k]*x[0]")
    return ValueFacts(flatten_operation(op).get).facts(Access("y", ()))


@each_row("body", [*MODERATE, *GROWING])
def test_what_grows_no_faster_than_a_polynomial_is_moderate(body):
    assert facts_of(body).moderate is (body in MODERATE)


DEFINED = (
    "exp(x[i])",
    "log(1 + x[i]**2)",
    "1/(2 + cos(x[i]))",
    "sqrt(exp(x[i]))",
    "logsumexp[k](w[i,k])",
    "max[k](w[i,k])",
    "mean[k](w[i,k])",
    "where(log(x[i]) > 0, x[i], 0)",
    "x[i]/size(k)",
    "fmod(x[i], 2 + cos(x[i]))",
)
UNDEFINED = (
    "log(x[i])",
    "1/x[i]",
    "fmod(3, x[i])",
    "tanh(1/x[i])",
    "sqrt(x[i]**2)",
    "max[k](where(w[i,k] > 0, w[i,k], -inf))",
    "max[k | w[i,k] > 0](w[i,k])",
    "mean[k | w[i,k] > 0](v[k])",
    "prod[k](log(w[i,k]))",
)


@each_row("body", [*DEFINED, *UNDEFINED])
def test_what_may_be_nan_or_infinite_without_an_overflow_is_not_defined(body):
    assert facts_of(body).defined is (body in DEFINED)


def test_a_value_over_an_empty_selection_is_not_finite_under_a_guard_or_in_a_power():
    op = parse("op f(w[i,k]) -> y, t\ny[i] = w[i,0]\nt[i] = max[k | w[i,k] > 0](w[i,k])")
    lets = flatten_operation(op)
    values = ValueFacts(lets.get)
    top = Access("t", lets["t"].formals)
    assert not values.facts(top).finite and not values.facts(Pow(top, num(2))).finite
    held = Guard(Rel("<", num(0), as_atom(lets["y"].body)), top, num(1))
    assert not values.facts(held).finite and not values.facts(held).defined
    assert values.facts(Guard(held.condition, as_atom(lets["y"].body), num(1))).finite


TREES = {
    "x[i] - logsumexp[k](x[k])": (-math.inf, 0, True),
    "where(x[i] > 0, 2, 1/(1 + exp(x[i])))": (0, math.inf, True),
    "x[i] + max[k | x[k] > 0](x[k])": (-math.inf, math.inf, False),
    "max[k](tanh(x[k]))": (-1, 1, True),
    "argmax[k](tanh(x[k])) + 0*x[i]": (-math.inf, math.inf, True),
    "sum[k](x[k]**2)*sigmoid(x[i])": (0, math.inf, True),
}


@each_row("body", TREES)
def test_the_facts_of_an_equation_before_it_is_flat(body):
    op = parse(f"op f(x[i]) -> y\ny[i] = {body}")
    facts = ValueFacts(lambda name: None).facts(op.equations[0].body)
    assert (facts.low, facts.high, facts.defined) == TREES[body]


def test_an_exponential_of_what_is_bounded_does_not_overflow():
    values = ValueFacts(lambda name: None)
    x = Access("x", ())
    assert values.may_overflow(Call("exp", (x,))) and not values.may_overflow(Call("log", (x,)))
    assert not values.may_overflow(Call("exp", (Call("sin", (x,)),)))

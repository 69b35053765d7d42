"""What is known of values holds at random tensors, and functions that may fail are told."""

from __future__ import annotations

import math

import numpy as np
import pytest

from derive.algebra.interpret import evaluate
from derive.algebra.to_tree import to_tree
from derive.calculus.build_lets import flatten_operation
from derive.calculus.interval_analysis import ValueFacts
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

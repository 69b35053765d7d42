"""Sums by cases: conditions of which one holds, those that do not cover all, and positions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import derive
from derive.algebra.expr import Access, Add, Index, Iverson, Mul, Not, Num, Rel, Size, num
from derive.algebra.interpret import evaluate
from derive.show.formula import unicode
from derive.show.legible import by_cases, legible

A, B, X, Y = (Access(name, ()) for name in "abxy")
HALF = Num(Fraction(1, 2))
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


@pytest.mark.parametrize("case", SUMS)
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

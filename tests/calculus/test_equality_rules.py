"""Sums in which a bracket leaves one term, at a number, an index or an element."""

import pytest
import torch
from kit.each import each_row
from kit.lines import defined

from derive import derivation, load, parse

BORDER = "op f(x[j], z[i]) -> y\ny[i,j] = where(i == {}, x[j], z[i])"


def gradient(text, name="x"):
    """The right side of a gradient."""
    return str(derivation(parse(text)).gradients[name]).partition(" = ")[2]


CASES = (
    (BORDER.format("0"), "G[0,j]"),
    (BORDER.format("7"), "[size(i) > 7]·G[7,j]"),
    (BORDER.format("size(i) - 1"), "G[size(i) − 1,j]"),
    (BORDER.format("k").replace("]) ->", "]; k=2) ->"), "[0 ≤ k < size(i)]·G[k,j]"),
    ("op f(x[j], z[i]) -> y\ny[i,j] = [i == j]*x[j]*z[i]", "[j < size(i)]·G[j,j]·z[j]"),
)
"""An equality with a number in range or out of it, a size, a parameter and another index."""


@each_row("text, expected", CASES)
@each_row("n, m", [(3, 5), (4, 2), (0, 2), (1, 3)])
def test_an_equality_of_a_summed_index_is_solved(text, expected, n, m):
    assert gradient(text) == expected
    x, z = (torch.rand(size, dtype=torch.float64).requires_grad_() for size in (m, n))
    G, op = torch.rand(n, m, dtype=torch.float64), parse(text)
    found = (
        torch.autograd.grad(f(x, z), (x, z), G, materialize_grads=True)
        for f in (load(op), defined(op))
    )
    torch.testing.assert_close(*found)


def test_an_equality_decides_the_conditions_beside_it():
    text = "op f(x[i]) -> y\ny[i] = where(i == 0, x[i]**2, where(i == 1, x[i], 0))"
    assert gradient(text) == "G[i]·(2·[i = 0]·x[i] + [i = 1])"


KEPT = {
    "not equal": "op f(x[j], z[i]) -> y\ny[i,j] = where(i != 0, x[j], z[i])",
    "a multiple": "op f(x[j], z[i]) -> y\ny[i,j] = where(2*i == 1 + j, x[j], z[i])",
    "a tensor that may be no position": (
        "op f(x[j], z[i], s[j]: int) -> y\ny[i,j] = where(i == s[j], x[j], z[i])"
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_no_equality_with_a_value_stays_a_sum(case):
    assert "Σ[i | " in gradient(KEPT[case])


def test_a_condition_that_an_equality_does_not_decide_stays():
    text = "op f(x[i]) -> y\ny[i] = where(i == 0, x[i], where(i == size(i) - 1, x[i]**2, 0))"
    assert gradient(text) == "G[i]·where(i = 0, 1, 2·[i = size(i) − 1]·x[i])"


def test_what_only_guards_a_position_is_not_defined_for_a_reader():
    """What it says is that an axis has values: nothing that is shown reads it."""
    d = derivation(
        parse(
            "op f(u[t]) -> r\nr[t] = where(t == 0, u[1] - u[0], "
            "where(t == size(t) - 1, u[t] - u[t-1], u[t+1] - u[t-1]))"
        )
    )
    assert not d.definitions
    assert "some" not in str(d)


def test_a_position_that_conditions_leave_alone_is_read():
    text = (
        "op f(x[n,k]; size(k)=3) -> y\n"
        "y[n,k] = where(k == 0, 1, where(k == 1, 2, exp(x[n,2])*x[n,k]))"
    )
    assert gradient(text) == "δ[k,2]·G[n,2]·exp(x[n,2])·(1 + x[n,2])"


@pytest.mark.parametrize(
    ("size", "condition"), [("; size(k)=3", "k != 0"), ("", "k > 0 and k < 2")]
)
def test_positions_of_which_more_are_left_or_not_all_are_known_stay(size, condition):
    text = f"op f(x[n,k]{size}) -> y\ny[n,k] = where({condition}, exp(x[n,k]), 1)"
    assert gradient(text).endswith("]·G[n,k]·exp(x[n,k])")


def test_what_stands_beside_a_position_that_may_not_be_is_not_read_there():
    text = "op f(x[n,k], z[k]) -> y\ny[n] = sum[k]([k == 7]*x[n,k]*z[k])"
    assert gradient(text).startswith("[k = 7]")


def test_the_gradient_of_a_read_is_placed_and_that_of_what_is_placed_read():
    text = "op f(x[n,c], T[n]: int) -> y\ny[n] = x[n,T[n]]"
    assert gradient(text, "x") == "δ[c,T[n]]·G[n]"
    placed = "op f(x[n], T[n]: int; num=size(c)) -> y\ny[c] = sum[n | T[n] == c](x[n])"
    assert gradient(placed, "x") == "Σ[c | T[n] = c] G[c]"


def test_a_sum_over_what_is_picked_is_a_read_where_the_position_is_certain():
    """T[n] is a position of c, since w is read there."""
    text = "op f(x[c], w[c], T[n]: int) -> y\ny[n] = sum[c]([c == T[n]]*x[c])*w[T[n]]"
    assert gradient(text, "w") == "Σₙ δ[c,T[n]]·G[n]·x[c]"

"""Sums in which an integer tensor picks one term: Sum_n [s = n]*f(n) = f(s)."""

from __future__ import annotations

from derive import derivation, parse


def gradient(text, name):
    return str(derivation(parse(text)).gradients[name])


def test_the_gradient_of_a_read_is_placed_and_that_of_what_is_placed_read():
    text = "op f(x[n,c], T[n]: int) -> y\ny[n] = x[n,T[n]]"
    assert gradient(text, "x") == "grad_x[n,c] = δ[c,T[n]]·G[n]"
    placed = "op f(x[n], T[n]: int; num=size(c)) -> y\ny[c] = sum[n | T[n] == c](x[n])"
    assert gradient(placed, "x") == "grad_x[n] = Σ[c] [T[n] = c]·G[c]"


def test_a_sum_over_what_is_picked_is_a_read_where_the_position_is_certain():
    """T[n] is a position of c, since w is read there."""
    text = "op f(x[c], w[c], T[n]: int) -> y\ny[n] = sum[c]([c == T[n]]*x[c])*w[T[n]]"
    assert gradient(text, "w") == "grad_w[c] = Σₙ δ[c,T[n]]·G[n]·x[c]"

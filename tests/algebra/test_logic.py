"""Conditions that share an index have to hold for the same value of it."""

from derive.algebra.expr import Index, Rel, num
from derive.algebra.logic import connected

i, j, k, n = (Index(name, name) for name in "ijkn")


def test_conditions_are_joined_by_what_they_share_and_known_indices_share_nothing():
    a, b, c, d = Rel("<", i, n), Rel("<", j, n), Rel("<=", i, k), Rel("==", n, num(0))
    assert connected([a, b, c, d], frozenset({n})) == [
        (frozenset({j}), [b]),
        (frozenset({i, k}), [a, c]),
    ]


def test_a_condition_joins_what_stood_apart():
    a, b, both = Rel("<", i, num(3)), Rel("<", j, num(2)), Rel("<", i, j)
    assert connected([a, b, both], frozenset()) == [(frozenset({i, j}), [a, b, both])]

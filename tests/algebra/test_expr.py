"""Expressions: what is bound in them is not free."""

from __future__ import annotations

import pickle
from fractions import Fraction

import pytest

from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Index,
    Mul,
    Num,
    Reduce,
    Rel,
    accesses,
    as_expr,
    free_indices,
    num,
    sort_key,
    tensors,
    walk,
)

# --------------------------------------------------------------------------------------------- expr

i, j = Index("i", "i"), Index("j", "j")
A, x = Access("A", (i, j)), Access("x", (j,))


def test_what_a_reduction_binds_is_free_in_its_body_alone():
    e = Reduce("sum", (j,), Mul((A, x)), Rel("<", j, i))
    assert free_indices(e) == {i}
    assert free_indices(e.body) == {i, j}
    assert e.bound() == (j,)


def test_walks_are_of_parts_before_or_after_but_of_all():
    e = Add((Call("exp", (x,)), Mul((num(2), A))))
    assert {type(part).__name__ for part in walk(e)} == {
        "Add",
        "Call",
        "Mul",
        "Num",
        "Access",
        "Index",
    }
    assert tensors(e) == {"A", "x"}
    assert list(accesses(e, "x")) == [x]


def test_operators_make_nodes_of_numbers_and_nodes():
    assert 2 * A is Mul((num(2), A))
    assert as_expr(Fraction(1, 3)) is Num(Fraction(1, 3))
    assert num(2).value == 2 and (A - x) is not (x - A)


def test_the_order_of_nodes_is_one_of_their_content():
    parts = [x, A, num(3), num(2), Call("exp", (x,))]
    assert sorted(parts, key=sort_key) == sorted(reversed(parts), key=sort_key)
    assert len({sort_key(p) for p in parts}) == len(parts)


def test_a_node_cannot_be_changed():
    with pytest.raises(AttributeError):
        A.tensor = "B"


# ----------------------------------------------------------------------------------------- hashcons


def test_equal_nodes_are_one_object_also_when_copied():
    e = Reduce("sum", (j,), Mul((A, x)))
    assert Reduce("sum", (j,), Mul((A, x))) is e
    assert pickle.loads(pickle.dumps(e)) is e
    assert Index("i", "j") is not i


def test_a_node_of_mapped_parts_is_itself_where_none_changed():
    e = Mul((A, x))
    assert e.map(lambda part: part) is e
    assert e.map(lambda part: x if part is A else part) is Mul((x, x))
    assert e.parts() == (A, x)

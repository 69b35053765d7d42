"""Expressions: what is bound in them is not free."""

import pickle
from fractions import Fraction

import pytest

from derive.algebra import expr as ex

i, j = ex.Index("i", "i"), ex.Index("j", "j")
A, x = ex.Access("A", (i, j)), ex.Access("x", (j,))


def test_what_a_reduction_binds_is_free_in_its_body_alone():
    e = ex.Reduce("sum", (j,), ex.Mul((A, x)), ex.Rel("<", j, i))
    assert ex.free_indices(e) == {i}
    assert ex.free_indices(e.body) == {i, j}
    assert e.bound() == (j,)


def test_walks_are_of_parts_before_or_after_but_of_all():
    e = ex.Add((ex.Call("exp", (x,)), ex.Mul((ex.num(2), A))))
    assert {type(part).__name__ for part in ex.walk(e)} == {
        *"Add Call Mul Num Access Index".split()
    }
    assert ex.tensors(e) == {"A", "x"}
    assert list(ex.accesses(e, "x")) == [x]


def test_operators_make_nodes_of_numbers_and_nodes():
    assert 2 * A is ex.Mul((ex.num(2), A))
    assert ex.as_expr(Fraction(1, 3)) is ex.Num(Fraction(1, 3))
    assert ex.num(2).value == 2 and (A - x) is not (x - A)


def test_the_order_of_nodes_is_one_of_their_content():
    parts = [x, A, ex.num(3), ex.num(2), ex.Call("exp", (x,))]
    assert sorted(parts, key=ex.sort_key) == sorted(reversed(parts), key=ex.sort_key)
    assert len({ex.sort_key(p) for p in parts}) == len(parts)


def test_a_node_cannot_be_changed():
    with pytest.raises(AttributeError):
        A.tensor = "B"


def test_equal_nodes_are_one_object_also_when_copied():
    e = ex.Reduce("sum", (j,), ex.Mul((A, x)))
    assert ex.Reduce("sum", (j,), ex.Mul((A, x))) is e
    assert pickle.loads(pickle.dumps(e)) is e
    assert ex.Index("i", "j") is not i


def test_a_node_of_mapped_parts_is_itself_where_none_changed():
    e = ex.Mul((A, x))
    assert e.map(lambda part: part) is e
    assert e.map(lambda part: x if part is A else part) is ex.Mul((x, x))
    assert e.parts() == (A, x)

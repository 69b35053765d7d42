"""Summed axes stand where the largest tensor has them, so that little is moved."""

from derive.algebra.expr import Access, Index, Mul
from derive.algebra.substitution import rename_apart
from derive.lowering.ground.axis_order import binders_for_axis, renaming, with_binders

i, j, k = (Index(name, name) for name in "ijk")


def test_a_binder_stands_where_the_body_has_it():
    body = Mul((Access("A", (i, k, j)), Access("x", (k,))))
    assert with_binders((i, j), (k,), body) == (i, k, j)


def test_binders_are_apart_from_what_stands_around():
    (other,) = rename_apart((k,), (k, i))
    assert other.name != "k" and other.extent == "k"
    assert rename_apart((k,), (i,)) == (k,)
    assert renaming((k,), (other,)) == {k: other}


def test_what_is_placed_along_an_axis_stands_where_it_stood():
    body = Mul((Access("x", (k,)), Access("v", (j,))))
    assert binders_for_axis(i, (i, j), (k,), body) == (k, j)
    assert binders_for_axis(i, (j, i), (k,), body) == (j, k)
    beside = Mul((Access("A", (j, k)), Access("x", (k,))))
    assert binders_for_axis(i, (i, j), (k,), beside) == with_binders((j,), (k,), beside)
    assert binders_for_axis(i, (j,), (k,), body) == with_binders((j,), (k,), body)

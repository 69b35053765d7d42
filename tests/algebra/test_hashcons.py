"""Nodes: equal ones are one object, as long as there is one."""

from __future__ import annotations

import pickle

from derive.algebra.expr import Access, Index, Mul, Reduce

i, j = Index("i", "i"), Index("j", "j")
A, x = Access("A", (i, j)), Access("x", (j,))


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

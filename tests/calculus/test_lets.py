"""Let-definitions: in order, equal reductions once, read at any positions."""

from __future__ import annotations

import pytest
from kit.equations import flat, index

from derive.algebra.expr import Access, Index, Reduce, num
from derive.algebra.poly import Poly, atom, make_term, poly
from derive.calculus.lets import Let, Lets, inline, is_named_sum, layout, tensors_of

i, j = index("i"), index("j")
A, x = Access("A", (i, j)), Access("x", (i,))


def test_the_body_of_a_let_is_read_at_any_positions():
    let = Let("h", (i, j), poly([make_term(2, (), (A,))]))
    assert let.body_at((i, num(0))) is poly([make_term(2, (), (Access("A", (i, num(0))),))])
    assert let.access is Access("h", (i, j))


def test_a_name_is_replaced_by_what_it_is_short_for():
    let = Let("h", (i,), atom(x))
    p = poly([make_term(3, (), (Access("h", (i,)), x))])
    found = inline(p, let)
    assert isinstance(found, Poly) and "h" not in repr(found)
    assert inline(atom(x), let) is atom(x)


def test_equal_reductions_have_one_name():
    k = Index("k'", "j")
    lets = Lets({}, {"A", "x"})
    one = lets.reduction("max", (j,), atom(A))
    other = lets.reduction("max", (k,), atom(Access("A", (i, k))))
    assert one is other
    assert len(list(lets)) == 1


def test_axes_are_in_the_order_of_the_largest_access():
    assert layout(flat(Reduce("sum", (), A))[0]) == (i, j)
    assert layout(atom(A), (j,)) == (i,)
    assert tensors_of((x, A)) == tensors_of((A, x)) == ("A", "x")


@pytest.mark.parametrize(
    ("kind", "internal", "named"),
    [("sum", True, True), ("max", True, False), ("sum", False, False)],
)
def test_a_named_sum_is_one_of_the_engine(kind, internal, named):
    assert is_named_sum(Let("u", (i,), atom(x), kind, internal=internal)) == named

"""What formulas cost: an order by ranks, in which equal parts are computed once."""

from __future__ import annotations

from kit.equations import flat

from derive.algebra.expr import Access, Call, Index, Mul, Reduce
from derive.calculus.rematerialize import cost, operation_costs

i, j, k = (Index(name, name) for name in "ijk")
A, B, x = Access("A", (i, j)), Access("B", (j, k)), Access("x", (i,))


def of(e):
    return flat(e)[0]


def test_a_contraction_costs_by_all_of_its_indices_and_a_function_by_its_rank():
    product = of(Reduce("sum", (j,), Mul((A, B))))
    assert cost([product]) >= 32.0**3
    assert cost([of(Call("exp", (A,)))]) == 32.0**2
    assert cost([of(A)]) == 0


def test_what_two_formulas_have_in_common_is_paid_once():
    e = of(Call("exp", (A,)))
    twice = of(Call("exp", (A,)) * x)
    assert cost([e, twice]) == cost([twice])
    assert set(operation_costs(e)) < set(operation_costs(twice))


def test_the_names_of_bound_indices_do_not_matter():
    m = Index("m", "j")
    one = of(Reduce("sum", (j,), Call("exp", (A,))))
    renamed = of(Reduce("sum", (m,), Call("exp", (Access("A", (i, m)),))))
    assert cost([one, renamed]) == cost([one])

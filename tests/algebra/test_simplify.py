"""The simplifier: rules to their fixed point, each pass a logged step of equal value."""

from derive.algebra.expr import Access, Delta, Index
from derive.algebra.poly import atom, make_term, poly
from derive.algebra.rules import CONTRACT, DELTA_RULES, eliminate_deltas, simplify

i, j = Index("i", "i"), Index("j", "i")
x, y = Access("x", (j,)), Access("y", (i,))


def test_a_delta_fixes_the_index_that_is_summed():
    log = []
    p = poly([make_term(2, (j,), (Delta(i, j), x))])
    assert eliminate_deltas(p, DELTA_RULES, log) is poly([make_term(2, (), (Access("x", (i,)),))])
    assert [step.rule for step in log] == [CONTRACT.name]
    assert log[0].before is p


def test_a_delta_of_free_indices_stays():
    p = poly([make_term(1, (), (Delta(i, j), y))])
    assert eliminate_deltas(p, DELTA_RULES, []) is p


def test_at_its_fixed_point_nothing_is_logged():
    log = []
    assert simplify(atom(y), DELTA_RULES, log) is atom(y)
    assert log == []

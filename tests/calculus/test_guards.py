"""Conditions as conjunctions: what of them is certain, and what stands beside a factor."""

from __future__ import annotations

from derive.algebra.expr import Access, And, Guard, Index, Iverson, Rel, Size, num
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import Term, make_term
from derive.calculus import guards as c

i, j = Index("i", "n"), Index("j", "n")
BOUNDS = Bounds({"n": None})
x = Access("x", (i,))
FIRST, SECOND = Rel("<", i, j), Rel("<", j, num(3))


def test_a_conjunction_is_taken_apart_and_made_again():
    both = And((FIRST, SECOND))
    assert conditions_of(And((both, FIRST))) == (FIRST, SECOND, FIRST)
    assert conjunction([FIRST, SECOND, FIRST]) is both
    assert conjunction([FIRST]) is FIRST


def test_conditions_of_other_indices_are_apart():
    alone = Rel("<", i, num(2))
    assert {
        frozenset(conditions_of(g)) for g in c.group_by_indices(And((FIRST, alone, SECOND)))
    } == {
        frozenset({FIRST}),
        frozenset({alone}),
        frozenset({SECOND}),
    }


def test_a_guard_that_always_holds_is_gone():
    assert c.simplify_guards(BOUNDS, Access("x", (Guard(Rel("<", i, Size("n")), i),))) is x
    kept = Access("x", (Guard(FIRST, i),))
    assert c.simplify_guards(BOUNDS, kept) is kept
    assert c.without_guards(kept, frozenset({FIRST})) is x


def test_a_bracket_that_always_holds_is_1_and_one_that_never_does_0():
    def of(condition):
        t = make_term(1, (), (Iverson(condition), x))
        assert isinstance(t, Term)
        return c.known(BOUNDS, t)

    always = of(Rel("<=", num(0), i))
    assert always is not None and [t.factors for t in always.terms] == [(x,)]
    never = of(Rel("<", i, num(0)))
    assert never is not None and never.terms == ()
    assert of(FIRST) is None


def test_some_position_is_met_for_certain():
    assert c.has_a_member(BOUNDS, Rel("<=", j, i), j)
    assert not c.has_a_member(BOUNDS, Rel("<", j, i), j)

"""Which index a letter stands for, and which reads of a choice are certain."""

from __future__ import annotations

from derive.algebra.expr import Index
from derive.notation.syntax import AccessSite, enter, in_either, letter_of

i, k = Index("i", "i"), Index("k", "k")


def test_an_inner_letter_hides_the_outer_one_and_does_not_lose_it():
    scope = {"i": i}
    enter(scope, "i", k)
    assert scope["i"] is k
    assert i in scope.values()


def test_a_read_is_certain_where_both_branches_make_it():
    both, one = (AccessSite(name, (i,), False, "y", None) for name in ("x", "z"))
    found = in_either([both, one], [both])
    assert {r.tensor for r in found if not r.guarded} == {"x"}
    assert {r.tensor for r in found if r.guarded} == {"z"}


def test_an_argument_of_concat_has_a_letter_of_its_own():
    assert letter_of("k", {"k": Index("k", "k#1")}) == "k#1"
    assert letter_of("k", {}) == "k"

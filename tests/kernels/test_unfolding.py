"""Parts of a sum are taken by whole terms."""

from __future__ import annotations

from derive.algebra.expr import Access, Index
from derive.algebra.poly import add, atom, mul, scale
from derive.calculus.lets import Let
from derive.kernels.expansion import UnfoldedBody

I = Index("i", "n")  # noqa: E741
A, B, U = (atom(Access(name, (I,))) for name in "ABU")
NAMES = {"U": Let("U", (I,), add(A, scale(B, 2)))}


def test_a_term_is_left_out_whole():
    level = UnfoldedBody(add(mul(U, A), B), NAMES.get)
    assert level.whole is add(mul(A, A), scale(mul(A, B), 2), B)
    assert level.without(add(mul(A, A), scale(mul(A, B), 2))) is B
    assert level.without(mul(A, A)) is None


def test_terms_may_have_another_form():
    level = UnfoldedBody(U, NAMES.get, lambda p: scale(p, 3))
    assert level.whole is add(scale(A, 3), scale(B, 6))

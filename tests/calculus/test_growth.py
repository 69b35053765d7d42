"""What stays moderate where the tensors given are: found by structure."""

from __future__ import annotations

import pytest
from kit.equations import flat, index

from derive.algebra.expr import Access, Call, Const, Mul, Pow, Reduce, num
from derive.algebra.poly import as_atom
from derive.calculus.growth import GrowthBounds

i, j = index("i"), index("j")
x, A = Access("x", (i,)), Access("A", (i, j))
SQUARE = Pow(x, num(2))


def is_moderate(e):
    p, lets = flat(e)
    return GrowthBounds(lets.get)(as_atom(p))


@pytest.mark.parametrize(
    "e",
    [
        x,
        SQUARE,
        Call("tanh", (Mul((num(5), A)),)),
        Call("exp", (Mul((num(-1), SQUARE)),)),
        Pow(num(1) + SQUARE, num(-1)),
        Reduce("max", (j,), A),
        Call("abs", (x - num(3),)),
    ],
    ids=repr,
)
def test_moderate(e):
    assert is_moderate(e)


@pytest.mark.parametrize(
    "e",
    [
        Call("exp", (x,)),
        Call("log", (x,)),
        Pow(x, num(-1)),
        Pow(x + num(1), num(-1)),
        Const("inf"),
        Reduce("max", (j,), Call("exp", (A,))),
    ],
    ids=repr,
)
def test_not_moderate(e):
    assert not is_moderate(e)

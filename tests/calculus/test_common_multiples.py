"""Multiples of a sum that products were distributed over are found again."""

from __future__ import annotations

from kit.equations import flat, index

from derive.algebra.expr import Access, Add, Mul, num
from derive.algebra.poly import ZERO, add, mul
from derive.calculus.common_multiples import multiples

i, j = index("i"), index("j")
x, z, y = Access("x", (i,)), Access("A", (i, j)), Access("y", (j,))
BASE = flat(Add((x, z)))[0]


def test_a_multiple_and_the_rest_make_the_whole():
    p = add(mul(flat(Mul((num(2), y)))[0], BASE), flat(Mul((num(3), x)))[0])
    found = list(multiples(p, BASE, lambda q: q))
    assert found
    for multiple, rest in found:
        assert add(multiple.of(BASE), rest) is p
        assert len(rest.terms) < len(p.terms)


def test_half_of_the_sum_is_no_multiple():
    p = flat(Mul((num(2), y, x)))[0]
    assert list(multiples(p, BASE, lambda q: q)) == []
    assert list(multiples(ZERO, BASE, lambda q: q)) == []

"""A sum of one product as the patterns see it: binders, factors, brackets apart."""

from derive.algebra.expr import Access, And, Index, Iverson, Mul, Reduce, Rel, num
from derive.lowering.ground.summation import Summation, summed_product

i, k = Index("i", "i"), Index("k", "k")
A, x = Access("A", (i, k)), Access("x", (k,))
FIRST, SECOND = Rel("<", k, i), Rel("<", num(0), k)
SUM = Summation((k,), (A, Iverson(FIRST), x, Iverson(SECOND)), (i, k))


def test_brackets_are_apart_from_what_is_multiplied():
    assert SUM.others == [A, x]
    assert [b.condition for b in SUM.brackets] == [FIRST, SECOND]
    assert SUM.condition is And((FIRST, SECOND))


def test_it_is_an_expression_again():
    assert SUM.expr is Reduce("sum", (k,), Mul(SUM.factors))
    assert summed_product((), (A, x)) is Mul((A, x))
    assert summed_product((k,), (x,)) is Reduce("sum", (k,), x)

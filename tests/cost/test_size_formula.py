"""Numbers that are formulas in sizes: printed by degree, divided, compared term by term."""

from derive.algebra.poly import add, constant, mul
from derive.cost.size_formula import Amount, covers, degree, size_of

i, j = size_of("i"), size_of("j")
BOTH = mul(i, j)


def test_terms_come_by_degree_and_letters():
    assert str(Amount(add(i, mul(constant(2), BOTH), constant(3)), ("i", "j"))) == "2·i·j + i + 3"
    assert str(Amount(constant(0))) == "0"


def test_the_degree_is_how_many_sizes_are_multiplied():
    assert (degree(BOTH), degree(i), degree(constant(5))) == (2, 1, 0)


def test_one_covers_another_term_by_term():
    assert covers(BOTH, i) and covers(add(BOTH, i), i)
    assert not covers(i, j) and not covers(i, BOTH)

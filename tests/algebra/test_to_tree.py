"""The flat form as nested nodes: a term is number times sum of a product."""

from derive.algebra.expr import Access, Add, Index, Mul, Num, Reduce, num
from derive.algebra.factor import to_tree
from derive.algebra.poly import ZERO, add, atom, make_term, poly

i, j = Index("i", "i"), Index("j", "j")
A, x = Access("A", (i, j)), Access("x", (j,))


def test_a_term_is_its_number_times_its_sum():
    found = to_tree(poly([make_term(3, (j,), (A, x))]))
    assert isinstance(found, Mul) and found.args[0] is num(3)
    (reduced,) = found.args[1:]
    assert isinstance(reduced, Reduce) and reduced.kind == "sum"
    (k,) = reduced.indices
    assert reduced.body is Mul((Access("A", (i, k)), Access("x", (k,))))


def test_what_is_single_stands_alone():
    assert to_tree(atom(x)) is x
    assert to_tree(ZERO) is num(0)
    assert to_tree(poly([make_term(2, (), ())])) is Num(2)
    assert isinstance(to_tree(add(atom(x), atom(A))), Add)

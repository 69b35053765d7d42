"""Affine positions and the polynomials in sizes that are their coefficients."""

from derive.algebra.affine import Polynomial, affine, room
from derive.algebra.expr import Access, Call, Index, Not, Param, Rel, Size, num

i, j = Index("i", "i"), Index("j", "j")
s = Param("s")


def test_a_position_is_its_coefficients_and_its_constant():
    found = affine(num(2) * i + s * j - i + num(3) * Size("i") - num(4))
    assert found is not None
    assert found.coefficients == {i: Polynomial.of(1), j: Polynomial.of(s)}
    assert found.constant.expr() is num(3) * Size("i") + num(-4)
    assert found.tensors == ()


def test_an_integer_tensor_is_one_term_and_a_product_of_letters_is_none():
    picked = Access("T", (j,))
    found = affine(picked + i)
    assert found is not None and found.tensors == (picked,)
    assert affine(i * j) is None
    assert affine(Call("exp", (i,))) is None


def test_what_cancels_is_gone():
    found = affine(i - i + j - num(2))
    assert found is not None and set(found.coefficients) == {j}
    assert (Polynomial.of(s) - Polynomial.of(s)).terms == {}


def test_the_room_of_a_comparison_is_at_least_0_where_it_holds():
    for op, of in (("<", lambda a, b: b - a - 1), ("<=", lambda a, b: b - a)):
        for values in ((1, 2), (2, 2), (3, 2)):
            holds = {"<": values[0] < values[1], "<=": values[0] <= values[1]}[op]
            found = room(Rel(op, num(values[0]), num(values[1])))
            assert found is not None
            made = affine(found)
            assert made is not None and made.constant.number == of(*values)
            assert (of(*values) >= 0) == holds
    assert room(Not(Rel("<", i, j))) is room(Rel(">=", i, j)) is room(Rel("<=", j, i))
    assert room(Rel("==", i, j)) is None

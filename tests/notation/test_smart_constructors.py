"""Sums, products and powers fold numbers, and nothing else."""

from fractions import Fraction

import pytest

from derive import SpecError, parse
from derive.algebra.expr import Access, Add, And, Call, Index, Mul, Num, Param, Rel, Size, num
from derive.notation.smart_constructors import difference, flat, power, product, total, whole

i = Index("i", "i")
x, y = Access("x", (i,)), Access("y", (i,))


def test_nested_sums_and_products_are_one_with_their_numbers():
    assert total((x, Add((num(2), y)), num(3))) is Add((x, num(5), y))
    assert product((num(2), Mul((num(3), x)), y)) is Mul((num(6), x, y))
    assert product(()) is num(1)
    assert total((x,)) is x and product((num(1), x)) is x


def test_what_cancels_stays_but_for_numbers():
    assert difference(x, x) is Add((x, Mul((num(-1), x))))
    assert difference(num(3), num(1)) is num(2)


def test_powers_of_numbers_are_numbers():
    assert power(num(4), num(-2)) is Num(Fraction(1, 16))
    assert power(num(0), num(0)) is power(num(3), num(0)) is num(1)
    assert power(x, num(1)) is x
    assert power(x, y) is Call("pow", (x, y))
    with pytest.raises(ZeroDivisionError):
        power(num(0), num(-1))


def test_a_number_beyond_float64_is_refused_before_it_is_computed():
    with pytest.raises(OverflowError, match="out of the range of float64"):
        power(num(10), num(400))
    with pytest.raises(OverflowError):
        product((num(10**300), num(10**300)))


def test_conjunctions_within_one_another_are_one():
    a, b, c = (Rel("<", i, num(n)) for n in (1, 2, 3))
    assert list(flat((a, And((b, c)), a), And)) == [a, b, c, a]


def test_a_size_is_a_whole_number():
    halved = Call("floor", (Mul((num(Fraction(1, 2)), Size("i"))),))
    assert whole(halved) is Call("floordiv", (Size("i"), num(2)))
    assert whole(Size("i") + Param("s")) is Size("i") + Param("s")
    assert whole(num(Fraction(1, 2))) is None
    assert whole(x) is None


@pytest.mark.parametrize("text", ["log(-1)", "log(0)", "sqrt(-2)", "asin(2)"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(SpecError):
        parse(f"y[i] = x[i] + {text}")

"""Loops over NumPy arrays: each node by what it means, conditions before what they guard."""

import numpy as np
import pytest

from derive.algebra.expr import Access, Call, Guard, Index, Iverson, Mul, Reduce, Rel, Where, num
from derive.algebra.interpret import array, evaluate

i, j = Index("i", "i"), Index("j", "j")
SIZES = {"i": 2, "j": 3}
A = np.arange(6.0).reshape(2, 3) + 1
ALL = {"A": A, "x": np.array([2.0, 0.0, 5.0]), "T": np.array([2, 0, 1])}
a, x = Access("A", (i, j)), Access("x", (j,))


def test_a_sum_of_products_is_a_matrix_product():
    found = array((i,), Reduce("sum", (j,), Mul((a, x))), ALL, SIZES, {})
    np.testing.assert_allclose(found, A @ ALL["x"])


def test_axes_are_in_the_order_of_the_left_side():
    np.testing.assert_array_equal(array((j, i), a, ALL, SIZES, {}), A.T)


def test_what_a_condition_excludes_is_not_computed():
    positive = Rel("!=", x, num(0))
    safe = Where(positive, num(1) / x, num(7))
    np.testing.assert_allclose(array((j,), safe, ALL, SIZES, {}), [0.5, 7, 0.2])
    taken = Reduce("prod", (j,), x, positive)
    assert evaluate(taken, ALL, SIZES, {}, {}) == 10
    bracket = Mul((Iverson(Rel("<", j, num(2))), Access("x", (j + num(1),))))
    np.testing.assert_allclose(array((j,), bracket, ALL, SIZES, {}), [0, 5, 0])


def test_a_position_out_of_range_is_an_error():
    with pytest.raises(IndexError, match="position"):
        array((j,), Access("x", (j + num(1),)), ALL, SIZES, {})
    guarded = Mul(
        (Iverson(Rel("<", j, num(2))), Access("x", (Guard(Rel("<", j, num(2)), j + num(1)),)))
    )
    np.testing.assert_allclose(array((j,), guarded, ALL, SIZES, {}), [0, 5, 0])


def test_a_tensor_of_integers_is_a_position():
    found = array((j,), Access("x", (Access("T", (j,)),)), ALL, SIZES, {})
    np.testing.assert_array_equal(found, [5, 2, 0])


def test_functions_are_of_ieee():
    assert evaluate(Call("log", (num(0),)), {}, {}, {}, {}) == -np.inf
    assert np.isnan(evaluate(Call("log", (num(-1),)), {}, {}, {}, {}))

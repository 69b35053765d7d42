"""The nested form: equal to the flat one, found again from itself, and what an expert writes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kit.equations import cost, evaluated, expressions, flat, index, samples

import derive
from derive.algebra.expr import (
    Access,
    Add,
    Iverson,
    Mul,
    Num,
    Pow,
    Reduce,
    Rel,
    free_indices,
    num,
    walk,
)
from derive.algebra.factor import factor
from derive.algebra.logic import negate
from derive.algebra.poly import (
    ZERO,
    Poly,
    Term,
    add,
    atom,
    constant,
    make_term,
    mul,
    poly,
    power,
    scale,
    sum_over,
)
from derive.api import derivation
from derive.show.formula import unicode

i, i1, j, j1, k = map(index, ("i", "i'", "j", "j'", "k"))
CHECKED = settings(max_examples=80, deadline=None, derandomize=True, database=None)


def x(position=i):
    return atom(Access("x", (position,)))


def y(position=j):
    return atom(Access("y", (position,)))


def A(*positions):
    return atom(Access("A", positions))


def D(*positions):
    return atom(Access("D", positions))


@CHECKED
@given(expressions((i, j)), expressions((i, j)))
def test_factoring_keeps_the_value(one, two):
    p, lets = flat(one + two)
    tensors = samples()
    want = evaluated((i, j), p, tensors, lets)
    assume(np.isfinite(want).all() and np.abs(want).max() < 1e60)
    np.testing.assert_allclose(evaluated((i, j), factor(p), tensors, lets), want, rtol=1e-9)


def test_a_sum_with_brackets_may_stand_beside_its_multiple():
    """i*(1 + [c]*x + [d]*x) + (1 + [c]*x + [d]*x): the second is not the first."""
    brackets = [mul(atom(b), x()) for b in (BELOW, SAME)]
    p = mul(add(constant(1), atom(i)), add(constant(1), *brackets))
    tensors = samples()
    made = evaluated((i, j), factor(p), tensors, {})
    np.testing.assert_allclose(made, evaluated((i, j), p, tensors, {}), rtol=1e-12)


BELOW = Iverson(Rel("<", x(), y()))
SAME = Iverson(Rel("==", x(), constant(2)))
ADDENDS = [
    *(constant(1), constant(2), x(), y(), atom(i), A(i, j)),
    *(atom(BELOW), mul(atom(BELOW), x()), mul(atom(SAME), x())),
]


@CHECKED
@given(*[st.lists(st.sampled_from(ADDENDS), min_size=1, max_size=3)] * 3)
def test_factoring_products_of_sums_keeps_the_value(one, two, three):
    p = add(mul(add(*one), add(*two)), mul(*three))
    tensors = samples()
    np.testing.assert_allclose(
        evaluated((i, j), factor(p), tensors, {}), evaluated((i, j), p, tensors, {}), 1e-9, 1e-9
    )


@CHECKED
@given(expressions((i, j)), expressions((i, j)))
def test_the_nested_form_is_found_again_from_itself(one, two):
    p, lets = flat(one + two)
    assume(not list(lets))
    nested = factor(p)
    again, more = flat(nested)
    assume(not list(more))
    assert evaluated_equal(nested, factor(again))


def evaluated_equal(one, other):
    tensors = samples()
    a, b = (evaluated((i, j), e, tensors) for e in (one, other))
    assume(np.isfinite(a).all())
    return np.allclose(a, b, rtol=1e-9)


@CHECKED
@given(expressions((i, j)))
def test_nothing_flat_is_left_and_nested_forms_stay(e):
    p, _ = flat(e)
    nested = factor(p)
    assert not any(isinstance(part, Poly | Term) for part in walk(nested))
    assert factor(nested) is nested


def test_a_common_factor_is_taken_out():
    p = add(mul(x(), y()), mul(x(), A(i, j)))
    made = factor(p)
    assert isinstance(made, Mul) and len(made.args) == 2
    assert x().terms[0].factors[0] in made.args


def test_a_common_factor_leaves_a_difference():
    """S*G - S*Sum G*S = S*(G - Sum G*S)."""
    S, G = atom(Access("S", (i,))), atom(Access("G", (i,)))
    total = sum_over(mul(S, G), (i,))
    made = factor(add(mul(S, G), scale(mul(S, total), -1)))
    assert unicode(made) == "S[i]·(G[i] − Σᵢ′ G[i′]·S[i′])"


def test_the_lesser_power_is_common():
    made = factor(add(x(), atom(Access("x", (i,)), 3)))
    found = [e for e in walk(made) if isinstance(e, Pow)]
    assert [e.exponent for e in found] == [num(2)]


def test_sums_of_a_common_factor_merge():
    """Sum_j A*y + Sum_j A*A... = Sum_j A*(...)."""
    one = sum_over(mul(A(i, j), y(j)), (j,))
    two = sum_over(mul(A(i, j), atom(Access("y", (j,)), 2)), (j,))
    made = factor(add(one, two))
    assert sum(isinstance(e, Reduce) for e in walk(made)) == 1


def test_sums_whose_cofactors_are_outer_products_do_not_merge():
    """x[i]*y[j] + u[i]*v[j] is as large as A[i,j], but larger than what A[i,k]*A[k,j] reads."""

    def u(position):
        return atom(Access("u", (position,)))

    def v(position):
        return atom(Access("v", (position,)))

    alike = [mul(A(i, j), x(i), y(j)), mul(A(i, j), u(i), v(j))]
    apart = [mul(A(i, k), A(k, j), x(i), y(j)), mul(A(i, k), A(k, j), u(i), v(j))]
    for products, count in (alike, 1), (apart, 2):
        binders = tuple(n for n in (i, j, k) if n in free_indices(products[0]))
        made = factor(add(*(sum_over(p, binders) for p in products)))
        assert sum(isinstance(e, Reduce) for e in walk(made)) == count


def test_a_difference_of_positions_stays_one():
    """x[i]*Sum_j A[i,j] - Sum_j A[i,j]*x[j] + x[i]*y[i]: x[i] is not common to first and last."""
    spread = mul(x(i), sum_over(A(i, j), (j,)))
    across = sum_over(mul(A(i, j), x(j)), (j,))
    made = factor(add(spread, scale(across, -1), mul(x(i), y(i))))
    assert isinstance(made, Add) and len(made.args) == 3
    # Without its other part, it is.
    assert isinstance(factor(add(spread, mul(x(i), y(i)))), Mul)


def test_separate_sums_stay_separate():
    """Sum_i x * Sum_j y is two sums and not one over both."""
    p = mul(sum_over(x(i), (i,)), sum_over(y(j), (j,)))
    reductions = [e for e in walk(factor(p)) if isinstance(e, Reduce)]
    assert [len(e.indices) for e in reductions] == [1, 1]


def test_a_constant_factor_leaves_its_sum():
    made = factor(sum_over(mul(x(i), A(i, j)), (j,)))
    (inner,) = [e for e in walk(made) if isinstance(e, Reduce)]
    assert inner.body is A(i, inner.indices[0]).terms[0].factors[0]


def test_numbers():
    assert factor(ZERO) is num(0)
    assert factor(constant(Fraction(2, 3))) is Num(Fraction(2, 3))
    assert factor(scale(add(x(), y()), 2)) is Mul((num(2), Add(factor(add(x(), y())).args)))


def bracket(condition):
    return atom(Iverson(condition))


def test_a_guarded_factor_stays_under_its_guard():
    """[c]*u + [d]*u*v: u may have no value where neither holds."""
    c = Rel("<", atom(i), constant(1))
    d = Rel("<", atom(j), constant(1))
    u = power(x(), Fraction(-1))
    made = factor(add(mul(bracket(c), u), mul(bracket(d), u, y())))
    assert isinstance(made, Add)
    tensors = {"x": np.array([0.5, 0.0]), "y": np.array([1.0, 2.0, 3.0])}
    # u at i = 1 is infinite, and only where j = 0 it is read.
    value = evaluated((i, j), made, tensors)
    assert np.isfinite(value[0]).all() and np.all(value[1, 1:] == 0)


@pytest.mark.parametrize("turned", [False, True])
def test_a_factor_under_a_condition_and_its_negation_is_free(turned):
    c = Rel("==", atom(i), constant(1))
    parts = [mul(bracket(c), x(), y()), mul(bracket(negate(c)), x())]
    made = factor(add(*(parts[::-1] if turned else parts)))
    assert isinstance(made, Mul)


def test_one_bracket_in_all_terms_is_taken_out():
    c = Rel("<", atom(i), constant(1))
    made = factor(add(mul(bracket(c), x()), mul(bracket(c), y())))
    assert isinstance(made, Mul) and isinstance(made.args[0], Iverson)


def test_the_cost_grows_with_the_rank_and_counts_a_repeat_once():
    product = mul(A(i, j), y())
    assert cost([x()]) == 0
    assert cost([mul(x(), x(i1))]) > cost([power(x(), Fraction(2))]) > 0
    assert cost([sum_over(product, (j,))]) > cost([product])
    total = sum_over(D(i, i1), (i1,))
    assert cost([mul(total, total)]) < 2 * cost([total]) + cost([product])


def test_what_two_formulas_have_in_common_is_paid_once():
    """The name of a summed index makes no difference."""
    one, other = sum_over(A(i, j), (j,)), sum_over(A(i, j1), (j1,))
    assert cost([one, mul(other, x())]) < cost([one]) + cost([mul(other, x())])


def test_operands_of_low_rank_are_paid_before_they_meet_the_others():
    assert cost([mul(A(i, j), x(), x())]) < 2 * cost([mul(A(i, j), x())])


def test_the_order_of_terms_is_not_that_of_the_spec():
    """One formula, whatever order the equations were written in."""
    one, other = (
        derivation(derive.parse(f"op f(x[i], y[i]) -> r\nr[i] = {body}"))
        for body in ("x[i]**2*y[i] + sin(x[i])", "sin(x[i]) + y[i]*x[i]**2")
    )
    assert str(one.gradients["x"]) == str(other.gradients["x"])


def test_a_term_that_stands_alone_is_nested_too():
    (t,) = poly([make_term(Fraction(2), (j,), [Access("A", (i, j)), Access("x", (i,))])]).terms
    assert unicode(factor(t)) == "2·x[i]·Σⱼ A[i,j]"

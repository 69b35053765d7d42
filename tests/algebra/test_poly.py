"""The flat form: canonical, free of capture, and equal to what it was made from."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kit.each import each_row
from kit.equations import evaluated, expressions, flat, index, samples

import derive
from derive.algebra import expr as ex
from derive.algebra.factor import factor, to_tree
from derive.algebra.logic import negate
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    Term,
    add,
    add_root,
    atom,
    constant,
    is_root,
    make_term,
    mul,
    poly,
    power,
    rational_power,
    scale,
    sum_over,
)
from derive.algebra.substitution import replace, substitute

i, i1, i2, j, j1, k, k1 = map(index, ("i", "i'", "i''", "j", "j'", "k", "k'"))
CHECKED = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def x(*positions):
    return ex.Access("x", positions)


def A(*positions):
    return ex.Access("A", positions)


def D(*positions):
    return ex.Access("D", positions)


def term(coef, binders, *factors):
    return poly([make_term(Fraction(coef), binders, factors)])


def test_terms_equal_up_to_names_of_bound_indices_are_one_object():
    one = sum_over(mul(atom(A(i, j)), atom(x(i))), (i,))
    other = sum_over(mul(atom(x(i1)), atom(A(i1, j))), (i1,))
    assert one is other


def test_order_of_binders_and_factors_does_not_matter():
    one = term(2, (i, i1), D(i, i1), x(i), ex.Call("exp", (atom(x(i1)),)))
    other = term(2, (i2, i), ex.Call("exp", (atom(x(i)),)), x(i2), D(i2, i))
    assert one is other


def test_symmetric_bound_indices_are_told_apart_by_their_uses_only():
    assert term(1, (i, i1), D(i, i1), x(i)) is term(1, (i1, i), D(i1, i), x(i1))
    assert term(1, (i, i1), D(i, i1), x(i)) is not term(1, (i, i1), D(i, i1), x(i1))


def test_like_terms_merge_and_cancel():
    one = sum_over(atom(x(i)), (i,))
    other = sum_over(atom(x(i1)), (i1,))
    assert add(one, other) is scale(one, 2)
    assert add(one, scale(other, -1)) is ZERO


def test_canonical_names_avoid_free_ones():
    free = ex.Index("_0", "i")
    (made,) = term(1, (i,), D(i, free)).terms
    assert free in ex.free_indices(made)
    assert free not in made.binders


def rebuilt(p):
    return poly(make_term(t.coef, t.binders, t.factors) for t in p.terms)


@CHECKED
@given(expressions((i, j)))
def test_normalising_twice_changes_nothing(e):
    p, _ = flat(e)
    assert rebuilt(p) is p
    # A power of a lone, uncanonical root may still be simplified by flattening anew.
    again, _ = flat(to_tree(p))
    assert flat(to_tree(again))[0] is again


def shuffled(e, order):
    """The same expression with arguments in another order and bound indices renamed."""
    mapped = e.map(lambda part: shuffled(part, order))
    if isinstance(mapped, ex.Add | ex.Mul):
        args = list(mapped.args)
        order.shuffle(args)
        return type(mapped)(tuple(args))
    if isinstance(mapped, ex.Reduce):
        names = [index(s) for s in ("i", "i'", "i''", "j", "j'", "j''", "k", "k'", "k''")]
        taken = ex.free_indices(mapped)
        own = [n for n in names if n.extent == mapped.indices[0].extent and n not in taken]
        new = order.choice(own)
        body = substitute(mapped.body, {mapped.indices[0]: new})
        return ex.Reduce(mapped.kind, (new,), body)
    return mapped


@CHECKED
@given(expressions((i, j)), st.randoms(use_true_random=False))
def test_shuffled_factors_and_renamed_indices_have_the_same_normal_form(e, order):
    one, lets = flat(e)
    other, other_lets = flat(shuffled(e, order))
    assume(not list(lets) and not list(other_lets))
    assert one is other


@CHECKED
@given(expressions((i, j)))
def test_the_flat_form_has_the_value_of_the_tree(e):
    p, lets = flat(e)
    tensors = samples()
    want = evaluated((i, j), e, tensors)
    assume(np.isfinite(want).all() and np.abs(want).max() < 1e60)
    np.testing.assert_allclose(evaluated((i, j), p, tensors, lets), want, rtol=1e-9)


def test_a_bound_index_does_not_capture_an_incoming_one():
    p = sum_over(atom(D(i, i1)), (i1,))
    moved = substitute(p, {i: i1})
    assert moved is sum_over(atom(D(i1, i2)), (i2,))
    assert ex.free_indices(moved) == {i1}


def test_a_canonical_name_does_not_capture_either():
    p = sum_over(atom(D(i, i1)), (i1,))
    (t,) = p.terms
    (own,) = t.binders
    moved = substitute(p, {i: own})
    assert ex.free_indices(moved) == {own}
    assert own not in moved.terms[0].binders


def test_two_free_indices_swap_at_once():
    p = atom(D(i, i1))
    assert substitute(p, {i: i1, i1: i}) is atom(D(i1, i))


def test_simultaneous_substitution_into_a_term_whose_binder_is_renamed():
    """Both free indices move, one onto the binder and one onto the other's old name."""
    own = ex.Index("_0", "i")
    p = term(1, (i2,), ex.Access("E", (i, i1, i2)))
    moved = substitute(p, {i: own, i1: i})
    assert ex.free_indices(moved) == {own, i}
    (t,) = moved.terms
    (access,) = t.factors
    assert access.positions[:2] == (own, i)
    assert access.positions[2] is t.binders[0]
    assert t.binders[0] not in (own, i)


def test_substitution_under_nested_binders_of_one_extent():
    """Sum_a D[a,i]*exp(Sum_b D[a,b]*x[i]): the outer index may move onto either dummy."""
    inner = sum_over(mul(atom(D(i1, i2)), atom(x(i))), (i2,))
    p = sum_over(mul(atom(D(i1, i)), atom(ex.Call("exp", (inner,)))), (i1,))
    tensors = samples()
    want = evaluated((i,), p, tensors)
    bound = {a for e in ex.walk(p) for a in e.bound()}
    assert len(bound) == 2
    for new in sorted(bound, key=lambda a: a.name):
        moved = substitute(p, {i: new})
        assert ex.free_indices(moved) == {new}
        np.testing.assert_array_equal(evaluated((new,), moved, tensors), want)
        assert substitute(moved, {new: i}) is p


@CHECKED
@given(expressions((i, i1, j)), st.sampled_from(["_0", "_1", "_2", "i''", "i'"]))
def test_renaming_a_free_index_there_and_back_changes_nothing(e, name):
    p, lets = flat(e)
    new = ex.Index(name, "i")
    assume(not list(lets) and new not in ex.free_indices(p))
    moved = substitute(p, {i: new})
    assert ex.free_indices(moved) == {new if a is i else a for a in ex.free_indices(p)}
    assert substitute(moved, {new: i}) is p


@CHECKED
@given(expressions((i, i1, j)))
def test_swapping_two_free_indices_swaps_the_axes_of_the_value(e):
    swapped = substitute(e, {i: i1, i1: i})
    tensors = samples()
    want = evaluated((i, i1, j), e, tensors)
    assume(np.isfinite(want).all())
    np.testing.assert_array_equal(evaluated((i1, i, j), swapped, tensors), want)


def test_products_keep_their_sums_apart():
    """Sum_i x[i] * Sum_i x[i]^2 has two indices."""
    p = mul(sum_over(atom(x(i)), (i,)), sum_over(atom(x(i), 2), (i,)))
    (t,) = p.terms
    assert len(t.binders) == 2
    assert p is term(1, (i, i1), x(i), ex.Pow(x(i1), ex.num(2)))


def test_sums_over_one_letter_inside_powers_stay_apart():
    """z / (Sum_k B[i,k] * Sum_k C[k,i]) with both sums over k."""
    one = power(sum_over(atom(ex.Access("B", (j, k))), (k,)), Fraction(-1))
    two = power(sum_over(atom(ex.Access("C", (k, i))), (k,)), Fraction(-1))
    p = mul(one, two)
    tensors = samples()
    want = 1 / np.outer(tensors["C"].sum(0), tensors["B"].sum(1))
    np.testing.assert_allclose(evaluated((i, j), p, tensors), want)


def test_the_sum_of_one_is_the_size():
    assert sum_over(ONE, (i,)) is atom(ex.Size("i"))
    assert sum_over(atom(x(i)), (j,)) is mul(atom(ex.Size("j")), atom(x(i)))
    assert sum_over(ONE, (i, i1)) is atom(ex.Size("i"), 2)
    assert mul(sum_over(ONE, (i,)), atom(ex.Size("i"), -1)) is ONE


def test_whole_powers_go_through_products():
    p = mul(constant(2), atom(x(i)), atom(A(i, j), 2))
    assert power(p, Fraction(2)) is mul(constant(4), atom(x(i), 2), atom(A(i, j), 4))
    assert mul(p, power(p, Fraction(-1))) is ONE


def test_the_root_of_a_square_is_not_its_base():
    square = power(atom(x(i)), Fraction(2))
    root = power(square, Fraction(1, 2))
    assert root is not atom(x(i))
    tensors = {"x": np.array([-1.5, 2.0])}
    np.testing.assert_allclose(evaluated((i,), root, tensors), [1.5, 2.0])


@each_row("exponent", ["1/2", "-1/2", "3/2", "1/3", "-1", "2"])
def test_positive_parts_leave_a_root_and_signs_do_not(exponent):
    inside = mul(
        constant(-4), atom(x(i)), atom(ex.Size("j"), 3), atom(ex.Call("exp", (atom(x(i)),)), 2)
    )
    p = power(inside, Fraction(exponent))
    tensors = {"x": np.array([-1.5, -0.5])}
    e = float(Fraction(exponent))
    want = (4 * 1.5 * 27 * np.exp(-3)) ** e, (4 * 0.5 * 27 * np.exp(-1)) ** e
    np.testing.assert_allclose(evaluated((i,), p, tensors), want)


def test_a_root_is_exact_where_it_is_rational():
    assert power(constant(Fraction(9, 4)), Fraction(-1, 2)) is constant(Fraction(2, 3))
    assert power(constant(2), Fraction(1, 2)) is atom(ex.num(2), Fraction(1, 2))


def test_a_power_of_a_sum_stays_one_factor():
    p = power(add(atom(x(i)), ONE), Fraction(2))
    (t,) = p.terms
    assert [type(f) for f in t.factors] == [ex.Pow]
    assert isinstance(t.factors[0].base, Poly)


def test_a_base_to_the_power_one_is_distributed_again():
    half = power(add(atom(x(i)), ONE), Fraction(1, 2))
    assert mul(half, half) is add(atom(x(i)), ONE)


def test_the_power_zero_and_the_zero_of_a_product():
    assert power(atom(x(i)), Fraction(0)) is ONE
    assert mul(atom(x(i)), ZERO) is ZERO
    assert mul(atom(x(i)), atom(x(i), -1)) is ONE


def bracket(condition):
    return atom(ex.Iverson(condition))


def test_brackets_and_deltas_are_their_own_squares():
    c = bracket(ex.Rel("<", atom(i), constant(1)))
    assert mul(c, c) is c
    d = atom(ex.Delta(i, i1))
    assert power(d, Fraction(3)) is d
    assert power(c, Fraction(1, 2)) is c


@pytest.mark.parametrize("op", ["==", "!=", "<", "<="])
def test_a_condition_and_its_negation_exclude_each_other(op):
    c = ex.Rel(op, atom(i), constant(1))
    assert mul(bracket(c), atom(x(i)), bracket(negate(c))) is ZERO


def test_conditions_that_may_hold_together_do_not():
    one, two = ex.Rel("<", atom(i), constant(1)), ex.Rel("<=", constant(1), atom(i))
    assert mul(bracket(one), bracket(two)) is not ZERO


def test_an_order_is_negated_without_turning_it():
    """Of a NaN neither a < b nor a >= b holds."""
    less = ex.Rel("<", atom(x(i)), constant(1))
    assert negate(less) is ex.Not(less)
    assert negate(negate(less)) is less
    assert negate(ex.Rel("==", atom(i), ONE)) is ex.Rel("!=", atom(i), ONE)


def test_zero_has_no_terms_and_a_tree():
    assert to_tree(ZERO) is ex.num(0)
    assert to_tree(constant(3)) is ex.Num(Fraction(3))
    assert isinstance(ZERO, Poly) and not isinstance(ZERO, Term)


def test_what_is_shared_is_visited_once():
    # 2**60 nodes as a tree, 241 where equal ones are one.
    i, j = index("i"), index("j")
    e = ex.Access("x", (i,))
    for _ in range(60):
        e = ex.Where(ex.Rel("<", e, ex.num(1)), ex.Call("exp", (e,)), ex.num(2))
    assert len(list(ex.walk(e))) == 60 * 3 + 4
    moved = substitute(e, {i: j})
    assert ex.free_indices(moved) == {j} and substitute(moved, {j: i}) is e
    assert replace(e, lambda part: j if part is i else None) is moved
    assert to_tree(e) is e and factor(e) is e


@pytest.mark.parametrize(
    ("powers", "expected"),
    [
        ([(2, 1), (2, Fraction(-1, 2))], [(2, Fraction(1, 2))]),
        ([(2, Fraction(1, 2)), (2, Fraction(1, 2))], [(2, 1)]),
        ([(Fraction(2, 3), Fraction(1, 2))], [(2, Fraction(1, 2)), (3, Fraction(-1, 2))]),
        ([(5, Fraction(-3, 2)), (5, 2)], [(5, Fraction(1, 2))]),
    ],
)
def test_roots_of_numbers_have_one_form(powers, expected):
    one, other = (
        make_term(Fraction(1), (), [ex.Pow(ex.num(b), ex.num(e)) for b, e in given])
        for given in (powers, expected)
    )
    assert one is other
    value = float(one.coef)
    for f in one.factors:
        value *= float(f.base.value) ** float(f.exponent.value)
    wanted = 1.0
    for b, e in powers:
        wanted *= float(b) ** float(e)
    assert value == pytest.approx(wanted)


def test_a_root_of_what_may_be_negative_is_none_of_a_number():
    assert make_term(Fraction(1), (), [ex.Pow(ex.num(-2), ex.num(Fraction(1, 3)))]).factors


def test_what_cancels_by_roots_is_gone():
    op = derive.parse("op f(z[n]) -> L\nL[n] = z[n]*erf(z[n]/sqrt(2)) + sqrt(2/pi)*exp(-z[n]**2/2)")
    assert str(derive.derivation(op).gradients["z"]) == "grad_z[n] = G[n]·erf(z[n]/√2)"


@pytest.mark.parametrize(("base", "root"), [(10**800, 10**400), (7**90, 7**45), (2**53 + 1, None)])
def test_the_root_of_a_large_number_is_exact(base, root):
    """Numbers in between may be larger than any float, though what is written is not."""
    assert rational_power(Fraction(base), Fraction(1, 2)) == root
    assert rational_power(Fraction(1, base), Fraction(1, 2)) == (root and Fraction(1, root))
    assert rational_power(Fraction(base), Fraction(1, 10**9)) is None


def test_a_root_of_numbers_that_multiply_to_more_than_a_float():
    op = derive.parse("y[i] = (10**300*x[i]*10**300)**(1/2)/10**300")
    assert str(derive.derivation(op).gradients["x"]) == "grad_x[i] = G[i]/(2·y[i])"


HALF = Fraction(1, 2)


@each_row(
    "value, exponent, power",
    [
        (Fraction(4, 9), HALF, Fraction(2, 3)),
        (Fraction(8), Fraction(-2, 3), Fraction(1, 4)),
        (Fraction(2), HALF, None),
        (Fraction(-8), Fraction(1, 3), None),
        (Fraction(0), HALF, Fraction(0)),
        (Fraction(0), Fraction(-1), None),
        (Fraction(3), Fraction(2000), None),
        (Fraction(1), Fraction(1, 10**9), Fraction(1)),
    ],
)
def test_a_power_is_rational_or_none(value, exponent, power):
    assert rational_power(value, exponent) == power


def test_a_root_is_of_a_positive_number():
    assert is_root(Fraction(2), HALF)
    assert not is_root(Fraction(-2), HALF)
    assert not is_root(Fraction(2), Fraction(3))


def test_a_root_of_a_fraction_is_of_both_of_its_numbers():
    roots = {3: Fraction(1, 3)}
    add_root(roots, Fraction(2, 3), HALF)
    assert roots == {2: HALF, 3: Fraction(-1, 6)}

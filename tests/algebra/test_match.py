"""Matching up to names of indices."""

from hypothesis import assume, given, settings
from kit.equations import expressions, flat, index

from derive.algebra.expr import Access, Call, Index, free_indices, num
from derive.algebra.match import bind_all, match, matcher
from derive.algebra.poly import add, atom, mul, sum_over
from derive.algebra.substitution import substitute

i, i1, i2, j, j1, k = map(index, ("i", "i'", "i''", "j", "j'", "k"))


def A(*positions):
    return atom(Access("A", positions))


def D(*positions):
    return atom(Access("D", positions))


def found(pattern, target, *free):
    return list(match(pattern, target, frozenset(free), {}))


def test_free_indices_are_bound_to_what_stands_in_their_place():
    assert found(A(i, j), A(i1, j1), i, j) == [{i: i1, j: j1}]
    assert found(A(i, j), A(i1, num(0)), i, j) == [{i: i1, j: num(0)}]
    assert found(A(i, j), A(i1, Access("T", (j,))), i, j) == [{i: i1, j: Access("T", (j,))}]


def test_an_index_has_one_image():
    assert found(D(i, i), D(i1, i1), i) == [{i: i1}]
    assert found(D(i, i), D(i1, i2), i) == []


def test_indices_that_are_not_free_match_themselves_only():
    assert found(A(i, j), A(i, j1), j) == [{j: j1}]
    assert found(A(i, j), A(i1, j), j) == []


def test_an_index_matches_no_index_of_another_class():
    assert found(D(i, i1), D(i, j), i1) == []


def test_sums_and_products_match_in_any_order():
    pattern = add(mul(A(i, j), D(i, i)), atom(Call("exp", (A(i, j),))))
    target = add(atom(Call("exp", (A(i1, j1),))), mul(D(i1, i1), A(i1, j1)))
    assert found(pattern, target, i, j) == [{i: i1, j: j1}]
    assert found(pattern, add(target, A(i, j)), i, j) == []


def test_bound_indices_match_bound_indices_and_do_not_escape():
    pattern = sum_over(D(i, i1), (i1,))
    assert found(pattern, sum_over(D(i2, i), (i,)), i) == [{i: i2}]
    # D[i, j] with i -> the bound index would leave it outside of its sum.
    assert found(sum_over(D(i1, i), (i1,)), sum_over(D(i1, i1), (i1,)), i) == []


def test_two_bound_indices_have_two_images():
    pattern = sum_over(D(i, i1), (i, i1))
    assert found(pattern, sum_over(D(i1, i1), (i1,))) == []
    assert found(pattern, sum_over(D(i1, i2), (i1, i2))) == [{}]


def test_coefficients_and_kinds_must_agree():
    assert found(A(i, j), add(A(i1, j1), A(i1, j1)), i, j) == []
    assert found(A(i, j), atom(Access("B", (i1, j1))), i, j) == []
    assert found(atom(Call("exp", (A(i, j),))), atom(Call("tanh", (A(i, j),))), i, j) == []


def test_every_target_is_used_once():
    patterns, targets = [A(i, j), A(i1, j)], [A(i2, j), A(i2, j)]
    bind = matcher(frozenset((i, i1)))
    assert list(bind_all(patterns, targets, {}, bind))
    assert not list(bind_all(patterns, targets[:1], {}, bind))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(expressions((i, j)))
def test_an_expression_matches_itself_with_its_free_indices_renamed(e):
    p, lets = flat(e)
    assume(not list(lets))
    new = {i: Index("a", "i"), j: Index("b", "j")}
    bindings = found(p, substitute(p, new), i, j)
    free = free_indices(p)
    assert {a: b for a, b in new.items() if a in free} in bindings
    # Whatever is found makes the two equal.
    for binding in bindings:
        assert substitute(p, binding) is substitute(p, new)


def test_an_index_that_is_a_number_is_no_value_of_a_tensor():
    """x[i] + j is no instance of x[i] + y[k]: a value of y is no position."""
    index, value = add(A(i, i), atom(j)), add(A(i, i), A(i, j1))
    assert found(index, value, j) == []
    assert found(index, add(A(i, i), atom(j1)), j)
    assert found(A(i, j), atom(Access("A", (i, Access("y", (j1,))))), j)

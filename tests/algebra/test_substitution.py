"""Substitution captures nothing, and shared parts are visited once."""

import sys
from itertools import product

import numpy as np
import pytest
from kit.equations import flat

import derive
from derive.algebra.expr import Access, Call, Index, Mul, Num, Reduce, free_indices, num
from derive.algebra.factor import to_tree
from derive.algebra.interpret import array
from derive.algebra.substitution import Recursion, fresh, replace, replace_inside_out, substitute

i, j, k = (Index(name, "n") for name in "ijk")
A, x = Access("A", (i, j)), Access("x", (j,))


def test_a_bound_index_makes_way_for_one_of_its_name():
    e = Reduce("sum", (j,), Mul((A, x)))
    found = substitute(e, {i: j})
    (bound,) = found.bound()
    assert free_indices(found) == {j}
    assert bound is Index("j'", "n")
    assert found.body is Mul((Access("A", (j, bound)), Access("x", (bound,))))


def test_indices_are_exchanged_at_once():
    assert substitute(A, {i: j, j: i}) is Access("A", (j, i))
    assert substitute(Reduce("sum", (j,), x), {j: k}) is Reduce("sum", (j,), x)


def test_a_fresh_index_has_a_name_that_none_has():
    assert fresh(i, [i, Index("i'", "m")]).name == "i''"
    assert fresh(i, [j]) is i


def test_a_node_is_replaced_from_outside_or_from_inside():
    e = Call("exp", (Call("exp", (x,)),))
    outside = replace(e, lambda part: num(1) if isinstance(part, Call) else None)
    assert outside is num(1)
    seen = []

    def noted(part):
        seen.append(part)
        return num(2) if part is x else part

    assert replace_inside_out(e, noted) is Call("exp", (Call("exp", (num(2),)),))
    assert seen.index(x) < seen.index(Call("exp", (Num(num(2).value),)))


def test_a_bound_index_of_the_name_of_a_replaced_one_stays():
    """Sum_{i,j} x[i,j,k] with k = l, where j = i is for another j."""
    i, j, k, m = (Index(name, "n") for name in "ijkm")
    inner = Reduce("sum", (i, j), Access("x", (i, j, k)))
    made = substitute(inner, {j: i, k: m})
    assert made is Reduce("sum", (i, j), Access("x", (i, j, m)))
    beside = substitute(Mul((Access("y", (j,)), inner)), {j: i, k: m})
    assert beside is Mul((Access("y", (i,)), made))


def test_a_flat_sum_inside_a_product_keeps_its_indices_apart():
    """A tie of a maximum over two windows of one size: the count of ties has two indices."""
    op = derive.parse(
        "op f(x[h,w]; kernel=size(i), size(j)=size(i)) -> y\ny[p,q] = amax[i,j](x[p+i,q+j])"
    )
    (gradient,) = derive.derivation(op).gradients.values()
    assert "Σᵢ′′ᵢ′′′ [x[i′′ + p,i′′′ + q] = top[p,q]]" in str(gradient)


FEW = tuple(Index(f"_{n}", "n") for n in range(4))
"""Names that flat sums bind too, so that bound and free ones meet."""


def nested(rng, depth):
    """A random tree of products, sums over one or two indices, and reads of x and z."""
    choice = rng.integers(4) if depth else 0
    if choice == 0:
        return Access(
            *[("x", (FEW[rng.integers(4)],)), ("z", tuple(rng.choice(FEW, 2)))][depth % 2]
        )
    if choice == 1:
        return Mul((nested(rng, depth - 1), nested(rng, depth - 1)))
    bound = tuple(FEW[n] for n in rng.permutation(4)[: rng.integers(1, 3)])
    return Reduce("sum", bound, nested(rng, depth - 1))


@pytest.mark.parametrize("form", [lambda e: e, lambda e: flat(e)[0]], ids=["tree", "flat"])
def test_the_value_at_new_indices_is_that_of_the_function_there(form):
    rng = np.random.default_rng(7)
    tensors = {"x": rng.normal(size=2), "z": rng.normal(size=(2, 2))}
    for _ in range(150):
        e = form(nested(rng, 4))
        mapping = {i: FEW[n] for i, n in zip(FEW, rng.integers(4, size=4), strict=True)}
        kept = rng.permutation(4)[: rng.integers(1, 5)]
        mapping = {FEW[n]: mapping[FEW[n]] for n in kept}
        before, after = (
            array(FEW, to_tree(f), tensors, {"n": 2}, {}, "float")
            for f in (e, substitute(e, mapping))
        )
        for at in product(range(2), repeat=4):
            there = tuple(at[FEW.index(mapping.get(i, i))] for i in FEW)
            np.testing.assert_allclose(after[at], before[there], rtol=1e-12, err_msg=str(e))


DEEP = 20 * sys.getrecursionlimit()


def test_a_value_far_away_is_found():
    steps = Recursion(lambda n: 0 if n == 0 else steps(n - 1) + 1)
    assert steps(DEEP) == DEEP


def test_each_value_is_found_once_and_kept():
    done = []

    def find(n: int) -> int:
        value = 1 if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
        done.append(n)
        return value

    known: dict[int, int] = {}
    fibonacci = Recursion(find, known)
    assert fibonacci(90) == 4660046610375530309
    assert sorted(done) == list(range(91)) and known[90] == fibonacci(90)
    assert len(done) == 91


def test_values_are_found_in_the_order_of_plain_recursion():
    def order(deepest: int) -> list[int]:
        found: list[int] = []

        def find(n: int) -> int:
            if n:
                visit(n // 2)
                visit(n - 1)
            found.append(n)
            return n

        visit = Recursion(find)
        visit(deepest)
        return found

    def plainly(n: int, found: list[int]) -> list[int]:
        if n not in found:
            if n:
                plainly(n // 2, found)
                plainly(n - 1, found)
            found.append(n)
        return found

    assert order(100) == plainly(100, [])


def test_two_recursions_may_call_each_other():
    even = Recursion(lambda n: n == 0 or odd(n - 1))
    odd = Recursion(lambda n: n != 0 and even(n - 1))
    assert even(100) and not odd(100)


def test_an_error_is_passed_on_and_the_recursion_stays_usable():
    def find(n: int) -> int:
        if n == 7:
            raise ValueError("seven")
        return 0 if n == 0 else down(n - 1) + 1

    down = Recursion(find)
    with pytest.raises(ValueError, match="seven"):
        down(100)
    assert down(6) == 6
    with pytest.raises(ValueError, match="seven"):
        down(8)

"""What was written: its text comes back, with the brackets that it needs."""

from fractions import Fraction

import pytest
import torch

import derive
from derive import SpecError
from derive.algebra.expr import Index
from derive.notation.syntax import (
    AccessSite,
    ApplySyntax,
    Item,
    NameSyntax,
    Negative,
    NumberSyntax,
    Power,
    Product,
    SourcePlace,
    Sum,
    decimal,
    enter,
    factors,
    fail,
    in_either,
    letter_of,
    show,
)

a, b, c = NameSyntax("a"), NameSyntax("b"), NameSyntax("c")


def test_brackets_stand_where_they_are_needed():
    total = Sum(((False, a), (True, b)))
    assert show(total) == "a - b"
    assert show(Product(((False, total), (True, c)))) == "(a - b)/c"
    assert show(Power(Negative(a), NumberSyntax(Fraction(2)))) == "(-a)**2"
    assert show(ApplySyntax("exp", (Item("x", (a, total)),))) == "exp(x[a, a - b])"


def test_factors_of_nested_products_know_what_is_divided_by():
    inner = Product(((False, a), (True, b)))
    product = Product(((False, c), (False, inner)))
    assert list(factors(product)) == [(False, c), (False, a), (True, b)]


def test_numbers_have_their_shortest_digits():
    assert decimal(Fraction(1, 8)) == "0.125"
    assert decimal(Fraction(1, 3)) is None


def test_an_error_has_the_place_if_there_is_one():
    with pytest.raises(SpecError, match=r"^line 3, column 7: wrong \[D001\]$"):
        fail(SourcePlace(3, 7), "syntax", "wrong")
    with pytest.raises(SpecError, match=r"^wrong \[D001\]$"):
        fail(None, "syntax", "wrong")


i, k = Index("i", "i"), Index("k", "k")


def test_an_inner_letter_hides_the_outer_one_and_does_not_lose_it():
    scope = {"i": i}
    enter(scope, "i", k)
    assert scope["i"] is k
    assert i in scope.values()


def test_a_read_is_certain_where_both_branches_make_it():
    both, one = (AccessSite(name, (i,), False, "y", None) for name in ("x", "z"))
    found = in_either([both, one], [both])
    assert {r.tensor for r in found if not r.guarded} == {"x"}
    assert {r.tensor for r in found if r.guarded} == {"z"}


def test_an_argument_of_concat_has_a_letter_of_its_own():
    assert letter_of("k", {"k": Index("k", "k#1")}) == "k#1"
    assert letter_of("k", {}) == "k"


def test_a_mask_for_all_heads():
    op = derive.parse(
        "op f(x[0,0], mask[b,0,i,j]: bool, s[b,h,i,j]) -> y\n"
        "y[b,h,i,j] = where(mask[b,0,i,j], s[b,h,i,j], 0)*x[0,0]"
    )
    assert derive.parse(str(op)) == op and "mask[b, 0, i, j]: bool" in str(op)
    f = derive.load(op)
    x = torch.randn(1, 1, dtype=torch.float64, requires_grad=True)
    s = torch.randn(2, 5, 3, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(2, 1, 3, 4) > 0.5
    torch.testing.assert_close(f(x, mask, s), torch.where(mask, s, 0) * x)
    assert torch.autograd.gradcheck(lambda x, s: f(x, mask, s), (x, s))
    assert torch.autograd.gradgradcheck(lambda x, s: f(x, mask, s), (x, s))
    with pytest.raises(ValueError, match="axis 1 of mask has size 5, but must have size 1"):
        f(x, mask.expand(s.shape), s)


def test_a_letter_that_is_taken_is_not_used():
    op = derive.parse("op f(one[n,0], x[n,0]) -> y\ny[n,0] = one[n,0]*x[n,0]")
    one, x = torch.randn(3, 1), torch.randn(3, 1)
    torch.testing.assert_close(derive.load(op)(one, x), one * x)
    assert derive.parse(str(op)) == op


def test_in_sympy():
    from sympy import Eq, IndexedBase, symbols

    n = symbols("n", integer=True)
    x, y = IndexedBase("x"), IndexedBase("y")
    op = derive.Operation("f", Eq(y[n], x[n, 0] ** 2), inputs=[x[n, 0]])
    assert op == derive.parse("op f(x[n,0]) -> y\ny[n] = x[n,0]**2")


@pytest.mark.parametrize("shape", [(1, 3), (4, 1), (1, 1)])
def test_what_was_read_takes_what_it_was_read_from(shape):
    def f(x, scale):
        return (x * scale).sum(0, keepdim=True), x.mean() * scale

    x, scale = torch.randn(shape), torch.randn(1)
    read = derive.load(derive.read_torch(f, x, scale))
    torch.testing.assert_close(read(x, scale), f(x, scale))

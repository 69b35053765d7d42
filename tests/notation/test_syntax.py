"""What was written: its text comes back, with the brackets that it needs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from derive import SpecError
from derive.notation.syntax import (
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
    factors,
    fail,
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
    with pytest.raises(SpecError, match="line 3, column 7"):
        fail(SourcePlace(3, 7), "wrong")
    with pytest.raises(SpecError, match=r"^wrong$"):
        fail(None, "wrong")

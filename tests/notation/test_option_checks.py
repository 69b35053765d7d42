"""What may be asked for of an operation, and what is said where it has none of it."""

import pytest

import derive
from derive.errors import DeriveError
from derive.notation.operation import (
    check_operation,
    known_names,
    known_option,
    names_with_gradient,
)

OP = derive.parse(
    "op f(x[i], t[i]: int, w[i]; to=mean|sum) -> mean: m | sum: s\n"
    "h[i] = x[i]*w[i]\nm = mean[i](h[i])\ns = sum[i](h[i]*t[i])"
)


def test_names_with_a_gradient_go_back_from_the_last():
    assert names_with_gradient(OP) == ["s", "m", "h", "x", "w"]
    assert known_names(OP, None) is None
    assert known_names(OP, ["w", "h", "w"]) == ("w", "h")
    with pytest.raises(
        DeriveError, match=("f has no gradient of t; it has gradients of s, m, h, x, w")
    ):
        known_names(OP, ["t"])


def test_an_option_is_the_first_or_a_named_one():
    assert known_option(OP, None) == "mean"
    assert known_option(OP, "sum") == "sum"
    with pytest.raises(DeriveError, match="f has no option 'max'"):
        known_option(OP, "max")


def test_what_is_no_operation_is_refused():
    with pytest.raises(TypeError, match="op must be an Operation, not str"):
        check_operation("y = x")

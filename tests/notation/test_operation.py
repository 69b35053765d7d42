"""An operation is complete: each index has a size, each tensor a kind, each parameter a place."""

import pytest

import derive
from derive import parse
from derive.errors import DeriveError
from derive.notation.operation import (
    AxisOf,
    Choice,
    KeepDim,
    Number,
    SizeOf,
    check_operation,
    known_names,
    known_option,
    names_with_gradient,
    options,
    without_choice,
)

OP = parse(
    "op f(x[n,k], w[k]=1; eps=1e-3, m=size(k), reduction=none|sum) -> none: y | sum: s\n"
    "y[n] = sum[k](x[n,k]*w[k]) + eps*m\ns = sum[n](y[n])"
)


def test_parameters_are_what_they_stand_for():
    kinds = {p.name: type(p) for p in OP.parameters}
    assert kinds == {"eps": Number, "m": SizeOf, "reduction": Choice}
    other = parse("op g(x[*p,k]; dim=axis(k), keepdim=keep(k)) -> y\ny[*p] = sum[k](x[*p,k])")
    assert {p.name: type(p) for p in other.parameters} == {"dim": AxisOf, "keepdim": KeepDim}


def test_an_extent_says_where_its_size_is_read():
    assert {e.name: e.sources for e in OP.extents} == {"n": (("x", 0),), "k": (("x", 1), ("w", 0))}


def test_equal_operations_are_equal_and_hash_alike():
    again = parse(str(OP))
    assert again == OP and hash(again) == hash(OP)
    assert again != parse("y[i] = x[i]")


def test_a_text_is_no_operation():
    with pytest.raises(TypeError, match="parse"):
        derive.derivation("y[i] = x[i]")


OP_OPTIONS = parse("""
op f(x[n], w[n]; reduction=mean|sum) -> mean: m | sum: s
l[n] = x[n]*w[n]
m = mean[n](l[n])
s = sum[n](l[n])
""")


def test_each_option_has_the_equations_that_lead_to_its_output():
    found = {option: [e.name for e in op.equations] for option, op in options(OP_OPTIONS)}
    assert found == {"mean": ["l", "m"], "sum": ["l", "s"]}


def test_an_operation_without_a_choice_is_its_only_option():
    ((option, op),) = options(parse("y[n] = x[n]**2"))
    assert option is None
    assert [e.name for e in op.equations] == ["y"]


def test_what_is_left_of_a_choice_is_none():
    op = without_choice(OP_OPTIONS, "sum")
    assert op.parameters == ()
    assert op.outputs == ("s",)


OP_OPTION_CHECKS = derive.parse(
    "op f(x[i], t[i]: int, w[i]; to=mean|sum) -> mean: m | sum: s\n"
    "h[i] = x[i]*w[i]\nm = mean[i](h[i])\ns = sum[i](h[i]*t[i])"
)


def test_names_with_a_gradient_go_back_from_the_last():
    assert names_with_gradient(OP_OPTION_CHECKS) == ["s", "m", "h", "x", "w"]
    assert known_names(OP_OPTION_CHECKS, None) is None
    assert known_names(OP_OPTION_CHECKS, ["w", "h", "w"]) == ("w", "h")
    assert known_names(derive.parse("y[i] = 2*weight[i]"), "weight") == ("weight",)
    with pytest.raises(
        DeriveError, match=("f has no gradient of t; it has gradients of s, m, h, x, w")
    ):
        known_names(OP_OPTION_CHECKS, ["t"])


def test_an_option_is_the_first_or_a_named_one():
    assert known_option(OP_OPTION_CHECKS, None) == "mean"
    assert known_option(OP_OPTION_CHECKS, "sum") == "sum"
    with pytest.raises(DeriveError, match="f has no option 'max'"):
        known_option(OP_OPTION_CHECKS, "max")


def test_what_is_no_operation_is_refused():
    with pytest.raises(TypeError, match="op must be an Operation, not str"):
        check_operation("y = x")

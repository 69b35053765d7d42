"""An operation is complete: each index has a size, each tensor a kind, each parameter a place."""

from __future__ import annotations

import pytest

import derive
from derive import parse
from derive.notation.operation import AxisOf, Choice, KeepDim, Number, SizeOf

TEXT = (
    "op f(x[*p,k,*q], w[k]=1; dim=axis(k), keepdim=keep(k), eps=1e-3, n=size(k), "
    "reduction=none|sum -> none: y | sum: s) -> y"
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
    assert {e.name: e.sources for e in OP.extents} == {
        "n": (("x", 0),),
        "k": (("x", 1), ("w", 0)),
    }


def test_equal_operations_are_equal_and_hash_alike():
    again = parse(str(OP))
    assert again == OP and hash(again) == hash(OP)
    assert again != parse("y[i] = x[i]")


def test_a_text_is_no_operation():
    with pytest.raises(TypeError, match="parse"):
        derive.derivation("y[i] = x[i]")

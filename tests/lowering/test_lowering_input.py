"""What forward and backward have in common."""

import pytest

import derive
from derive.calculus.build_lets import flatten_operation
from derive.errors import LoweringError
from derive.lowering.lowering_input import (
    float_outputs,
    input_values,
    integers_of,
    like_input,
    short_axes,
    vectors_of,
)
from derive.program.torch_ir import Name

OP = derive.parse(
    "op f(x[n,k], T[n], w[k]=1; p=2, m=size(k)) -> y, s; s = sum[n](x[n,T[n]]); y[k] = w[k]*s**p"
)


def test_tensors_at_hand_have_the_axes_of_the_equations():
    values = input_values(OP)
    assert [len(v.axes) for v in values.values()] == [2, 1, 1]
    assert values["T"].kind == "int" and values["x"].code is Name("x")


def test_new_tensors_are_like_an_input_that_is_no_none():
    assert like_input(OP) is Name("x")
    with pytest.raises(LoweringError, match="no floating-point input"):
        like_input(derive.parse("op f(T[n]: int) -> y; y[n] = T[n] + 1"))


def test_what_outputs_and_parameters_are():
    assert set(float_outputs(OP)) == {"y", "s"} and "m" in integers_of(OP)
    assert {"T", "w", "y", "s"} <= vectors_of(OP)


def test_an_axis_is_short_whose_size_is_a_number():
    op = derive.parse("op f(x[n,t]; size(t)=2) -> h; h[t,k] = x[2*k,t]*x[2*k+1,t]")
    short = short_axes(op, flatten_operation(op))
    assert {name: [*short(name)] for name in ("x", "h", "z")} == {"x": [1], "h": [0], "z": []}
    assert [size for _, size in (*short("x").values(), *short("h").values())] == [2, 2]

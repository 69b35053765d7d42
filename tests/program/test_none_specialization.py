"""What is left of code without a tensor; what needs it is no code at all."""

from __future__ import annotations

from fractions import Fraction

import pytest
from kit.each import each_row

from derive.algebra.expr import Size
from derive.algebra.poly import atom
from derive.cost.shape_interpreter import ShapedTensor, Trace
from derive.program.none_specialization import (
    Absence,
    TensorNeeded,
    Uniform,
    is_float,
    is_number,
    optional_operands_last,
)
from derive.program.torch_ir import (
    Binary,
    Code,
    FunctionCall,
    Literal,
    MethodCall,
    Name,
    Unary,
    literal,
    text,
)

n, m = atom(Size("n")), atom(Size("m"))
x, w, G, mask, T, size = map(Name, ("x", "w", "G", "mask", "T", "size"))
SHAPES = {"x": (n, m), "w": (m,), "G": (), "mask": (n, m), "T": (n,)}


def absence(number):
    values = {name: ShapedTensor(shape) for name, shape in SHAPES.items()}
    given, there = Trace({}, values), Trace({}, {**values, "w": None})
    numbers = {"w": Fraction(number)}
    return Absence(numbers, ("x", "G", "w"), ("size",), there.shape, given.shape, None, ("mask",))


def left(number, code):
    found = absence(number).without(code)
    return text(found) if isinstance(found, Code) else found


ROW = MethodCall(w, "unsqueeze", (literal(0),))
PLACED = MethodCall(w, "index_select", (literal(0), T))
ONES = FunctionCall("torch.where", (mask, ROW, literal(0)))


@each_row(
    "number, code, want",
    [
        (1, Binary("*", ROW, x), "x"),
        (1, Binary("/", x, w), "x"),
        (-1, Binary("*", x, w), "-x"),
        (1, Binary("*", Unary("-", w), x), "-x"),
        (0, Binary("+", w, x), "x"),
        (0, Binary("-", x, w), "x"),
        (0, Binary("-", w, x), "-x"),
        (0, Binary("*", x, w), "x * 0"),
        (3, Binary("-", x, w), "x - 3"),
        (Fraction(1, 2), Binary("*", w, x), "0.5 * x"),
        (2, Binary("/", w, x), "2 / x"),
        (1, Binary("@", x, w), "x.sum(-1)"),
        (1, Binary("*", Binary("*", G, w), x), "G * x"),
        (2, Binary("*", Binary("*", size, w), x), "size * 2 * x"),
        (2, FunctionCall("torch.where", (mask, x, w)), "torch.where(mask, x, 2)"),
        (1, MethodCall(ONES, "sum"), "mask.sum(dtype=x.dtype)"),
        (1, PLACED, Uniform(Fraction(1))),
        (3, Unary("-", PLACED), Uniform(Fraction(-3))),
        (1, Binary("*", G, w), Uniform(G)),
    ],
)
def test_what_is_left_without_a_tensor(number, code, want):
    assert left(number, code) == want


@pytest.mark.parametrize(
    "code",
    [
        MethodCall(w, "mean"),
        MethodCall(w, "exp"),
        Binary("@", w, w),
        Binary("*", w, T),
        Binary(
            "*",
            MethodCall(w, "unsqueeze", (literal(1),)),
            MethodCall(T, "unsqueeze", (literal(0),)),
        ),
        FunctionCall("torch.where", (mask, w, literal(0))),
    ],
    ids=text,
)
def test_what_needs_the_tensor(code):
    with pytest.raises(TensorNeeded):
        absence(1).without(code)


def test_the_smallest_parts_are_found():
    code = MethodCall(Binary("+", MethodCall(Binary("*", x, w), "exp"), x), "sum")
    assert list(absence(1).sites(code)) == [(Binary("*", x, w), x)]
    both = Binary("+", Binary("*", x, w), Binary("/", x, w))
    assert [text(site) for site, _ in absence(1).sites(both)] == ["x * w", "x / w"]


def test_a_tensor_that_is_needed_has_the_shape_of_another():
    code = MethodCall(x, "scatter_add", (literal(1), mask, ROW))
    with pytest.raises(TensorNeeded):
        absence(1).without(code)
    wide = MethodCall(ROW, "expand", (Name("x_shape"),))
    code = MethodCall(x, "scatter_add", (literal(1), mask, wide))
    assert left(2, code) == "x.scatter_add(1, mask, x.new_full((), 2).expand(x_shape))"


def test_what_comes_of_optional_tensors_is_added_last():
    code = Binary("+", Binary("+", Name("a"), Name("b")), x)
    assert text(optional_operands_last(code, {"a", "b"})) == "x + a + b"
    assert optional_operands_last(code, {"a"}) is code


def test_floats_and_numbers_are_known_by_their_form():
    assert is_float(MethodCall(Binary("*", x, T), "sum"), {"x"})
    assert not is_float(Binary("*", mask, T), {"x"})
    assert not is_float(MethodCall(x, "argmax"), {"x"})
    assert is_number(Binary("/", size, Literal("math.nan")), {"size"})
    assert not is_number(Binary("*", size, x), {"size"})

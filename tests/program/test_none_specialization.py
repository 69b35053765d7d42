"""What is left of code without a tensor; what needs it is no code at all."""

from fractions import Fraction

import pytest
from kit.each import each_row
from kit.torch_code import torch_code

from derive.algebra.expr import Size
from derive.algebra.poly import atom
from derive.program.none_specialization import (
    Absence,
    TensorNeeded,
    Uniform,
    optional_operands_last,
)
from derive.program.torch_ir import Code, MethodCall, Name, literal, text
from derive.program.types import NUMBER, TensorType, Types

n, m = atom(Size("n")), atom(Size("m"))
x, w, G, mask, T, size = map(Name, ("x", "w", "G", "mask", "T", "size"))
SHAPES = {"x": (n, m), "w": (m,), "G": (), "mask": (n, m), "T": (n,)}


def absence(number):
    kinds = {"mask": "bool", "T": "int"}
    values = {name: TensorType(SHAPES[name], kinds.get(name, "float")) for name in SHAPES}
    values |= {"size": NUMBER}
    given, there = Types({}, values), Types({}, {**values, "w": None})
    return Absence({"w": Fraction(number)}, x, there, given, None, ("mask",))


def left(number, code):
    found = absence(number).without(code)
    return text(found) if isinstance(found, Code) else found


PLACED = torch_code("w.index_select(0, T)")


@each_row(
    "number, code, want",
    [
        (1, torch_code("w.unsqueeze(0) * x"), "x"),
        (1, torch_code("x / w"), "x"),
        (-1, torch_code("x * w"), "-x"),
        (1, torch_code("-w * x"), "-x"),
        (0, torch_code("w + x"), "x"),
        (0, torch_code("x - w"), "x"),
        (0, torch_code("w - x"), "-x"),
        (0, torch_code("x * w"), "x * 0"),
        (3, torch_code("x - w"), "x - 3"),
        (Fraction(1, 2), torch_code("w * x"), "0.5 * x"),
        (2, torch_code("w / x"), "2 / x"),
        (1, torch_code("x @ w"), "x.sum(-1)"),
        (1, torch_code("G * w * x"), "G * x"),
        (2, torch_code("size * w * x"), "size * 2 * x"),
        (2, torch_code("torch.where(mask, x, w)"), "torch.where(mask, x, 2)"),
        (1, torch_code("torch.where(mask, w.unsqueeze(0), 0).sum()"), "mask.sum(dtype=x.dtype)"),
        (1, PLACED, Uniform(Fraction(1))),
        (3, torch_code("-w.index_select(0, T)"), Uniform(Fraction(-3))),
        (1, torch_code("G * w"), Uniform(G)),
    ],
)
def test_what_is_left_without_a_tensor(number, code, want):
    assert left(number, code) == want


@each_row(
    "code",
    [
        torch_code("w.mean()"),
        torch_code("w.exp()"),
        torch_code("w @ w"),
        torch_code("w * T"),
        torch_code("w.unsqueeze(1) * T.unsqueeze(0)"),
        torch_code("torch.where(mask, w, 0)"),
    ],
)
def test_what_needs_the_tensor(code):
    with pytest.raises(TensorNeeded):
        absence(1).without(code)


def test_the_smallest_parts_are_found():
    code = torch_code("((x * w).exp() + x).sum()")
    assert list(absence(1).sites(code)) == [(torch_code("x * w"), x)]
    both = torch_code("x * w + x / w")
    assert [text(site) for site, _ in absence(1).sites(both)] == ["x * w", "x / w"]


def test_a_tensor_that_is_needed_has_the_shape_of_another():
    code = torch_code("x.scatter_add(1, mask, w.unsqueeze(0))")
    with pytest.raises(TensorNeeded):
        absence(1).without(code)
    wide = torch_code("w.unsqueeze(0).expand(x_shape)")
    code = MethodCall(x, "scatter_add", (literal(1), mask, wide))
    assert left(2, code) == "x.scatter_add(1, mask, x.new_full((), 2).expand(x_shape))"


def test_what_comes_of_optional_tensors_is_added_last():
    code = torch_code("a + b + x")
    assert text(optional_operands_last(code, {"a", "b"})) == "x + a + b"
    assert optional_operands_last(code, {"a"}) is code

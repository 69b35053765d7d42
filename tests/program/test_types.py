"""The type of each part of the code, from those of names."""

import pytest
from kit.each import each_row
from kit.torch_code import torch_code

from derive.algebra.expr import Size
from derive.algebra.poly import ONE, atom, constant
from derive.program.cse import Line
from derive.program.torch_ir import Binary, Name
from derive.program.types import ABSENT, NUMBER, TensorType, Types

n, m = atom(Size("n")), atom(Size("m"))
GIVEN = {
    **{
        "x": TensorType((n, m)),
        "y": TensorType((n, m)),
        "v": TensorType((m,)),
        "s": TensorType(()),
    },
    **{"s": TensorType(()), "places": TensorType((n,), "int"), "mask": TensorType((n, m), "bool")},
    **{"a": NUMBER, "k": n, "keepdim": False, "none": ABSENT, "x_shape": (n, m)},
}


def types():
    return Types({}, GIVEN)


@each_row(
    "text, shape",
    [
        ("x @ y.mT", (n, n)),
        ("x * v", (n, m)),
        ("v.unsqueeze(1)", (m, ONE)),
        ("x.sum(1)", (n,)),
        ("x.sum(1, keepdim=keepdim)", (n,)),
        ("x.sum((0, 1))", ()),
        ("x.index_select(0, places)", (n, m)),
        ("x[places]", (n, m)),
        ("s.expand(x.shape)", (n, m)),
        ("x.new_zeros((x_shape[1], 3))", (m, constant(3))),
        ('torch.einsum("ij,j->i", x, v)', (n,)),
        ("v if none is None else x", (m,)),
        ("none if none is None else x", None),
        ("none.unsqueeze(0)", None),
        ("x.max(1).indices", (n,)),
        ("unknown * 2", None),
        ("v.new_zeros(2 ** 3)", (constant(8),)),
    ],
)
def test_a_shape_follows_from_those_of_the_operands(text, shape):
    assert types().shape(torch_code(text)) == shape


KINDS = {
    "float": "x; -x; (x * places.unsqueeze(1)).sum(); x.mT; x if none is None else none; x.exp(); "
    "x @ y.mT; torch.where(mask, x, 0); torch.cat((x, y)); places.to(low); x.sum(dtype=low); "
    "x.max(1).values; places.to(x.dtype); mask.to(x.dtype) * 2; a * x; x.index_select(0, places); "
    "x if a else y; 2 / x; x ** a",
    "int": "places; -places; places + 1; x.argmax(1); x.max(1).indices; torch.arange(k, device=v); "
    "mask * places.unsqueeze(1); torch.where(mask, 1, 0); places.index_select(0, places); "
    "torch.full((), k); x.floor().long()",
    "bool": "mask; ~mask; x > y; x == 0; mask & mask; mask & (a < 2); mask.any(1); mask.mT; "
    "mask.unsqueeze(0); x.isfinite()",
    None: "places * a; places / places; places.exp(); x if a else places.expand(x.shape); "
    "torch.where(mask, a, 0)",
}


@pytest.mark.parametrize(
    ("kind", "text"), [(k, t.strip()) for k, texts in KINDS.items() for t in texts.split(";")]
)
def test_a_kind_is_that_to_which_the_operands_promote_or_of_the_dtype(kind, text):
    assert types().of(torch_code(text)).kind == kind


NUMBERS = (
    "2; 0.5; -a; a / math.nan; x.shape[0] * a; k // 2; x.dim(); math.sqrt(k); a < 2; "
    "rt.ieee_divide(1, k); not a; torch.finfo(x.dtype).max"
)


@each_row("text", NUMBERS.split(";"))
def test_a_number_is_none_of_a_tensor(text):
    assert types().is_number(torch_code(text.strip()))


@pytest.mark.parametrize("text", "x; x.shape; none; unknown; None".split(";"))
def test_what_is_no_number(text):
    assert not types().is_number(torch_code(text.strip()))


def test_a_test_is_true_false_or_unknown():
    tests = "none is None", "x is None", "not keepdim", "a < 2"
    assert [types().truth(torch_code(t)) for t in tests] == [True, False, True, None]


def test_a_type_is_that_of_the_last_line_of_a_name():
    found = types()
    found.run([Line("b", torch_code("x * 2")), Line("c", torch_code("b.exp()"))])
    found.run([Line("b", torch_code("x > 0"))])
    assert found.is_float(Name("c"))
    assert found.of(Name("b")) == TensorType((n, m), "bool")


def test_a_walk_of_a_long_chain_is_fast():
    long = torch_code("x")
    for _ in range(300):
        long = Binary("+", long, torch_code("y"))
    assert types().is_float(long)

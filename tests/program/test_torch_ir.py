"""Torch code as a tree: its text has the brackets that it needs."""

from kit.each import each_row

from derive.program.torch_ir import (
    Attribute,
    Binary,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Tuple,
    literal,
    names_in,
    text,
)
from derive.program.torch_ops import count

a, b = Name("a"), Name("b")
two = Literal("2")
TEXTS = {
    "a * (a + b)": Binary("*", a, Binary("+", a, b)),
    "a - (b - a)": Binary("-", a, Binary("-", b, a)),
    "a - b - a": Binary("-", Binary("-", a, b), a),
    "(a + b).sum(2, keepdim=True)": MethodCall(
        Binary("+", a, b), "sum", (two, Keyword("keepdim", Literal("True")))
    ),
    "torch.where(a, b, 2)": FunctionCall("torch.where", (a, b, two)),
    "a.mT @ b": Binary("@", Attribute(a, "mT"), b),
    "a.expand((2,))": MethodCall(a, "expand", (Tuple((two,)),)),
    "(a + b)[:, :, 0]": MethodCall(Binary("+", a, b), "select", (two, Literal("0"))),
    "a[..., b, :]": MethodCall(a, "select", (literal(-2), b)),
    "a.numel() / 2": Binary("/", FunctionCall("math.prod", (Attribute(a, "shape"),)), two),
}


@each_row("written", TEXTS)
def test_text(written):
    assert text(TEXTS[written]) == written


def test_equal_code_is_one_object():
    assert Binary("+", a, b) is Binary("+", a, b)


def test_names_are_those_that_are_read():
    assert sorted(names_in(Binary("*", a, MethodCall(b, "gather", (two, a))))) == ["a", "a", "b"]


def test_views_cost_nothing():
    assert count([MethodCall(Attribute(a, "mT"), "unsqueeze", (two,))]) == (0, 0)
    assert count([Binary("+", Binary("@", a, b), a)]) == (1, 1)

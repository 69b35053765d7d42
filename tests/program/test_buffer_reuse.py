"""What is written over what: only tensors made here, of one shape, that nothing reads later."""

from __future__ import annotations

import pytest
from kit.each import each_row

from derive.algebra.expr import Size
from derive.algebra.poly import atom
from derive.cost.shape_interpreter import ABSENT, ShapedTensor, Trace
from derive.program.buffer_reuse import InPlaceWriter
from derive.program.cse import Line
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Conditional,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Tuple,
    Unary,
    literal,
    text,
)

n, m = atom(Size("n")), atom(Size("m"))
x, w, G, a, b, c = map(Name, ("x", "w", "G", "a", "b", "c"))
T = Name("T")
SUM = MethodCall(MethodCall(a, "sum", (literal(1),)), "unsqueeze", (literal(1),))
SHAPES = {"x": (n, m), "w": (m,), "G": (n, m), "s": ()}
MADE = MethodCall(x, "exp")
ALONE, BOTH = ("x",), ("x", "w")


def written(*lines, results=("c",), worlds=1):
    """The lines, each given as name, code and the inputs whose gradients need it."""
    values = {name: ShapedTensor(shape) for name, shape in SHAPES.items()}
    found = [Trace({}, dict(values)), Trace({}, {**values, "w": ABSENT})][:worlds]
    writer = InPlaceWriter(
        floats=dict.fromkeys(("x", "w", "G", "s")),
        results=results,
        known={},
        places={"x": 0, "w": 1},
        taken={"x", "w", "G", "s", "a", "b", "c"},
        is_large=lambda shape: len(shape) > 1,
        width=76,
    )
    entries = [(Line(line[0], line[1]), line[2] if len(line) > 2 else BOTH) for line in lines]
    return [f"{line.name} = {text(line.code)}" for line, _ in writer.write(entries, found)]


def last(*lines, **given):
    return written(*lines, **given)[-1]


@each_row(
    "code, want",
    [
        (Binary("*", a, G), "a.mul_(G)"),
        (Binary("*", G, a), "a.mul_(G)"),
        (Binary("*", w, a), "a.mul_(w)"),
        (Binary("*", literal(2), a), "a.mul_(2)"),
        (Binary("-", a, G), "a.sub_(G)"),
        (Binary("-", G, a), "G - a"),
        (Binary("/", a, w), "a.div_(w)"),
        (Binary("/", literal(1), a), "1 / a"),
        (Binary("+", Binary("*", a, w), G), "a.mul_(w).add_(G)"),
        (Binary("-", a, Binary("*", w, G)), "a.addcmul_(w, G, value=-1)"),
        (Binary("+", G, Binary("*", w, x)), "torch.addcmul(G, w, x)"),
        (Binary("*", Unary("-", G), a), "a.mul_(G).neg_()"),
        (Unary("-", a), "a.neg_()"),
        (MethodCall(a, "tanh"), "a.tanh_()"),
        (MethodCall(a, "clamp", (Keyword("min", literal(0)),)), "a.clamp_(min=0)"),
        (Binary("*", MethodCall(a, "unsqueeze", (literal(0),)), G), "a.unsqueeze(0).mul_(G)"),
        (Binary("*", Attribute(a, "mT"), Attribute(G, "mT")), "a.mT.mul_(G.mT)"),
        (
            Binary("*", MethodCall(a, "movedim", (literal(0), literal(1))), Attribute(G, "mT")),
            "a.movedim(0, 1).mul_(G.mT)",
        ),
        (Binary("*", MethodCall(a, "reshape", (Name("t"),)), literal(2)), None),
        (
            FunctionCall("torch.where", (Binary(">", x, G), a, literal(0))),
            "_masked_(a, x > G)",
        ),
        (
            FunctionCall("torch.where", (Binary(">", x, G), literal(1), a)),
            "a.masked_fill_(x > G, 1)",
        ),
        (
            FunctionCall("torch.ops.aten.tanh_backward", (a, x)),
            "torch.ops.aten.tanh_backward(a, x, grad_input=a)",
        ),
        (Binary("*", a, a), "a * a"),
        (Binary("+", MethodCall(a, "square"), a), "a.square().add_(a)"),
        (Binary("*", a, SUM), "a * a.sum(1).unsqueeze(1)"),
        (Binary(">", a, G), "a > G"),
        (Binary("@", a, w), "a @ w"),
        (Binary("*", MethodCall(G, "to", (Name("wide"),)), x), "G.to(wide) * x"),
        (Binary("*", MethodCall(a, "to", (Name("wide"),)), x), "a.to(wide).mul_(x)"),
        (Binary("*", MethodCall(a, "expand", (Name("t"),)), literal(2)), None),
    ],
)
def test_an_operand_that_was_made_here_is_written_over(code, want):
    found = last(("a", MADE), ("c", code))
    assert found == f"c = {want or text(code)}"


@pytest.mark.parametrize(
    "made",
    [
        x,
        MethodCall(x, "reshape", (Name("t"),)),
        MethodCall(x, "to", (Name("wide"),)),
        MethodCall(x, "detach"),
        MethodCall(w, "expand_as", (x,)),
        MethodCall(MethodCall(w, "exp"), "expand", (Name("t"),)),
        Binary(">", x, G),
        MethodCall(w, "exp"),
    ],
    ids=text,
)
def test_nothing_is_written_over_what_is_given_or_has_another_shape_or_kind(made):
    assert last(("a", made), ("c", Binary("*", a, G))) == "c = a * G"


def test_what_is_read_later_stays():
    assert written(("a", MADE), ("b", Binary("*", a, G)), ("c", Binary("-", a, b))) == [
        "a = x.exp()",
        "b = a * G",
        "c = a.sub_(b)",
    ]


def test_what_is_read_later_by_another_name_stays():
    view = MethodCall(a, "unsqueeze", (literal(0),))
    lines = written(("a", MADE), ("b", view), ("a", Binary("*", a, G)), ("c", MethodCall(b, "sum")))
    assert lines[2] == "a = a * G"


def test_a_result_stays():
    lines = written(("a", MADE), ("c", Binary("*", a, G)), results=("a", "c"))
    assert lines[1] == "c = a * G"


def test_a_shape_may_be_read_later():
    shape = Attribute(a, "shape")
    lines = written(
        ("a", MADE), ("b", Binary("*", a, G)), ("c", MethodCall(b, "reshape", (shape,)))
    )
    assert lines[1] == "b = a.mul_(G)"


def test_what_another_gradient_alone_reads_is_written_over_where_that_is_not_asked_for():
    one, two = Binary("*", a, Binary("/", w, literal(3))), Binary("*", a, G)
    assert written(("a", MADE), ("b", one, ALONE), ("c", two, ("w",)), results=("b", "c")) == [
        "a = x.exp()",
        "part = w / 3",
        "b = a * part if ctx.needs_input_grad[1] else a.mul_(part)",
        "c = a.mul_(G)",
    ]
    lines = written(("a", MADE), ("b", one), ("c", two, ("w",)), results=("b", "c"))
    assert lines[1] == "b = a * (w / 3)"


def test_a_choice_is_written_in_each_branch_and_where_shapes_are_known():
    none = Binary("is", w, Literal("None"))
    code = Conditional(none, a, Binary("*", a, w))
    assert last(("a", MADE), ("c", code), worlds=2) == "c = a if w is None else a.mul_(w)"
    short = Conditional(none, Literal("2"), MethodCall(x, "exp"))
    assert last(("a", short), ("c", Binary("*", a, G)), worlds=2) == "c = a * G"


def test_elements_are_placed_in_a_difference():
    placed = MethodCall(
        MethodCall(w, "expand", (Attribute(x, "shape"),)), "scatter_add", (literal(1), T, G)
    )
    lines = written(("a", MADE), ("b", placed), ("c", Binary("-", a, b)))
    assert lines[1:] == ["c = a.sub_(w.expand(x.shape)).scatter_add_(1, T, -G)"]
    lines = written(("a", MADE), ("b", placed), ("c", Binary("*", a, b)))
    assert lines[1:] == ["b = w.expand(x.shape).scatter_add(1, T, G)", "c = a.mul_(b)"]


def test_a_branch_is_not_taken_out_of_a_choice():
    long = MethodCall(Name("w"), "exp")
    for _ in range(6):
        long = MethodCall(long, "clamp", (literal(-100), literal(100)))
    none = Binary("is", w, Literal("None"))
    code = Conditional(none, a, Binary("*", a, long))
    assert last(("a", MADE), ("c", code), worlds=2) == f"c = {text(code)}"


def test_what_is_absent_has_no_gradient_whose_lines_are_followed():
    padded = FunctionCall("torch.nn.functional.pad", (w, Tuple((literal(2), literal(0)))))
    picked = MethodCall(b, "index_select", (literal(0), w))
    lines = ("a", MADE), ("b", padded, ("w",)), ("c", picked, ("w",)), ("c", Unary("-", a))
    assert last(*lines, worlds=2) == "c = a.neg_()"

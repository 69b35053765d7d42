"""What is written over what: only tensors made here, of one shape, that nothing reads later."""

from kit.each import each_row
from kit.torch_code import torch_code

from derive.algebra.expr import Size
from derive.algebra.poly import atom
from derive.program.buffer_reuse import InPlaceWriter
from derive.program.cse import Line
from derive.program.dataflow import Memory
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Conditional,
    Literal,
    MethodCall,
    Name,
    Unary,
    literal,
    text,
)
from derive.program.types import ABSENT, TensorType, Types

n, m = atom(Size("n")), atom(Size("m"))
x, w, G, a, b, c = map(Name, ("x", "w", "G", "a", "b", "c"))
T = Name("T")
SHAPES = {"x": (n, m), "w": (m,), "G": (n, m), "s": ()}
MADE = torch_code("x.exp()")
ALONE, BOTH = ("x",), ("x", "w")


def written(*lines, results=("c",), worlds=1, kept=True):
    """The lines, each given as name, code and the inputs whose gradients need it."""
    values = {name: TensorType(shape) for name, shape in SHAPES.items()}
    found = [Types({}, values), Types({}, {**values, "w": ABSENT})][:worlds]
    writer = InPlaceWriter(
        results=results,
        places={"x": 0, "w": 1},
        taken={"x", "w", "G", "s", "a", "b", "c"},
        is_large=lambda shape: len(shape) > 1,
    )
    given = [Line(*x[:2], kept, needs=x[2] if len(x) > 2 else BOTH) for x in lines]
    return [f"{line.name} = {text(line.code)}" for line in writer.write(given, found)]


def last(*lines, **given):
    return written(*lines, **given)[-1]


@each_row(
    "code, want",
    [
        (torch_code("a * G"), "a.mul_(G)"),
        (torch_code("G * a"), "a.mul_(G)"),
        (torch_code("w * a"), "a.mul_(w)"),
        (torch_code("2 * a"), "a.mul_(2)"),
        (torch_code("a - G"), "a.sub_(G)"),
        (torch_code("G - a"), "G - a"),
        (torch_code("a / w"), "a.div_(w)"),
        (torch_code("1 / a"), "1 / a"),
        (torch_code("a * w + G"), "a.mul_(w).add_(G)"),
        (torch_code("a - w * G"), "a.addcmul_(w, G, value=-1)"),
        (torch_code("G + w * x"), "torch.addcmul(G, w, x)"),
        (torch_code("-G * a"), "a.mul_(G).neg_()"),
        (torch_code("-a"), "a.neg_()"),
        (torch_code("a.tanh()"), "a.tanh_()"),
        (torch_code("a.clamp(min=0)"), "a.clamp_(min=0)"),
        (torch_code("a.unsqueeze(0) * G"), "a.unsqueeze(0).mul_(G)"),
        (torch_code("a.mT * G.mT"), "a.mT.mul_(G.mT)"),
        (torch_code("a.movedim(0, 1) * G.mT"), "a.movedim(0, 1).mul_(G.mT)"),
        (torch_code("a.reshape(t) * 2"), None),
        (torch_code("torch.where(x > G, a, 0)"), "rt.keep_where_(a, x > G)"),
        (torch_code("torch.where(x > G, 1, a)"), "a.masked_fill_(x > G, 1)"),
        (
            torch_code("torch.ops.aten.tanh_backward(a, x)"),
            "torch.ops.aten.tanh_backward(a, x, grad_input=a)",
        ),
        (torch_code("a * a"), "a * a"),
        (torch_code("a.square() + a"), "a.square().add_(a)"),
        (torch_code("a * a.sum(1).unsqueeze(1)"), "a * a.sum(1).unsqueeze(1)"),
        (torch_code("a > G"), "a > G"),
        (torch_code("a @ w"), "a @ w"),
        (torch_code("G.to(wide) * x"), "G.to(wide) * x"),
        (torch_code("a.to(wide) * x"), "a.to(wide).mul_(x)"),
        (torch_code("a.expand(t) * 2"), None),
    ],
)
def test_an_operand_that_was_made_here_is_written_over(code, want):
    found = last(("a", MADE), ("c", code))
    assert found == f"c = {want or text(code)}"


def test_a_weighted_sum_less_the_whole_weight_rounds_both_products():
    """They are equal, and nothing is left, where each point has a weight for itself alone."""
    weights = "a", torch_code("x @ x.mT")
    whole = torch_code("a @ x - a.sum(1, keepdim=True) * x")
    assert last(weights, ("c", whole)) == "c = (a @ x).sub_(a.sum(1, keepdim=True) * x)"
    other = torch_code("a @ x - a.sum(1, keepdim=True) * G")
    assert "addcmul_" in last(weights, ("c", other))


@each_row(
    "made",
    [
        x,
        torch_code("x.reshape(t)"),
        torch_code("x.to(wide)"),
        torch_code("x.detach()"),
        torch_code("w.expand_as(x)"),
        torch_code("w.exp().expand(t)"),
        torch_code("x > G"),
        torch_code("w.exp()"),
    ],
)
def test_nothing_is_written_over_what_is_given_or_has_another_shape_or_kind(made):
    assert last(("a", made), ("c", torch_code("a * G"))) == "c = a * G"


def test_what_is_read_later_stays():
    assert written(("a", MADE), ("b", torch_code("a * G")), ("c", torch_code("a - b"))) == [
        "a = x.exp()",
        "b = a * G",
        "c = a.sub_(b)",
    ]


def test_what_is_read_later_by_another_name_stays():
    view = torch_code("a.unsqueeze(0)")
    lines = written(
        ("a", MADE), ("b", view), ("a", torch_code("a * G")), ("c", torch_code("b.sum()"))
    )
    assert lines[2] == "a = a * G"


def test_a_result_stays():
    lines = written(("a", MADE), ("c", torch_code("a * G")), results=("a", "c"))
    assert lines[1] == "c = a * G"


def test_a_shape_may_be_read_later():
    shape = torch_code("a.shape")
    lines = written(
        ("a", MADE), ("b", torch_code("a * G")), ("c", MethodCall(b, "reshape", (shape,)))
    )
    assert lines[1] == "b = a.mul_(G)"


def test_what_another_gradient_alone_reads_is_written_over_where_that_is_not_asked_for():
    one, two = torch_code("a * (w / 3)"), torch_code("a * G")
    assert written(("a", MADE), ("b", one, ALONE), ("c", two, ("w",)), results=("b", "c")) == [
        "a = x.exp()",
        "generated_value = w / 3",
        "b = a * generated_value if ctx.needs_input_grad[1] else a.mul_(generated_value)",
        "c = a.mul_(G)",
    ]
    lines = written(("a", MADE), ("b", one), ("c", two, ("w",)), results=("b", "c"))
    assert lines[1] == "b = a * (w / 3)"


def test_a_choice_is_written_in_each_branch_and_where_shapes_are_known():
    none = torch_code("w is None")
    code = Conditional(none, a, torch_code("a * w"))
    assert last(("a", MADE), ("c", code), worlds=2) == "c = a if w is None else a.mul_(w)"
    short = Conditional(none, Literal("2"), torch_code("x.exp()"))
    assert last(("a", short), ("c", torch_code("a * G")), worlds=2) == "c = a * G"


def test_a_scatter_comes_just_before_the_only_line_that_reads_it():
    placed = MethodCall(
        MethodCall(w, "expand", (Attribute(x, "shape"),)), "scatter_add", (literal(1), T, G)
    )
    lines = ("a", MADE), ("b", placed, BOTH), ("d", Unary("-", x)), ("c", torch_code("a - b"))
    made = [name for name, _ in (x.split(" = ") for x in written(*lines, results=("d", "c")))]
    assert made == ["a", "b", "d", "c"]
    private = written(*lines, results=("d", "c"), kept=False)
    assert [x.split(" = ")[0] for x in private] == ["a", "d", "b", "c"]
    rebound = ("a", MADE), ("b", placed), ("T", torch_code("G * G")), ("c", torch_code("a - b"))
    assert [x.split(" = ")[0] for x in written(*rebound, kept=False)] == ["a", "b", "T", "c"]


def test_a_branch_is_not_taken_out_of_a_choice():
    long = torch_code("w.exp()")
    for _ in range(6):
        long = MethodCall(long, "clamp", (literal(-100), literal(100)))
    none = torch_code("w is None")
    code = Conditional(none, a, Binary("*", a, long))
    assert last(("a", MADE), ("c", code), worlds=2) == f"c = {text(code)}"


def test_what_is_absent_has_no_gradient_whose_lines_are_followed():
    padded = torch_code("torch.nn.functional.pad(w, (2, 0))")
    picked = torch_code("b.index_select(0, w)")
    lines = ("a", MADE), ("b", padded, ("w",)), ("c", picked, ("w",)), ("c", torch_code("-a"))
    assert last(*lines, worlds=2) == "c = a.neg_()"


def test_the_order_of_what_reads_a_memory_is_that_of_its_owners():
    """A set has another order in another process."""
    writer = InPlaceWriter((), {}, set(), bool)
    names = [f"t{k}" for k in range(9)]
    writer._asked = {name: {f"grad of {name}": None} for name in names}
    found = writer._asked_of(Memory(frozenset(names)))
    assert found == tuple(f"grad of {name}" for name in names)

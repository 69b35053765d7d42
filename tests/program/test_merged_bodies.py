"""Both orders of a backward in one text: either runs the lines of its own body."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from kit.each import each_row
from kit.torch_code import torch_code

from derive import catalog
from derive.pipeline import specialized
from derive.program.aliasing import gradients_apart
from derive.program.buffer_reuse import in_place_operation, where_allowed
from derive.program.cse import Line
from derive.program.merged_bodies import Body, Segment, merge_bodies
from derive.program.torch_ir import (
    Binary,
    Code,
    FunctionCall,
    MethodCall,
    Name,
    names_in,
    replaced,
    text,
)


def body(*lines: str, kept: str = "") -> Body:
    made = []
    for line in lines:
        name, code = line.split(" = ")
        made.append(Line(name, torch_code(code), name in kept.split(), needs=("x",)))
    return tuple(made)


def texts(lines: Body) -> list[str]:
    return [f"{line.name} = {text(line.code)}" for line in lines]


def shared(segments: list[Segment]) -> list[str]:
    return [line for s in segments for line in texts(s.shared)]


def test_a_name_becomes_that_of_the_line_that_computes_the_same():
    first = body("part = x*y", "k = part.exp()", "grad_x = k*part")
    later = body("u = y + 1", "part = u*x", "product = x*y", "e = product.exp()")
    later += body("grad_x = e*product")
    made = merge_bodies(first, later, ["grad_x"], ["x"])
    assert shared(made) == ["product = x * y", "e = product.exp()", "grad_x = e * product"]
    assert [texts(s.later) for s in made if not s.shared] == [["u = y + 1", "part = u * x"]]


def test_what_is_computed_in_two_ways_has_one_name_where_both_read_it():
    first = body("t = tanh_backward(G, h)", "grad_x = t @ w", "grad_w = t.mT @ x")
    later = body("u = G*(1 - h*h)", "grad_x = u @ w", "grad_w = u.mT @ x")
    made = merge_bodies(first, later, ["grad_x", "grad_w"], ["x"])
    assert [texts(s.first) for s in made[:1]] == [["u = tanh_backward(G, h)"]]
    assert shared(made) == ["grad_x = u @ w", "grad_w = u.mT @ x"]


def test_what_one_body_is_given_is_never_overwritten():
    """rstd is saved for first order, and computed again otherwise."""
    first = body("a = f(x)", "grad_x = a*rstd*rstd")
    later = body("rstd = g(x)", "b = h(x)", "grad_x = rstd*b*b", kept="rstd")
    made = merge_bodies(first, later, ["grad_x"], ["x"])
    assert texts(made[0].first)[0] == "a = f(x)"
    follows(first, later, made, ["grad_x"])


def test_a_line_that_other_gradients_need_is_not_shared():
    first = body("a = f(x)", "grad_x = a*a")
    later = (replace(first[0], needs=("x", "w")), first[1])
    assert shared(merge_bodies(first, later, ["grad_x"], ["x"])) == ["grad_x = a * a"]


def test_a_name_of_an_equation_is_taken_over():
    first = body("mu = x.mean(1)", "grad_x = x - mu", kept="mu")
    later = body("mean = x.mean(1)", "grad_x = x - mean")
    assert shared(merge_bodies(first, later, ["grad_x"], ["x"])) == [
        "mu = x.mean(1)",
        "grad_x = x - mu",
    ]


IN_PLACE = (
    body("t = x*x", "u = t.mul_(y)", "grad_x = u.neg_()"),
    body("t = x*x", "u = y*t", "w = t + 1", "grad_x = w*u - u*t - 2*u"),
)


def test_a_line_in_place_is_shared_where_it_writes_in_first_order_alone():
    made = merge_bodies(*IN_PLACE, ["grad_x"], ["x", "y"])
    assert shared(made) == ["t = x * x", "u = reuse.mul(t, y)"]
    follows(*IN_PLACE, made, ["grad_x"])


@each_row(
    "one, two, both",
    [
        ("a.addcmul_(b, c)", "a + b*c", "reuse.addcmul(a, b, c)"),
        ("a.addcmul_(b, c)", "b*c + a", "reuse.addcmul(a, b, c)"),
        ("a.addcmul_(b, c, value=-1)", "a - b*c", "reuse.addcmul(a, b, c, value=-1)"),
        ("torch.addcmul(a, b, c)", "a + b*c", "torch.addcmul(a, b, c)"),
        ("a.addcmul_(b, c, value=-1)", "b*c - a", ""),
        ("a.addcmul_(b, c)", "a - b*c", ""),
    ],
)
def test_a_product_is_added_in_one_call_in_both(one, two, both):
    made = merge_bodies(body(f"grad_x = {one}"), body(f"grad_x = {two}"), ["grad_x"], ["x"])
    assert shared(made) == ([f"grad_x = {both}"] if both else [])


class InPlace:
    def __getattr__(self, name: str) -> Any:
        return getattr(torch.Tensor, f"{name}_")


@pytest.mark.parametrize("order", ["first", "later"])
def test_no_line_reads_what_another_has_overwritten(order):
    """In any order nothing is overwritten, and the tensor may be read later."""
    made = merge_bodies(*IN_PLACE, ["grad_x"], ["x", "y"])
    names = {"x": torch.arange(1.0, 4), "y": torch.arange(2.0, 5)}
    whole: dict[str, Any] = {**names, "reuse": InPlace() if order == "first" else torch.ops.aten}
    for s in made:
        exec("\n".join(texts(s.shared or getattr(s, order))), whole)
    alone: dict[str, Any] = {"x": torch.arange(1.0, 4), "y": torch.arange(2.0, 5)}
    exec("\n".join(texts(IN_PLACE[order == "later"])), alone)
    assert torch.equal(whole["grad_x"], alone["grad_x"])
    assert torch.equal(whole["x"], alone["x"])
    assert torch.equal(whole["y"], alone["y"])


def follows(first: Body, later: Body, made: list[Segment], results: list[str]) -> None:
    """Either order runs its own lines, under other names for what is local to it."""
    runs = [x for s in made for x in s.first], [x for s in made for x in s.later]
    for own, run in zip((first, later), runs, strict=True):
        names = dict(zip((x.name for x in own), (x.name for x in run), strict=True))
        given = {n for x in own for n in names_in(x.code)} - set(names)
        new: dict[Code, Code] = {Name(a): Name(b) for a, b in names.items()}
        assert [(names[x.name], replaced(x.code, new), x.needs) for x in own] == [
            (x.name, x.code, x.needs) for x in run
        ]
        assert len({*names.values(), *given}) == len(names) + len(given)
        assert all(names.get(name, name) == name for name in results)
    for s in made:
        for one, two, line in zip(s.first, s.later, s.shared or (), strict=False):
            assert line.name == one.name == two.name
            assert line.code is decided(one.code)
            assert undone(line.code) is undone(two.code)


def decided(code: Code) -> Code:
    """Each operation in place, where it may be."""
    made = code.map(decided)
    added = isinstance(code, MethodCall) and code.name == "addcmul_"
    return where_allowed(made) if added or in_place_operation(code) is not None else made


def undone(code: Code) -> Code:
    """No operation in place, and the operands of sums and products in the order of their text."""
    made = code.map(undone)
    match made:
        case FunctionCall("reuse.addcmul" | "torch.addcmul", (x, a, b, *how)):
            made = undone(Binary("-" if how else "+", x, undone(Binary("*", a, b))))
        case MethodCall(x, "addcmul_", (a, b, *how)):
            made = undone(Binary("-" if how else "+", x, undone(Binary("*", a, b))))
        case FunctionCall(name, (x, *rest)) if name.startswith("reuse."):
            made = in_place_operation(MethodCall(x, f"{name.removeprefix('reuse.')}_", tuple(rest)))
            assert made is not None
    if isinstance(made, Binary) and made.op in "+*":
        return Binary(made.op, *sorted((made.left, made.right), key=text))
    return made


@pytest.mark.parametrize(
    "name",
    "lstm_cell graph_attention cdist linear_attention layer_norm mmd multi_head_attention "
    "rms_norm".split(),
)
def test_either_order_runs_its_own_lines(name):
    op = catalog.find(name)
    program = specialized(op, None)
    orders = program.first_order, program.backward
    first, later = (gradients_apart(program, lines) for lines in orders)
    results = list(program.gradients.values())
    taken = [t.name for t in op.inputs]
    follows(first, later, merge_bodies(first, later, results, taken), results)

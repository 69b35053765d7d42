"""The order of a backward's lines, and the conditions under which they are computed."""

import ast
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import derive
from derive.api import source
from derive.program.cse import Line
from derive.program.dataflow import live_in
from derive.program.gradient_predication import (
    conditions,
    fill_output_masks,
    ordered,
    wanted,
    with_needs,
)
from derive.program.torch_ir import (
    Binary,
    FunctionCall,
    MethodCall,
    Name,
    Subscript,
    literal,
    names_in,
    text,
)

CHECKED = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def line(name: str, *read: str) -> Line:
    return Line(name, FunctionCall("f", tuple(map(Name, read))))


def needs_of(lines: list[Line], gradients: dict[str, str]) -> list[tuple[str, ...]]:
    return [x.needs for x in with_needs(lines, gradients)]


LINES = [
    line("a", "x"),
    line("u", "a", "G"),
    line("gx", "u"),
    line("gw", "u", "a"),
    line("gb", "G"),
]
GRADIENTS = {"x": "gx", "w": "gw", "b": "gb"}


def test_a_line_is_needed_by_the_gradients_that_it_leads_to():
    assert needs_of(LINES, GRADIENTS) == [("x", "w"), ("x", "w"), ("x",), ("w",), ("b",)]


def test_a_gradient_that_others_read_is_needed_by_them_too():
    lines = [line("gx", "G"), line("gw", "gx")]
    assert needs_of(lines, {"x": "gx", "w": "gw"}) == [("x", "w"), ("w",)]


def test_lines_for_the_same_gradients_come_together():
    lines = [line("gb", "G"), line("a", "x"), line("gx", "a"), line("c", "x"), line("gw", "c", "a")]
    made = ordered(with_needs(lines, GRADIENTS))
    assert [x.name for x in made] == ["a", "gb", "gx", "c", "gw"]


def test_a_line_stays_behind_what_it_reads_and_before_what_writes_that_anew():
    lines = [line("y", "x"), line("gx", "y"), line("y", "y", "w"), line("gw", "y")]
    made = ordered(with_needs(lines, {"w": "gw", "x": "gx"}))
    assert [x.name for x in made] == ["y", "gx", "y", "gw"]


@st.composite
def programs(draw: Any) -> tuple[list[Line], dict[str, str]]:
    """Statements in an order in which they can run, and the gradients among them."""
    names = ["x", "G"]
    lines = []
    for n in range(draw(st.integers(3, 14))):
        read = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        # Now and then a name is written anew.
        name = draw(st.sampled_from([f"t{n}", f"t{n}", f"t{n}", names[-1]]))
        lines.append(line(name, *read))
        names.append(name)
    last = {x.name: n for n, x in enumerate(lines)}
    made = draw(st.lists(st.sampled_from(sorted(last)), min_size=1, max_size=8, unique=True))
    gradients = {f"i{n}": name for n, name in enumerate(made)}
    # A line that leads to no gradient is not written.
    return [x for x in with_needs(lines, gradients) if x.needs], gradients


def values(lines: list[Line]) -> dict[str, str]:
    """What each name stands for in the end, as a term."""
    known: dict[str, str] = {}
    for x in lines:
        inside = ",".join(known.get(name, name) for name in names_in(x.code))
        known[x.name] = f"({inside})"
    return known


@given(programs())
@CHECKED
def test_another_order_computes_the_same(program):
    lines, gradients = program
    made = ordered(with_needs(lines, gradients))
    assert sorted(x.name for x in made) == sorted(x.name for x in lines)
    before, after = values(lines), values(made)
    assert all(before[name] == after[name] for name in gradients.values())


@given(programs())
@CHECKED
def test_lines_with_the_same_condition_are_one_block(program):
    lines, gradients = program
    distinct = len({x.name for x in lines}) == len(lines)
    made = needs_of(ordered(with_needs(lines, gradients)), gradients)
    blocks = [n for at, n in enumerate(made) if at == 0 or made[at - 1] != n]
    assert not distinct or len(set(blocks)) == len(blocks)


def evaluated(text: str, known: dict[str, Any]) -> Any:
    """A condition: names, ``a or b``, ``a[0]`` and ``ctx.needs_input_grad``."""

    def value(e: ast.expr) -> Any:
        match e:
            case ast.BoolOp(ast.Or(), parts):
                return any([value(part) for part in parts])
            case ast.Subscript(inner, ast.Constant(n)):
                return value(inner)[n]
            case ast.Attribute(ast.Name("ctx"), name):
                return known[name]
            case ast.Name(name):
                return known[name]
        raise AssertionError(ast.dump(e))

    return value(ast.parse(text, mode="eval").body)


@given(programs(), st.randoms(use_true_random=False))
@CHECKED
def test_a_condition_holds_where_one_of_the_gradients_is_wanted(program, random):
    lines, gradients = program
    lines = with_needs(ordered(with_needs(lines, gradients)), gradients)
    places = {tensor: n + 3 for n, tensor in enumerate(gradients)}
    asked = conditions(lines, gradients, places, set())
    wanted = {n: random.random() < 0.3 for n in places.values()}
    known: dict[str, Any] = {"needs_input_grad": wanted}
    for name, alternatives in asked.names:
        assert name not in known
        known[name] = evaluated(" or ".join(alternatives), known)
    for of in {x.needs for x in lines}:
        expected = any(wanted[places[tensor]] for tensor in of)
        alternatives = asked.of[of]
        if len(of) == len(gradients):
            assert alternatives == ()
        else:
            assert evaluated(" or ".join(alternatives), known) == expected


def chain(depth: int) -> tuple[list[Line], dict[str, str]]:
    """g1 = f(G); w1 = f(g1); g2 = f(g1); w2 = f(g2) ..."""
    lines, before = [], "G"
    for n in range(1, depth + 1):
        lines += [line(f"g{n}", before), line(f"w{n}", f"g{n}")]
        before = f"g{n}"
    return lines, {f"v{n}": f"w{n}" for n in range(1, depth + 1)}


def of_chain(depth: int, taken: set[str]) -> Any:
    lines, gradients = chain(depth)
    places = {tensor: n for n, tensor in enumerate(gradients)}
    return conditions(with_needs(lines, gradients), gradients, places, taken)


@pytest.mark.parametrize(("depth", "needs"), [(3, "ctx.needs_input_grad"), (4, "needs")])
def test_few_alternatives_are_written_out(depth, needs):
    asked = of_chain(depth, set())
    assert asked.names == ((("needs", ("ctx.needs_input_grad",)),) if needs == "needs" else ())
    names = [f"v{n}" for n in range(1, depth + 1)]
    asks = [f"{needs}[{n}]" for n in range(depth)]
    assert asked.of[tuple(names[1:])] == tuple(asks[1:])
    assert asked.of[tuple(names[-1:])] == tuple(asks[-1:])
    assert asked.of[tuple(names)] == ()


def test_many_alternatives_have_names_made_from_one_another():
    asked = of_chain(5, set())
    assert asked.names == (
        ("needs", ("ctx.needs_input_grad",)),
        ("needs_g4", ("needs[3]", "needs[4]")),
        ("needs_g3", ("needs_g4", "needs[2]")),
        ("needs_g2", ("needs_g3", "needs[1]")),
    )
    assert asked.of[("v3", "v4", "v5")] == ("needs_g3",)
    assert asked.of[("v5",)] == ("needs[4]",)


def test_a_name_that_means_something_else_is_left_alone():
    asked = of_chain(5, {"needs", "needs_g3", "needs_g32"})
    assert [name for name, _ in asked.names] == ["needs2", "needs_g4", "needs_g33", "needs_g2"]
    assert asked.of[("v5",)] == ("needs2[4]",)


@pytest.mark.parametrize("depth", [10, 40])
def test_what_is_asked_is_linear_in_the_number_of_inputs(depth):
    asked = of_chain(depth, set())
    assert sum(len(alternatives) for _, alternatives in asked.names) <= 2 * depth
    assert all(len(alternatives) <= 1 for alternatives in asked.of.values())


TWO_LAYERS = """
op network({}[n,i], needs_grad_a[i,j], b[j], V[j,k], c[k]) -> y
a[n,j] = sum[i]({}[n,i]*needs_grad_a[i,j]) + b[j]
h[n,j] = tanh(a[n,j])
y[n,k] = sum[j](h[n,j]*V[j,k]) + c[k]
"""


@pytest.mark.parametrize(("x", "asked"), [("x", "needs"), ("needs", "needs2")])
def test_inputs_may_have_the_names_of_conditions(x, asked):
    text = source(derive.parse(TWO_LAYERS.format(x, x)))
    assert f"        {asked} = ctx.needs_input_grad\n" in text
    assert f"        needs_grad_a2 = needs_low_grad_a or {asked}[2]\n" in text
    assert f"        needs_h = needs_grad_a2 or {asked}[3]\n" in text
    assert re.search(r"\n( +)if needs_grad_a2:\n(?:\1    .*\n)*\1    grad_a = ", text)
    assert f"        if {asked}[4]:\n            grad_c = " in text


def test_three_inputs_are_asked_for_as_torch_has_it():
    text = source(
        derive.parse(
            "op linear(x[n,i], W[i,j], b[j]) -> y\ny[n,j] = tanh(sum[i](x[n,i]*W[i,j]) + b[j])"
        )
    )
    assert "if ctx.needs_input_grad[0]:" in text
    assert "needs =" not in text
    assert "grad_x = grad_W = grad_b = None" in text


def test_the_names_of_a_line_are_found_in_deep_code():
    code: Any = Name("x")
    for _ in range(5000):
        code = Binary("+", code, MethodCall(Name("y"), "exp"))
    assert set(names_in(code)) == {"x", "y"}


def test_a_softmax_beside_a_log_softmax_is_its_exponential():
    both = (
        "op f(x[i,j]) -> y\n"
        "l[i,j] = log_softmax[j](x[i,j])\np[i,j] = softmax[j](x[i,j])\n"
        "y[i] = -sum[j](p[i,j]*l[i,j])"
    )
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    want = -(torch.softmax(x, 1) * torch.log_softmax(x, 1)).sum(1)
    torch.testing.assert_close(derive.load(derive.parse(both))(x), want)


def test_what_is_read_before_it_is_made():
    a, b, c = map(Name, "abc")
    lines = [
        Line("b", Binary("*", a, a)),
        Line("a", Binary("+", a, b)),
        Line("d", Binary("*", b, c)),
    ]
    assert live_in(lines) == {"a", "c"}


CALL = FunctionCall("_kernel", (Name("x"), wanted(3)))
PLACES = {"a": 0, "b": 1, "c": 2, "d": 4}


def part(n):
    return Subscript(Name("parts"), (literal(n),))


def lines(*reads):
    needs = tuple(dict.fromkeys(t for _, own in reads for t in own))
    own = [Line(f"g{n}", part(n), needs=needs) for n, needs in reads]
    made = fill_output_masks([Line("parts", CALL, needs=needs), *own], PLACES)
    return text(made[0].code)


def test_each_result_is_computed_where_its_gradient_is_asked_for():
    found = lines((0, ("a",)), (1, ("b",)), (2, ("c",)))
    assert found == "_kernel(x, ctx.needs_input_grad[:3])"
    found = lines((0, ("b",)), (1, ("a",)), (2, ("d",)))
    inside = ", ".join(f"ctx.needs_input_grad[{n}]" for n in (1, 0, 4))
    assert found == f"_kernel(x, ({inside}))"


def test_what_nothing_reads_is_not_computed():
    assert lines((0, ("a",))) == "_kernel(x, (True, False, False))"


def test_what_leads_to_several_gradients_is_computed_for_any():
    found = lines((0, ("a", "b")), (1, ("b",)))
    assert found == "_kernel(x, (True, ctx.needs_input_grad[1], False))"


def test_a_call_that_has_no_name_is_told_too():
    line = Line("g", Subscript(CALL, (literal(1),)), needs=("a",))
    (made,) = fill_output_masks([line], PLACES)
    assert text(made.code) == "_kernel(x, (False, True, False))[1]"

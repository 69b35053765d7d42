"""Calls with several results compute what is asked for."""

from __future__ import annotations

from derive.program.cse import Line
from derive.program.output_masks import fill_output_masks, wanted
from derive.program.torch_ir import FunctionCall, Name, Subscript, literal, text

CALL = FunctionCall("_kernel", (Name("x"), wanted(3)))
PLACES = {"a": 0, "b": 1, "c": 2, "d": 4}


def part(n):
    return Subscript(Name("parts"), (literal(n),))


def lines(*reads):
    needs = tuple(dict.fromkeys(t for _, own in reads for t in own))
    own = [(Line(f"g{n}", part(n)), needs) for n, needs in reads]
    made = fill_output_masks([(Line("parts", CALL), needs), *own], PLACES)
    return text(made[0][0].code)


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
    line = Line("g", Subscript(CALL, (literal(1),)))
    ((made, _),) = fill_output_masks([(line, ("a",))], PLACES)
    assert text(made.code) == "_kernel(x, (False, True, False))[1]"

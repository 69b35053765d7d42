"""A choice is as many operations as it has options."""

from __future__ import annotations

from derive import parse
from derive.notation.operation import options, without_choice

OP = parse("""
op f(x[n], w[n]; reduction=mean|sum) -> mean: m | sum: s
l[n] = x[n]*w[n]
m = mean[n](l[n])
s = sum[n](l[n])
""")


def test_each_option_has_the_equations_that_lead_to_its_output():
    found = {option: [e.name for e in op.equations] for option, op in options(OP)}
    assert found == {"mean": ["l", "m"], "sum": ["l", "s"]}


def test_an_operation_without_a_choice_is_its_only_option():
    ((option, op),) = options(parse("y[n] = x[n]**2"))
    assert option is None
    assert [e.name for e in op.equations] == ["y"]


def test_what_is_left_of_a_choice_is_none():
    op = without_choice(OP, "sum")
    assert op.parameters == ()
    assert op.outputs == ("s",)

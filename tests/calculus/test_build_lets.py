"""The equations of an operation as lets: in order, with those that the engine makes."""

from __future__ import annotations

import pytest

from derive import parse
from derive.calculus.build_lets import flatten_operation


def lets(text):
    return [(let.name, let.kind, let.internal) for let in flatten_operation(parse(text))]


def test_each_equation_is_a_let_in_its_order():
    found = lets("op f(x[i], w[i]) -> y\nh[i] = x[i]*w[i]\ny = sum[i](h[i])")
    assert found == [("h", "sum", False), ("y", "sum", False)]


def test_an_equation_that_is_a_logsumexp_is_one():
    found = lets("op f(x[i,j]) -> y\ny[i] = log(sum[j](exp(x[i,j])))")
    assert found == [("y", "logsumexp", False)]


def test_what_the_engine_names_stands_before_what_reads_it():
    found = lets("op f(x[i,j], z[i]) -> y\ny[i] = z[i]*max[j](x[i,j])")
    assert found == [("top", "max", True), ("y", "sum", False)]


def test_a_rewritten_equation_has_a_step_that_names_the_identity():
    made = flatten_operation(parse("op f(x[i,j]) -> y\ny[i,j] = exp(x[i,j])/sum[k](exp(x[i,k]))"))
    assert [step.rule for step in made.steps] == ["stable form"]
    assert made.steps[0].subject[0] == "y"


@pytest.mark.parametrize("text", ["op f(x[(t d)]; size(t)=2) -> y\ny[(t d)] = x[(t d)]**2"])
def test_composite_axes_are_split_before(text):
    with pytest.raises(Exception, match="an axis that is not a plain index"):
        flatten_operation(parse(text))

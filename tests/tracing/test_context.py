"""What the reading of an operation is given: the context, and expressions by operators."""

from types import SimpleNamespace

import pytest
import torch

from derive.tracing.context import OPERATIONS, Context, operation
from derive.tracing.graph import trace_graph
from derive.tracing.values import (
    Atom,
    Position,
    TracedApply,
    TracedNumber,
    TracedRead,
    TracedValue,
    apply,
)


@pytest.fixture
def context():
    return Context(trace_graph(torch.exp, {"input": torch.ones(3)}), {}, {"f"})


def test_what_is_current_is_so_for_a_while(context):
    context.node, context.lengths["s"] = "outer", [(3, None), (4, None)]
    size = SimpleNamespace(node=SimpleNamespace(expr="s"))
    outer = SimpleNamespace(meta={"val": SimpleNamespace(shape=[size])})
    with pytest.raises(KeyError), context.at_node("inner", None), context.in_piece(1):
        assert context.node == "inner" and context.shape(outer) == [4]
        raise KeyError
    assert context.node == "outer" and context.shape(outer) == [3]


def test_a_value_is_one_equation_however_often_it_is_named(context):
    a, b = Atom.new(3), Atom.new(3)
    one, other = (
        TracedValue(((i,),), apply("exp", TracedRead("x", (Position(i),)))) for i in (a, b)
    )
    first, second = context.named(one, "h"), context.named(other, "k")
    assert [e.name for e in context.equations] == ["h"]
    assert first.node.name == second.node.name == "h" and first.atoms != second.atoms


def test_a_name_is_given_once(context):
    assert [context.fresh("h"), context.fresh("h"), context.fresh("f")] == ["h", "h2", "f2"]


def test_an_operation_has_one_reading(monkeypatch):
    monkeypatch.setitem(OPERATIONS, "f", abs)
    with pytest.raises(AssertionError):
        operation("g", "f")(len)
    assert "g" not in OPERATIONS and OPERATIONS["f"] is abs


def test_operators_make_expressions():
    i, two = Position(Atom.new(3)), TracedNumber(2)
    assert 2 * i - 2 == TracedApply("-", (TracedApply("*", (two, i)), two))
    assert i * 2 == apply("*", i, 2) != 2 * i
    assert -(2 / i) == apply("neg", apply("/", two, i))
    assert (i < 2) & (i >= 2) == apply("and", apply("<", i, 2), apply(">=", i, 2))

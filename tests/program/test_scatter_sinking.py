"""What is added at positions stands where it is read."""

from __future__ import annotations

import pytest

from derive.program.cse import Line
from derive.program.scatter_sinking import scatter_parts, sink_scatters, with_adding
from derive.program.torch_ir import Binary, FunctionCall, MethodCall, Name, literal, text

x, y, n, v = map(Name, "xynv")
METHOD = MethodCall(x, "scatter_add", (literal(1), n, v))
FUNCTION = FunctionCall("_scatter_added", (x, literal(1), n, v))


@pytest.mark.parametrize("code", [METHOD, FUNCTION], ids=text)
def test_target_and_source(code):
    assert scatter_parts(code) == (x, v)
    assert scatter_parts(with_adding(code, y, x)) == (y, x)
    assert scatter_parts(Binary("+", x, v)) is None


def test_it_stands_before_the_line_that_reads_it():
    placed = Line("placed", METHOD, kept=False), ("a",)
    other = Line("u", Binary("*", y, v)), ("a",)
    reader = Line("grad_a", Binary("-", Name("u"), Name("placed"))), ("a",)
    assert sink_scatters([placed, other, reader]) == [other, placed, reader]
    rebound = Line("v", Binary("*", y, y)), ("a",)
    assert sink_scatters([placed, rebound, reader]) == [placed, rebound, reader]

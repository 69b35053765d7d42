"""What may be an error is computed only where its branch is taken."""

from __future__ import annotations

from derive.program.sinking import is_lazy, is_put_off, may_fail, under_own_tests
from derive.program.torch_ir import Binary, Conditional, FunctionCall, Literal, MethodCall, Name

p, x, T = Name("p"), Name("x"), Name("T")
positive = Binary(">", p, Literal("0"))
log = FunctionCall("math.log", (p,))


def test_a_read_at_a_position_may_fail():
    assert may_fail(MethodCall(x, "index_select", (Literal("0"), T)), set())
    assert not may_fail(Binary("*", log, x), set())
    assert not may_fail(MethodCall(x, "exp"), set())
    assert may_fail(Binary("+", x, T), {"T"})


def test_what_is_none_elsewhere_is_lazy():
    assert is_lazy(Conditional(positive, log, Literal("None")))
    assert not is_lazy(Conditional(positive, log, Literal("0")))


def test_what_sums_is_put_off_where_a_branch_alone_reads_it():
    total = MethodCall(x, "sum", (Literal("1"),))
    assert is_put_off(total, set()) and is_put_off(Binary("@", x, T), set())
    assert not is_put_off(Binary("*", x, p), set())
    chosen = Conditional(positive, Binary("*", p, total), Literal("0"))
    assert under_own_tests([chosen], total, set()) == Conditional(positive, total, Literal("None"))
    assert under_own_tests([chosen, total], total, set()) is total

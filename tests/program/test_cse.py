"""Tidied statements: the same values, repeats named once, no statement over many lines."""

from functools import reduce
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from derive.memory import imported
from derive.program import torch_printer
from derive.program.constant_folding import asked_once
from derive.program.cse import (
    VALUE,
    Line,
    cut,
    is_lazy,
    is_put_off,
    may_fail,
    named_once,
    tidy,
    under_own_tests,
)
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Subscript,
    Unary,
    literal,
    names_in,
    occurrences,
    subexpressions,
    text,
)
from derive.program.torch_printer import COLUMNS, is_long

X, Y, FLAG = Name("x"), Name("y"), Name("flag")
TAKEN = {"x", "y", "flag"}
INPUTS = """\
import torch
x = torch.linspace(0.1, 1.2, 12, dtype=torch.float64).reshape(3, 4)
y = torch.linspace(2.0, 0.3, 12, dtype=torch.float64).reshape(3, 4)
flag = True
"""


def written(lines: Any) -> str:
    return "".join(f"{line.name} = {text(line.code)}\n" for line in lines)


def run(lines: Any) -> dict[str, Any]:
    return vars(imported("statements", INPUTS + written(lines)))


def exp(code: Code) -> Code:
    return MethodCall(code, "exp")


def total(code: Code) -> Code:
    return MethodCall(code, "sum", (literal(1), Keyword("keepdim", Literal("True"))))


def assert_same(before: Any, after: Any) -> None:
    one, other = run(before), run(after)
    for line in before:
        if line.kept:
            torch.testing.assert_close(other[line.name], one[line.name], rtol=0, atol=0)


def test_what_is_computed_twice_is_named_once():
    lines = [Line("a", Binary("+", total(exp(X)), Y)), Line("b", Binary("*", total(exp(X)), Y))]
    made = tidy(lines, TAKEN)
    assert_same(lines, made)
    assert written(made) == (
        f"{VALUE} = x.exp().sum(1, keepdim=True)\na = {VALUE} + y\nb = {VALUE} * y\n"
    )


def test_what_stands_in_code_is_met_once_and_counted_each_time():
    twice = Binary("*", exp(X), exp(X))
    code = Binary("+", MethodCall(twice, "sum"), exp(X))
    assert list(subexpressions(code)) == [code, code.left, twice, exp(X), X]
    assert occurrences(code) == {code: 1, code.left: 1, twice: 1, exp(X): 3, X: 3}


def test_a_repeat_of_a_statement_reads_its_name():
    lines = [Line("a", exp(X)), Line("b", Binary("*", exp(X), Y))]
    made = tidy(lines, TAKEN)
    assert written(made) == "a = x.exp()\nb = a * y\n"
    assert_same(lines, made)


def test_a_statement_moves_before_its_first_reader():
    lines = [Line("b", Binary("*", exp(X), Y)), Line("a", exp(X))]
    made = tidy(lines, TAKEN)
    assert written(made) == "a = x.exp()\nb = a * y\n"
    assert_same(lines, made)


def test_a_statement_that_assigns_to_what_it_reads_stays_behind_its_other_readers():
    again = Binary("*", Name("a"), Y)
    lines = [Line("a", exp(X)), Line("b", exp(again)), Line("c", exp(Name("a"))), Line("a", again)]
    made = tidy(lines, TAKEN)
    assert [line.name for line in made][-1] == "a"
    assert_same(lines, made)


def test_the_larger_repeat_goes_first():
    lines = [Line(name, Binary(op, total(exp(X)), exp(X))) for name, op in (("a", "+"), ("b", "-"))]
    made = tidy(lines, TAKEN)
    assert_same(lines, made)
    assert written(made).count("exp()") == 1
    assert written(made).count("sum(") == 1


def test_a_name_that_serves_once_is_inlined_unless_it_is_the_readers():
    lines = [Line("part", exp(X), kept=False), Line("a", Binary("+", Name("part"), Y))]
    assert written(tidy(lines, TAKEN)) == "a = x.exp() + y\n"
    kept = [Line("part", exp(X)), lines[1]]
    assert tidy(kept, TAKEN) == kept


def test_a_name_that_serves_twice_stays():
    lines = [
        Line("part", exp(X), kept=False),
        Line("a", Binary("+", Name("part"), Y)),
        Line("b", Binary("-", Name("part"), Y)),
    ]
    assert tidy(lines, TAKEN) == lines


def test_numbers_shapes_and_views_are_written_again():
    size = Subscript(Attribute(X, "shape"), (literal(0),))
    view = MethodCall(X, "unsqueeze", (literal(0),))
    lines = [Line("a", Binary("*", view, size)), Line("b", Binary("+", view, size))]
    assert tidy(lines, TAKEN) == lines


def test_both_parts_of_a_maximum_share_it():
    call = MethodCall(Binary("*", X, Y), "max", (literal(1),))
    lines = [Line("a", Attribute(call, "values")), Line("b", Attribute(call, "indices"))]
    made = tidy(lines, TAKEN)
    assert_same(lines, made)
    assert written(made).count(".max(") == 1


def test_a_long_line_is_cut():
    code: Code = X
    for n in range(1, 12):
        code = Binary("+", Binary("*", exp(code), literal(n)), Binary("*", Y, literal(n)))
        code = FunctionCall("torch.tanh", (code,))
    lines = [Line("a", code)]
    made = tidy(lines, TAKEN)
    assert len(made) > 1
    assert not any(is_long(f"{line.name} = ", line.code) for line in made)
    assert len({line.name for line in made}) == len(made)
    assert_same(lines, made)


def test_what_cannot_be_cut_stays():
    names = [Name(f"a_name_of_many_letters_{n}") for n in range(9)]
    lines = [Line("a", FunctionCall("torch.stack", tuple(names)))]
    assert is_long("a = ", lines[0].code)
    assert cut(lines, set(TAKEN)) == lines


def test_no_line_is_cut_that_a_printer_can_break():
    long = Binary("+", Name("a_name_of_many_letters"), exp(Name("another_name_of_many_letters")))
    lines = [Line("a", Binary("*", long, exp(Name("and_a_last_name_of_many_letters"))))]
    assert len(written(lines)) > COLUMNS
    assert cut(lines, set(TAKEN)) == lines


def test_a_chain_is_cut_at_an_operand():
    terms = [
        MethodCall(Name(f"a_name_of_letters_{n}"), "exp", (Name("letters"),)) for n in range(6)
    ]
    lines = [Line("a", reduce(lambda a, b: Binary("+", a, b), terms))]
    first, *_ = cut(lines, set(TAKEN))
    assert first.code in terms


def test_new_names_avoid_those_taken():
    lines = [Line("a", Binary("+", total(X), Y)), Line("b", Binary("*", total(X), Y))]
    made = tidy(lines, {*TAKEN, VALUE})
    assert [line.name for line in made] == [f"{VALUE}2", "a", "b"]
    assert_same(lines, made)


def test_new_names_are_numbered_as_they_appear():
    lines = [
        Line("a", Binary("+", total(X), total(Y))),
        Line("b", Binary("*", total(X), total(Y))),
        Line("c", Binary("-", total(exp(X)), Y)),
        Line("d", Binary("/", total(exp(X)), Y)),
    ]
    made = tidy(lines, TAKEN)
    assert_same(lines, made)
    assert [line.name for line in made] == [VALUE, f"{VALUE}2", "a", "b", f"{VALUE}3", "c", "d"]


@st.composite
def codes(draw: Any, names: tuple[str, ...], depth: int) -> Code:
    if not depth:
        return Name(draw(st.sampled_from(names)))
    one, two = codes(names, depth - 1), codes(names, depth - 1)
    kind = draw(st.sampled_from(["name", "binary", "binary", "method", "sum", "where", "if"]))
    if kind == "name":
        return Name(draw(st.sampled_from(names)))
    if kind == "binary":
        return Binary(draw(st.sampled_from("+-*")), draw(one), draw(two))
    if kind == "method":
        return MethodCall(draw(one), draw(st.sampled_from(["sin", "cos", "tanh"])))
    if kind == "sum":
        return total(draw(one))
    if kind == "where":
        test = Binary("<", draw(one), draw(two))
        return FunctionCall("torch.where", (test, draw(two), Unary("-", draw(one))))
    return Conditional(FLAG, draw(one), draw(two))


@st.composite
def statements(draw: Any) -> list[Line]:
    """Each statement reads the inputs and the statements before it."""
    lines: list[Line] = []
    for n in range(draw(st.integers(1, 5))):
        names = ("x", "y", *(line.name for line in lines))
        kept = draw(st.booleans())
        lines.append(Line(f"v{n}", draw(codes(names, draw(st.integers(1, 4)))), kept))
    return [*lines[:-1], Line(lines[-1].name, lines[-1].code)]


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(statements(), st.sampled_from([30, 50, 88]))
def test_tidying_keeps_every_value(lines, columns):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_printer, "COLUMNS", columns)
        made = tidy(lines, TAKEN)
    assert_same(lines, made)
    assert {line.name for line in lines if line.kept} <= {line.name for line in made}
    assert len({line.name for line in made}) == len(made)


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(statements())
def test_nothing_is_read_before_it_is_made(lines):
    made = tidy(lines, TAKEN)
    known = set(TAKEN)
    for line in made:
        assert {n for n in names_in(line.code) if not n.startswith("torch")} <= known
        known.add(line.name)


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(statements())
def test_tidying_is_the_same_every_time(lines):
    assume(len(lines) > 1)
    assert tidy(lines, TAKEN) == tidy(lines, TAKEN)


def test_no_question_is_asked_again_where_its_answer_is_known():
    inner = Conditional(FLAG, exp(X), X)
    again = Conditional(FLAG, total(inner), total(Conditional(FLAG, X, exp(Y))))
    assert asked_once(again) == Conditional(FLAG, total(exp(X)), total(exp(Y)))
    # A question that holds another is the same question wherever it is asked.
    filled = Conditional(MethodCall(inner, "numel"), inner, X)
    known = Conditional(FLAG, filled, X)
    one = Conditional(MethodCall(exp(X), "numel"), exp(X), X)
    assert asked_once(known) == Conditional(FLAG, one, X)
    # That not both hold says of neither that it does not.
    both = Binary("and", FLAG, Name("other"))
    assert asked_once(Conditional(both, inner, inner)) == Conditional(both, exp(X), inner)


def test_what_has_a_name_gets_no_other():
    lines = [
        Line("a", exp(X), kept=False),
        Line("b", exp(X), kept=False),
        Line("c", Binary("+", Binary("*", Name("a"), Name("b")), Name("b"))),
        Line("d", Binary("*", Name("a"), Name("a"))),
    ]
    made = tidy(lines, set(TAKEN))
    assert [line.name for line in made] == ["a", "c", "d"]
    assert_same(lines, made)


def test_two_lines_that_cut_the_same_out_share_it():
    wide = MethodCall(X, "expand", (Literal("3"), Literal("4")))
    other = MethodCall(MethodCall(X, "exp"), "gather", (Literal("1"), wide))
    lines = tidy([Line("a", exp(total(wide))), Line("b", total(other))], TAKEN)
    assert sum(line.code is wide for line in lines) <= 1


def test_a_reduction_with_and_without_its_axis_is_one():
    def reduced(*args):
        return MethodCall(exp(X), "sum", (Literal("0"), *args))

    whole = reduced(Keyword("keepdim", Literal("True")))
    again = MethodCall(reduced(), "unsqueeze", (Literal("0"),))
    lines = [Line("a", Binary("/", X, whole)), Line("b", reduced()), Line("c", exp(again))]
    made = tidy(lines, set(TAKEN))
    assert sum(text(line.code).count(".sum(") for line in made) == 1
    assert_same(lines, made)
    alone = tidy(lines[1:], set(TAKEN))
    assert not any("squeeze(0, " in text(line.code) for line in alone)


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


def test_what_reads_a_name_that_is_assigned_again_is_another_value():
    rows = Subscript(Attribute(X, "shape"), (literal(0),))
    double = Binary("*", literal(2), rows)
    view = MethodCall(X, "unflatten", (literal(0), Y))
    lines = [Line("a", double, kept=False), Line("x", view), Line("b", double, kept=False)]
    assert [line.name for line in named_once(lines)] == ["a", "x", "b"]
    assert [line.name for line in named_once([*lines[::2], lines[1]])] == ["a", "x"]
    other = [Line("a", X, kept=False), Line("x", view), Line("z", Binary("*", Name("a"), X))]
    assert named_once(other) == other


def test_a_name_that_is_assigned_twice_stands_for_nothing_else():
    lines = [Line("r", Binary("+", X, Y)), Line("a", Binary("+", X, Y), kept=False)]
    lines += [Line("r", MethodCall(Name("r"), "flatten", ())), Line("z", Binary("*", Name("a"), Y))]
    assert named_once(lines) == lines

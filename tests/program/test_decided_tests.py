"""A test of parameters that their bounds decide is not made."""

from fractions import Fraction

from kit import texts
from kit.each import each_row
from kit.torch_code import torch_code

from derive import catalog
from derive.module.pretty_printer import statements, with_unset
from derive.program.cse import Line
from derive.program.decided_tests import choices_in_a_row, without_decided_tests
from derive.program.torch_ir import text

ABOVE, FROM, BELOW = ((">", Fraction(0)),), ((">=", Fraction(0)),), (("<", Fraction(1)),)


def made(code, bounds, *before):
    lines = [Line(name, torch_code(c)) for name, c in (*before, ("y", code))]
    found = without_decided_tests(lines, {"p": bounds}, ["y"])
    return [f"{line.name} = {text(line.code)}" for line in found]


@each_row(
    "test, bounds, want",
    [
        ("p > 0", ABOVE, "a"),
        ("0 < p", ABOVE, "a"),
        ("p >= 0", ABOVE, "a"),
        ("p != 0", ABOVE, "a"),
        ("p <= 0", ABOVE, "b"),
        ("p == 0", ABOVE, "b"),
        ("not p > 0", ABOVE, "b"),
        ("p > 1", ABOVE, None),
        ("p > -1", FROM, "a"),
        ("p >= 0", FROM, "a"),
        ("p > 0", FROM, None),
        ("p != 0", FROM, None),
        ("p < 1", BELOW, "a"),
        ("p < 2", BELOW, "a"),
        ("p >= 1", BELOW, "b"),
        ("p < 0", BELOW, None),
        ("q > 0", ABOVE, None),
    ],
)
def test_a_choice_is_its_branch(test, bounds, want):
    code = f"a if {test} else b"
    assert made(code, bounds) == [f"y = {want or code}"]


def test_a_test_with_a_name_is_known_and_what_nothing_reads_is_gone():
    before = ("m", "p > 0"), ("u", "x.exp() if not m else None"), ("v", "x.sin() if m else None")
    assert made("v if m else u", ABOVE, *before) == ["v = x.sin()", "y = v"]
    assert len(made("v if m else u", FROM, *before)) == 4


def test_the_code_has_no_branch_of_calls_that_are_errors():
    body = texts.source(catalog.find("huber_loss")).split("class _HuberLoss(")[1]
    assert "reuse.clamp(e, -ctx.delta, ctx.delta)" in body and "0 <= delta" not in body


@each_row(
    "lines, want",
    [
        ("a = x.exp() if c else x; b = x * y; d = a if c else y", "b a d"),
        ("a = x.exp() if c else x; b = x * y; d = a if not c else y", "b a d"),
        ("a = x.exp() if c else x; b = x * a; d = a if c else y", "a b d"),
        ("a = x.exp() if c else x; x = x * y; d = a if c else y", "a x d"),
        ("a = x if c else y; b = x if w else y; d = a if c else y; e = b if w else y", "a d b e"),
        ("a = x if c else y; b = x if w else y; d = b if c else a", "b a d"),
        ("a = x if c else y; c = x > 0; d = a if c else y", "a c d"),
    ],
)
def test_a_choice_stands_before_the_next_one_by_its_test(lines, want):
    given = [part.split(" = ", 1) for part in lines.split("; ")]
    made = choices_in_a_row([Line(name, torch_code(code)) for name, code in given])
    assert [line.name for line in made] == want.split()


LONG = "torch.tensordot(first_argument, second_argument, ((1,), (0,)), third)"


@each_row(
    "lines, want",
    [
        (
            f"a = {LONG} if c else None; y = a * a if c else x",
            f"if c:|    a = {LONG}|    y = a * a|else:|    y = x",
        ),
        (
            f"a = None if c else {LONG}; y = x if c else a * a",
            f"if c:|    y = x|else:|    a = {LONG}|    y = a * a",
        ),
        (
            "a = x.exp() if c else None; y = a * a if c else x",
            "a = x.exp() if c else None|y = a * a if c else x",
        ),
        (
            f"a = {LONG} if c else None; y = f(a)",
            f"if c:|    a = {LONG}|else:|    a = None|y = f(a)",
        ),
        (
            f"a = {LONG} if c else None; y = x if c else f(a)",
            "if c:|    y = x|else:|    a = None|    y = f(a)",
        ),
    ],
)
def test_what_one_branch_alone_reads_is_computed_there(lines, want):
    given = [part.split(" = ", 1) for part in lines.split("; ")]
    made = with_unset([Line(name, torch_code(code)) for name, code in given], ["y"])
    assert "|".join(statements(made, 8)) == want

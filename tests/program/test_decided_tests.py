"""A test of parameters that their bounds decide is not made."""

from __future__ import annotations

from fractions import Fraction

from kit import texts
from kit.each import each_row
from kit.torch_code import torch_code

from derive import catalog
from derive.program.cse import Line
from derive.program.decided_tests import without_decided_tests
from derive.program.torch_ir import text

ABOVE, FROM, BELOW = ((">", Fraction(0)),), ((">=", Fraction(0)),), (("<", Fraction(1)),)


def made(code, bounds, *before):
    entries = [(Line(name, torch_code(c)), ()) for name, c in (*before, ("y", code))]
    found = without_decided_tests(entries, {"p": bounds}, ["y"])
    return [f"{line.name} = {text(line.code)}" for line, _ in found]


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
    assert "reuse.clamp(e, -delta, delta)" in body and "0 <= delta" not in body

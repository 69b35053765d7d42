"""The pipeline: each pass is pure, and what holds before it holds after it."""

from dataclasses import replace

import pytest
from kit.verifier import faults_of_program, faults_of_types, faults_of_unit

import derive
from derive import catalog
from derive.api import pass_reports
from derive.calculus.unit import Unit
from derive.module.name_mangling import coded
from derive.notation.operation import options
from derive.passes import Pass, run, stages
from derive.pipeline import (
    FORWARD_MODE,
    LOWER,
    PREPARE,
    REVERSE,
    SPECIALIZE,
    Code,
    center_differences,
    program_of,
)
from derive.program.argument_types import tensor_types
from derive.program.torch_ir import FunctionCall, MethodCall
from derive.reports.formula import program_lines, unit_lines

OWN = """
op gated(x[b,(t c)], w[c,o], m[b,t]: bool, s[o]=1; eps=0.5, eps > 0) -> y, z
u[b,t,o] = sum[c](where(m[b,t], log(x[b,(t c)]), 0)*w[c,o])
y[b,o] = logsumexp[t](u[b,t,o]*s[o]) + eps
z[b,t] = max[o](u[b,t,o]) - mean[o](u[b,t,o])
"""
NAMES = [op.name for op in catalog.operations()][::9]


CHOSEN = [
    pytest.param(chosen, id=f"{name} {option or ''}".strip())
    for name in NAMES
    for option, chosen in options(coded(catalog.find(name)).operation)
]


@pytest.mark.parametrize("op", CHOSEN)
@pytest.mark.parametrize("passes", [REVERSE, FORWARD_MODE], ids=["reverse", "forward"])
def test_a_pass_keeps_what_holds_and_changes_no_argument(op, passes):
    unit = Unit.start(op)
    before = unit_lines(unit)
    for step, made in stages(passes, unit):
        assert unit_lines(unit) == before, f"{step.name} changes its argument"
        assert not faults_of_unit(made), step.name
        unit, before = made, unit_lines(made)


@pytest.mark.parametrize("op", CHOSEN)
def test_the_lines_of_a_program_are_closed(op):
    code = Code(run(REVERSE, Unit.start(op)))
    before = unit_lines(code.unit)
    for step, made in stages((*LOWER, *SPECIALIZE), code):
        assert unit_lines(code.unit) == before, f"{step.name} changes its argument"
        if made.made is not None:
            assert not faults_of_program(made.made), step.name
            optional = [t.name for t in op.inputs if t.default is not None]
            optional = optional if step in SPECIALIZE else []
            assert not faults_of_types(made.unit.given, made.made, optional), step.name
            assert program_lines(made.made)
        code, before = made, unit_lines(made.unit)


def test_a_line_has_the_type_of_its_code_in_the_layout_of_the_caller():
    op = derive.parse("op f(x[b,(t c)]; size(t)=4) -> y\ny[b,(t c)] = exp(x[b,(t c)])")
    program = program_of(op, None)
    (line,) = program.forward
    assert line.type == tensor_types(op)["y"]
    assert not faults_of_types(op, program)
    flat = replace(line, code=MethodCall(line.code, "flatten"))
    (fault,) = faults_of_types(op, replace(program, forward=(flat,), backward=()))
    assert "is TensorType" in fault
    unknown = replace(line, code=FunctionCall("unknown"), type=None)
    (fault,) = faults_of_types(op, replace(program, forward=(unknown,), backward=(), saved=()))
    assert "has no type" in fault


def test_passes_have_names_of_their_own_and_say_what_they_do():
    every = [*dict.fromkeys((*REVERSE, *FORWARD_MODE, *LOWER, *SPECIALIZE))]
    assert all(isinstance(step, Pass) and step.states for step in every)
    names = [step.name for step in every]
    assert len(set(names)) == len(names)
    assert REVERSE[: len(PREPARE)] == FORWARD_MODE[: len(PREPARE)] == PREPARE
    assert LOWER[0].name == center_differences.name


def test_the_reports_lead_from_the_spec_to_the_code():
    op = derive.parse("y[i] = sum[k](W[i,k]*tanh(x[k]))")
    found = pass_reports(op)
    assert found[0].after == ("y[i] = Σₖ W[i,k]·tanh(x[k])",)
    assert all(report.changed for report in found)
    forward = [report for report in found if report.body == "forward"]
    assert forward[0].before == () and forward[0].after[-1].startswith("y = ")
    code = derive.source(op)
    assert all(line.partition(" = ")[2] in code for line in forward[-1].after)


def test_composite_axes_optional_inputs_and_masks_are_reported():
    names = [report.name for report in pass_reports(derive.parse(OWN))]
    for name in ("split axes", "flatten", "insert guards", "lower", "convert layouts"):
        assert name in names
    assert "specialize none" in names


def test_expanded_distances_are_reported():
    op = derive.parse("op f(x[i,k], y[j,k]) -> D; D[i,j] = sum[k]((x[i,k] - y[j,k])**2)")
    (report,) = [r for r in pass_reports(op) if r.name == "center differences"]
    assert any(line.startswith("D[i,j] = maximum(Σₖ x_centred[i,k]²") for line in report.after)
    assert any(line.startswith("centre[k] = where(2·mean[k]² > ") for line in report.after)

"""The module of an operation that processes an index in blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Size
from derive.algebra.poly import Poly, base_and_power, make_term, poly
from derive.blocks.tiling import Plan, Stage
from derive.cost.costs import backward_trace, forward_trace
from derive.cost.size_formula import covers, size_of
from derive.module.arguments import ArgumentCheck, spelled_check
from derive.module.block_driver import Driver
from derive.module.docstrings import Doc
from derive.module.emit import module_text, option_table
from derive.module.function_codegen import (
    ClassFields,
    Lines,
    backward_signature,
    class_name,
    floats_of,
    name_of_all,
    unpacked_items,
)
from derive.module.name_mangling import Coded
from derive.module.pretty_printer import call_lines, indented, return_statement, unpacked_tuple
from derive.module.public import check_lines, entry_lines
from derive.module.stage_functions import Scheduled
from derive.notation.operation import Choice, Operation
from derive.program.cse import Line
from derive.program.fused_backward import formed
from derive.program.mixed_precision import multiplies
from derive.program.program import Program
from derive.program.shape_rules import elements


@dataclass(frozen=True)
class BlockedVariant:
    """The stages of one option of a choice; ``option`` is None without a choice."""

    option: str | None
    stages: tuple[Scheduled, ...]
    driver: Driver


PulledBack = Callable[[Operation, Sequence[str], str | None, Collection[str]], Program]
"""(operation, wrt, output or None for all, available outputs) -> its program."""


def blocked(
    option: str | None, plan: Plan, whole: Program, pulled_back: PulledBack
) -> BlockedVariant:
    """Return the stages of one option with their code."""
    stages = tuple(_scheduled(stage, pulled_back) for stage in plan.stages)
    passes = [s for s in plan.stages if s.looped and s.is_differentiable]
    if not all(s.makes_a_number for s in passes):
        stages = tuple(replace(s, formed=None) for s in stages)
    suffix = "" if option is None else f"_{option}"
    driver = Driver(plan, stages, whole, f"_{plan.operation.name}{suffix}")
    return BlockedVariant(option, stages, driver)


def _scheduled(stage: Stage, pulled_back: PulledBack) -> Scheduled:
    op = stage.operation
    read = {g.name for g in stage.given if g.read}
    wrt = [t.name for t in op.inputs if t.kind == "float" and t.name in read]
    # A sum over all blocks is not an output of any single block. Stages keep nothing else.
    made = pulled_back(op, wrt, None, tuple(stage.rows) if stage.looped else op.outputs)
    if not (stage.looped and stage.makes_a_number and stage.is_differentiable):
        return Scheduled(stage, made)
    optional = [t.name for t in op.inputs if t.default is not None]
    both = formed(pulled_back(op, wrt, op.outputs[0], op.outputs), optional)
    return Scheduled(stage, made, both)


def emit_blocked(
    code: Coded, variants: Sequence[BlockedVariant], checks: Sequence[ArgumentCheck], doc: Doc
) -> str:
    """Return the source of a module; the lines of ``doc`` are copied unchanged."""
    op = code.operation
    parts = [line for v in variants for line in v.driver.parts()]
    classes = ((v, _blocked_class_fields(op, v)) for v in variants)
    functions = [Lines(tuple(v.driver.forward()), (fields,)) for v, fields in classes]
    whole = _blocked_public_body(code, variants, checks)
    outputs = len(variants[0].driver.plan.operation.outputs)
    table = {v.option: (class_name(op, v.option), str(v.driver.is_formed)) for v in variants}
    return module_text(code, doc, functions, option_table(table), whole, outputs, parts)


def _program_lines(program: Program) -> Iterable[Line]:
    return (*program.forward, *program.setup, *program.backward)


def _blocked_class_fields(op: Operation, v: BlockedVariant) -> ClassFields:
    driver = v.driver
    more = ["formed"] if driver.is_formed else []
    given = [*driver.inputs, *driver.parameters, "block"]
    forward = call_lines(f"return {driver.prefix}_forward(", given, ")", 8)
    if more:
        formed = [*given, *driver.formed_arguments()]
        made = call_lines(f"return {driver.prefix}_formed(", formed, ")", 12)
        made = [*driver.dtypes(backward=True, indent=12), *made]
        forward = ["if formed is not None:", *indented(made, 4), *forward]
    cotangents = [c or f"_grad_{o}" for o, c in driver.whole.cotangents]
    exact = any(multiplies(_program_lines(s.program)) for s in driver.stages)
    return ClassFields(
        name=class_name(op, v.option),
        signature=indented(call_lines("def forward(", [*given, *more], "):", 4), 4),
        forward=indented(forward, 8),
        outcome=_outcome(driver),
        setup=indented(_blocked_setup(driver), 8),
        backward_signature=backward_signature(cotangents, exact),
        backward=indented(_blocked_backward(driver), 8),
    )


def _outcome(driver: Driver) -> str:
    return name_of_all({*driver.inputs, *driver.parameters, *driver.plan.operation.outputs})


def _blocked_setup(driver: Driver) -> list[str]:
    op = driver.plan.operation
    given = [*driver.inputs, *driver.parameters, "block", *(["formed"] if driver.is_formed else [])]
    saved, parameters = driver.saved()
    parameters = driver.parameters if driver.is_formed else parameters
    read = {*saved, *parameters, *driver.floats, "block", "formed"}
    wanted = [n if n in read else "_" for n in given]
    lines = unpacked_items(wanted, "inputs")
    outcome = _outcome(driver)
    silent = [o for o, c in driver.whole.cotangents if c is None]
    if len(op.outputs) == 1:
        lines += [f"{n} = {outcome}" for n in op.outputs if n in (*saved, *silent)]
    else:
        names = [n if n in (*saved, *silent) else "_" for n in op.outputs]
        lines += unpacked_tuple(names, outcome, 8) if set(names) != {"_"} else []
    if silent:
        lines += call_lines("ctx.mark_non_differentiable(", silent, ")", 8)
    lines += driver.dtypes(backward=True)
    kept = [*parameters, "block", *(["low"] if driver.uses_low else []), "wide"]
    kept += ["formed"] if driver.is_formed else []
    lines += [f"ctx.{name} = {name}" for name in kept]
    lines += call_lines("ctx.save_for_backward(", saved, ")", 8)
    return lines


def _blocked_backward(driver: Driver) -> list[str]:
    op = driver.plan.operation
    saved, _ = driver.saved()
    lines = unpacked_tuple(saved, "ctx.saved_tensors", 8)
    if driver.is_formed:
        given = [c for _, c in driver.whole.cotangents if c is not None]
        lines.append("formed = None")
        lines += call_lines("if ctx.formed is not None and rt.unrecorded(", given, "):", 8)
        lines += ["    formed, ctx.formed = ctx.formed, {}", "    if not formed:"]
        known = {n: n for n in (*driver.inputs, "formed")}
        given = [*driver.inputs, *driver.parameters, "block", *driver.formed_arguments()]
        given = [known.get(n, f"ctx.{n}") if n in (*saved, "formed") else f"ctx.{n}" for n in given]
        given = ["None" if n.startswith("ctx.") and n[4:] in driver.inputs else n for n in given]
        again = call_lines(f"{driver.prefix}_formed(", given, ")", 16)
        lines += indented(again, 8)
    known = {"wanted": "ctx.needs_input_grad", "block": "ctx.block", "low": "ctx.low"}
    known |= {"wide": "ctx.wide"} | {p: f"ctx.{p}" for p in driver.parameters}
    given = [known.get(name, name) for name in driver.backward_arguments()]
    floats = [t.name for t in op.inputs if t.kind == "float"]
    lines += call_lines(f"grads = {driver.prefix}_backward(", given, ")", 8)
    places = {n: f"grads[{at}]" if len(floats) > 1 else "grads[0]" for at, n in enumerate(floats)}
    results = [places.get(t.name, "None") for t in op.inputs]
    results += ["None"] * (len(driver.parameters) + 1 + driver.is_formed)
    return lines + return_statement(results, 8)


def _blocked_public_body(
    code: Coded, variants: Sequence[BlockedVariant], checks: Sequence[ArgumentCheck]
) -> list[str]:
    op = code.operation
    programs = (s.program for v in variants for s in v.stages)
    codes = (line.code for program in programs for line in _program_lines(program))
    lines = entry_lines(code, checks, codes)
    function = class_name(op, variants[0].option)
    forms = any(v.driver.is_formed for v in variants)
    driver = variants[0].driver
    for p in op.parameters:
        if isinstance(p, Choice):
            lines.append(f"function, forms = _OPTIONS[{p.name}]")
            function = "function"
    lines.append("if block is None:")
    size = driver.size_of(driver.plan.index.extent)
    rows = list(dict.fromkeys(r for v in variants for r in row_sizes(v.driver)))
    lines += indented(call_lines("block = rt.block_size(", [size, *rows], ")", 8), 4)
    lines.append("else:")
    given = ["block", f'"{op.name}: block"']
    lines += indented(call_lines("block = rt.integer(", given, ")", 8), 4)
    positive = spelled_check(op, "block < 1", "block must be positive, not {block}")
    lines += check_lines([positive])
    given = [*driver.inputs, *driver.parameters, "block"]
    if forms:
        floats = floats_of(op)
        if function == "function" and not all(v.driver.is_formed for v in variants):
            lines.append("if forms:")
            lines += indented(call_lines("formed = rt.forward_gradients(", floats, ")", 8), 4)
            made = call_lines("return rt.apply(", [function, *given, "formed"], ")", 8)
            lines += indented(made, 4)
        else:
            lines += call_lines("formed = rt.forward_gradients(", floats, ")", 4)
            given = [*given, "formed"]
    return lines + call_lines("return rt.apply(", [function, *given], ")", 4)


def row_sizes(driver: Driver) -> list[str]:
    """Return the row sizes (elements per position of the blocked index), dominated ones removed."""
    found: dict[Poly, None] = {}
    for s in driver.stages:
        if s.stage.looped:
            found |= dict.fromkeys(_row_sizes(s))
    kept = [p for p in found if not any(covers(q, p) for q in found if q is not p)]
    return [_size_product_code(driver, p) for p in kept if p.terms[0].factors]


def _row_sizes(s: Scheduled) -> Iterable[Poly]:
    op = s.stage.operation
    forward = forward_trace(op)
    forward.run(s.program.forward)
    backward = backward_trace(op, s.program)
    backward.run(s.program.backward)
    (block,) = (base_and_power(f)[0] for f in size_of(s.stage.extent).terms[0].factors)
    for step in (*forward.steps, *backward.steps):
        for t in elements(step.result).terms:
            bases = [base_and_power(f) for f in t.factors]
            if block in [b for b, _ in bases] and all(isinstance(b, Size) for b, _ in bases):
                kept = [f for f, (b, _) in zip(t.factors, bases, strict=True) if b is not block]
                yield poly([make_term(t.coef, (), tuple(kept))])


def _size_product_code(driver: Driver, p: Poly) -> str:
    (t,) = p.terms
    sizes: list[str] = [] if t.coef == 1 else [str(t.coef)]
    for f in t.factors:
        base, power = base_and_power(f)
        assert isinstance(base, Size)
        sizes += [driver.size_of(base.extent)] * int(power)
    return " * ".join(sizes)

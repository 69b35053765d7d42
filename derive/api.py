"""The functions of the package: formulas, tangents, source, cost, and the loaded function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from derive import pipeline
from derive.blocks.tiling import block_plan
from derive.budget import check_code, working
from derive.calculus.unit import Unit
from derive.cost.costs import Costs, costs_of
from derive.errors import DeriveError, no_recursion_leaves
from derive.loaded import function
from derive.lowering.lowering_input import frame_of
from derive.module import runtime
from derive.module.blocked import blocked, emit_blocked
from derive.module.checks import checks
from derive.module.docstrings import document, kernels_of
from derive.module.emit import emit
from derive.module.function_codegen import Variant
from derive.module.name_mangling import OWN, coded, with_own_meanings
from derive.module.plain import PlainModule, PlainPart, emit_plain
from derive.module.reduced import reductions
from derive.module.stage_functions import own_names
from derive.notation.common_output import CommonOutput, common_output
from derive.notation.operation import (
    Operation,
    check_operation,
    is_plain,
    known_names,
    known_option,
    options,
    saves_least,
)
from derive.passes import Pass, stages
from derive.pipeline import LOWER, REVERSE, SPECIALIZE, Code
from derive.program.value_names import Names
from derive.reports.derivation import as_formulas, as_shown, cost_of, steps_and_names, trees
from derive.reports.formula import Formula, PassReport, body_reports, program_lines, unit_lines
from derive.reports.graph import Graph, graph_of
from derive.reports.presentation_names import PresentationNames, definitions, formula
from derive.reports.result import Cost, Derivation, Formulas, Tangents
from derive.reports.reuse import reuse_of


@no_recursion_leaves
def derivation(
    op: Operation, option: str | None = None, wrt: Sequence[str] | None = None
) -> Derivation:
    """Derive the gradients of an operation as formulas.

    With ``G`` the cotangent of an output ``Y``, the gradient of an input ``A`` is

        grad_A[i] = Sum_Y Sum_n G[n] * dY[n]/dA[i]

    Args:
        op: the operation.
        option: an option of its choice parameter. Default: the first one.
        wrt: the float inputs and equations to differentiate with respect to. Default: all float
            inputs. The adjoint of a named equation is kept as a formula of its own.

    Returns:
        A `Derivation`: ``gradients``, ``tangents``, ``saved``, ``cost``, and ``text(steps=True)``.

    Raises:
        DeriveError: a name has no gradient, or the operation cannot be derived.

    >>> import derive
    >>> d = derive.derivation(derive.parse("y[i] = sum[k](W[i,k]*tanh(x[k]))"))
    >>> print(d.gradients["x"])
    grad_x[k] = (1 − tanh(x[k])²)·Σᵢ G[i]·W[i,k]
    """
    check_operation(op)
    option = known_option(op, option)
    found = formulas_of(op, option, wrt)
    names = known_names(dict(options(op))[option], wrt)
    told, made = (
        partial(steps_and_names, pipeline.derive_option, op, option, names),
        partial(_code_facts, op, option),
    )
    return Derivation(**vars(found), told=told, made=made, moved=partial(tangents, op, option, wrt))


@no_recursion_leaves
def tangents(
    op: Operation,
    option: str | None = None,
    wrt: Sequence[str] | None = None,
    of: Sequence[str] | None = None,
) -> Tangents:
    """Return the tangents of the outputs of op, or of the equations ``of``.

    ``wrt`` names the float inputs with a tangent (all by default); the others are constant.
    """
    check_operation(op)
    option = known_option(op, option)
    given = dict(options(op))[option]
    inputs = [t.name for t in op.inputs if t.kind == "float"]
    wrt = [wrt] if isinstance(wrt, str) else wrt
    for name in wrt or ():
        if name not in inputs:
            raise DeriveError(
                f"{op.name} has no tangents along {name}; it has tangents along "
                f"{', '.join(inputs)}",
                kind="unknown-gradient",
            )
    asked = [None if names is None else tuple(dict.fromkeys(names)) for names in (wrt, of)]
    derived = pipeline.tangents_of(op, option, *asked)
    lets, speech = derived.lets, PresentationNames.of(given, derived.lets)
    return Tangents(
        name=op.name,
        option=option,
        given=tuple(
            (lets.display_name(t), lets.display_name(own)) for t, own in derived.backward.cotangents
        ),
        equations=as_formulas(given),
        definitions=definitions(lets, trees(derived, speech), speech),
        formulas={
            lets.display_name(a.tensor): formula(a, speech) for a in derived.backward.adjoints
        },
        told=partial(steps_and_names, pipeline.tangents_of, op, option, *asked),
    )


@no_recursion_leaves
def _code_facts(
    op: Operation, option: str | None
) -> tuple[tuple[tuple[str, str, str], ...], tuple[str, ...], Cost]:
    """Return (recognized patterns, saved tensors, cost) of the code of an option."""
    named = coded(op)
    code = pipeline.program_of(named.operation, option)
    recognised = tuple(
        (named.display_name(r.equation), r.pattern, r.states) for r in code.recognised
    )
    return (
        recognised,
        tuple(named.display_name(s.name) for s in code.saved),
        cost_of(named.operation, option, code),
    )


def graph(op: Operation, option: str | None = None) -> str:
    """Return a picture of an operation and its gradients, in DOT, the language of Graphviz.

    A node is a tensor with its formula, and an edge a read, labelled with the shape of what is
    read. The nodes tell what the forward saves for the backward, and what this computes again.
    The wider an edge, the larger the tensor; the wider a border, the more work.

    Args:
        op: the operation.
        option: an option of its choice parameter. Default: the first one.

    Raises:
        DeriveError: the operation cannot be derived.

    >>> import derive
    >>> text = derive.graph(derive.parse("y[i] = sum[k](W[i,k]*x[k])"))
    >>> [line.partition(" [")[0].strip() for line in text.splitlines() if '-> "y"' in line]
    ['"W" -> "y"', '"x" -> "y"']
    """
    return graph_data(op, option).dot()


@no_recursion_leaves
def graph_data(op: Operation, option: str | None = None) -> Graph:
    """Return the nodes and edges of `graph`."""
    d = derivation(op, option)
    named = coded(op)
    code = pipeline.code_of(named.operation, d.option)
    assert code.lowered is not None
    reuse = reuse_of(dict(options(named.operation))[d.option], code.lowered, code.program)
    return graph_of(dict(options(op))[d.option], d, reuse.under(named.display_name))


def formulas_of(op: Operation, option: str | None, wrt: Sequence[str] | None = None) -> Formulas:
    """Return the formulas of one option."""
    given = dict(options(op))[option]
    wanted = known_names(given, wrt)
    derived = pipeline.derive_option(op, option, wanted)
    backward, lets = derived.backward, derived.lets
    speech = PresentationNames.of(given, lets, (*backward.adjoints, *backward.gradients))
    results = [a for a in backward.adjoints if a.tensor in backward.wanted]
    kept = [a for a in backward.adjoints if a.tensor not in backward.wanted]
    found = {
        lets.display_name(a.tensor): formula(a, speech) for a in (*backward.gradients, *results)
    }
    return Formulas(
        name=op.name,
        option=option,
        cotangents=tuple(
            (lets.display_name(o), lets.display_name(c)) for o, c in backward.cotangents
        ),
        equations=as_formulas(given),
        definitions=definitions(lets, trees(derived, speech), speech),
        adjoints=tuple(formula(a, speech) for a in kept),
        gradients={name: found[name] for name in wanted or found},
        printed=partial(as_shown, derived, speech, wanted),
    )


@no_recursion_leaves
def source(
    op: Operation,
    blocks: str | None = None,
    save: str = "balanced",
    *,
    standalone: bool = True,
    style: str = "production",
) -> str:
    """Return the Python source of the torch module of an operation.

    The module defines a function with the name of the operation. Its tensors are positional, its
    parameters follow by position or by name.

    Args:
        op: the operation.
        blocks: an index to process in blocks, so that a large intermediate never exists in full.
        save: "balanced" saves inputs, outputs, and intermediates that are cheaper to keep than to
            recompute; "least" saves inputs and outputs only.
        standalone: the module imports torch alone. Otherwise it also imports `_runtime` from its
            package, which ``derive generate`` writes beside it.
        style: "production" is fast and checks its arguments; "plain" is short and read like the
            formulas: a Function in public calls of torch, without autocast, forward mode, fused
            kernels or checks of the arguments. It saves inputs and outputs only.

    Raises:
        LoweringError: torch operations cannot express the operation.
        DeriveError: the index cannot be processed in blocks.

    >>> import derive
    >>> text = derive.source(derive.parse("op cube(x[n]) -> y; y[n] = x[n]**3"))
    >>> "class _Cube(torch.autograd.Function):" in text
    True
    """
    check_operation(op)
    least = saves_least(save)
    if is_plain(style):
        if blocks is not None or least:
            raise DeriveError(
                f"{op.name}: a plain module takes neither blocks= nor save=", kind="unknown-option"
            )
        return _plain_source(op)
    if blocks is not None:
        if least:
            raise DeriveError(
                f"{op.name}: a module in blocks already saves little; omit save=",
                kind="unknown-option",
            )
        return _finished(op, _source_in_blocks(op, blocks), standalone)
    with working(op.name):
        code = coded(op)
        names = [option for option, _ in options(op)]
        tests = checks(code.operation, frame_of(code.operation))
        found = _variants(code.operation, names, least)
        first = found[0]
        split = common_output(op) if first.outside or first.reductions else None
        # An option that the others reduce has the formulas of the common equation.
        reduced = first.reductions.option if first.reductions else None
        shown = split.common if split and not reduced else op
        among = [reduced] if reduced else [option for option, _ in options(shown)]
        derivations = [formulas_of(shown, option) for option in among]
        taken = {*OWN, op.name, code.operation.name}
        others = _others(split) if split else []
        shown_as = shown_names(derivations) | {f.name for f in others}
        names_of = Names(shown_as, taken, left_sides(op, derivations))
        variants = [_named_variant(v, names_of) for v in found]
        moved = []
        if variants[0].tangent is not None:
            moved = [tangents(shown, option) for option in among]
        if reduced:
            derivations = [replace(d, option=None) for d in derivations]
            moved = [replace(t, option=None) for t in moved]
        kernels = kernels_of(v.program for v in variants)
        doc = document(op, derivations, moved, kernels, None, least, others, first.reductions)
        return _finished(op, emit(code, variants, tests, doc), standalone)


def _finished(op: Operation, text: str, standalone: bool) -> str:
    """Return the text of a module in one of its two forms."""
    check_code(op.name, text)
    return with_own_meanings(runtime.standalone(text) if standalone else text, op.name)


def _named_variant(variant: Variant, names: Names) -> Variant:
    """Return the program of an option and its tangents, all values under names."""
    program, tangent = variant.program, names.in_tangent(variant.tangent, variant.program)
    outside = variant.outside
    if outside is not None:
        fixed = [*program.inputs, *program.outputs]
        others = outside.others.items()
        lines = {o: names.in_lines(x, fixed, program.parameters) for o, x in others}
        outside = replace(outside, others=lines)
    named = names.in_program(program)
    return replace(variant, program=named, tangent=tangent, outside=outside)


def shown_names(derivations: Iterable[Formulas]) -> frozenset[str]:
    """Return the names that formulas define."""
    return frozenset(
        f.name for d in derivations for f in (*d.equations, *d.definitions, *d.adjoints)
    )


def left_sides(op: Operation, derivations: Iterable[Formulas]) -> dict[str, str]:
    """Return the left sides of the equations and adjoints between inputs and outputs, by name."""
    found: dict[str, set[str]] = {}
    for d in derivations:
        for f in (*d.equations, *d.adjoints):
            if f.axes and f.name not in op.outputs:
                found.setdefault(f.name, set()).add(str(f).partition(" = ")[0])
    return {name: min(sides) for name, sides in found.items() if len(sides) == 1}


def _variants(op: Operation, names: Sequence[str | None], least: bool) -> list[Variant]:
    """Return the programs of the options: one, if these are made of one equation."""
    split = common_output(op)
    common = reductions(split) if split else None
    whole = common and pipeline.specialized_with_reductions(op, common, least)
    if whole:
        return [Variant(None, *whole, common)]
    inside = pipeline.specialized_inside(split, least) if split else None
    if inside:
        return [Variant(None, *inside[:2], outside=inside[2])]
    return [
        Variant(n, pipeline.specialized(op, n, least), pipeline.own_tangent(op, n)) for n in names
    ]


def _others(split: CommonOutput) -> list[Formula]:
    """Return the equations of the options beyond the common ones, in the order of a derivation."""
    every = (f for rest in split.others.values() for f in as_formulas(rest))
    return list(dict.fromkeys(every))


def _plain_source(op: Operation) -> str:
    """Return the source of a plain module."""
    with working(op.name):
        code = coded(op)
        named, split = code.operation, common_output(code.operation)
        if split is not None:
            common, shown = split.common, common_output(op)
            parts = [PlainPart(None, common, pipeline.plain_program(common, None))]
            finish = {
                option: pipeline.plain_program(rest, None).forward
                for option, rest in split.others.items()
            } | {split.option: ()}
            derivations = [] if shown is None else [formulas_of(shown.common, None)]
        else:
            parts = [
                PlainPart(option, named, pipeline.plain_program(named, option))
                for option, _ in options(named)
            ]
            finish, derivations = {}, [formulas_of(op, option) for option, _ in options(op)]
        names_of = Names(shown_names(derivations), {*OWN, op.name, named.name})
        parts = [replace(part, program=names_of.in_program(part.program)) for part in parts]
        fixed = [*parts[0].program.inputs, *parts[0].program.outputs]
        numbers = parts[0].program.parameters
        finish = {o: names_of.in_lines(lines, fixed, numbers) for o, lines in finish.items()}
        text = emit_plain(code, PlainModule(tuple(parts), finish), derivations)
        text = runtime.standalone(text, runtime.plain_runtime())
        return check_code(op.name, with_own_meanings(text, op.name))


def _source_in_blocks(op: Operation, letter: str) -> str:
    """Return the source of a module that processes an index in blocks."""
    with working(op.name):
        code = coded(op, own_names(op))
        named = code.operation
        variants = [
            blocked(
                option,
                block_plan(chosen, letter),
                pipeline.program_of(named, option),
                pipeline.stage_backward,
            )
            for option, chosen in options(named)
        ]
        kernels = kernels_of(s.program for v in variants for s in v.stages)
        derivations = [formulas_of(op, option) for option, _ in options(op)]
        doc = document(op, derivations, kernels=kernels, blocks=letter)
        return emit_blocked(code, variants, checks(named, frame_of(named)), doc)


def costs(op: Operation) -> Iterator[tuple[str | None, Costs]]:
    """Yield (option, cost of its code) for each option."""
    op = coded(op).operation
    for option, chosen in options(op):
        yield option, costs_of(chosen, pipeline.program_of(op, option))


def load(op: Operation, blocks: str | None = None, save: str = "balanced") -> Any:
    """Return the generated function of an operation.

    Its module is a file in the cache folder (DERIVE_CACHE), so that other processes can import it.
    ``blocks`` and ``save`` are those of `source`; with ``blocks``, the function also takes the
    block size, ``block=``.

    >>> import derive, torch
    >>> f = derive.load(derive.parse("op cube(x[n]) -> y; y[n] = x[n]**3"))
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> f(x).sum().backward()
    >>> x.grad
    tensor([ 3., 12.])
    """
    check_operation(op)
    return function(op.name, source(op, blocks, save, standalone=False), runtime.runtime())


@no_recursion_leaves
def pass_reports(op: Operation, option: str | None = None) -> list[PassReport]:
    """Return the passes that lead to the code of an option, each with what it changed.

    The names are those of the code. Passes that change nothing are left out.

    >>> import derive
    >>> from derive.api import pass_reports
    >>> [p.name for p in pass_reports(derive.parse("y[i] = x[i]**2"))][:3]
    ['read', 'flatten', 'differentiate']
    """
    check_operation(op)
    coded_op = coded(op).operation
    unit = Unit.start(dict(options(coded_op))[known_option(coded_op, option)])
    found = [PassReport("read", "The operation as it is given", (), unit_lines(unit))]
    with working(op.name):
        for step, made in stages(REVERSE, unit):
            found.append(PassReport(step.name, step.states, unit_lines(unit), unit_lines(made)))
            unit = made
        code = Code(unit)
        for last, after in stages((*LOWER, *SPECIALIZE), code):
            found += _code_reports(last, code, after)
            code = after
    return [report for report in found if report.changed]


def _code_reports(step: Pass[Code], before: Code, after: Code) -> Iterator[PassReport]:
    """Yield the reports of a pass of the lowering: of the formulas, or of the lines of code."""
    if after.made is None:
        yield PassReport(step.name, step.states, unit_lines(before.unit), unit_lines(after.unit))
    elif before.made is None:
        yield from body_reports(after.made)
    else:
        lines = program_lines(before.made), program_lines(after.made)
        yield PassReport(step.name, step.states, *lines)

"""The pipeline: the passes that lead from an operation to its derivation and to its code.

    an operation          Unit        PREPARE
    its gradients         Unit        REVERSE
    its tangents          Unit        FORWARD_MODE
    its program           Code        LOWER, and for each body the lists of lowering/assembly.py
    its module            text        derive.api.source

Each pass is a function from a unit to a new one. No pass looks at the name of an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

from derive.algebra.expr import Num
from derive.budget import working
from derive.calculus import (
    adjoint,
    alpha_renaming,
    build_lets,
    centering,
    finalize,
    guard_insertion,
    inline,
    tangent,
)
from derive.calculus import rematerialize as spare_reads
from derive.calculus.rematerialize import operation_costs
from derive.calculus.unit import Unit
from derive.errors import no_recursion_leaves
from derive.lowering.ground.value import NeedsFlatGroups
from derive.lowering.groups import with_flat_groups
from derive.lowering.joint import Joint
from derive.lowering.layout_conversion import Border
from derive.lowering.lowering_input import LoweringInput
from derive.lowering.plain import lower_plain
from derive.lowering.program import Lowered, lower_program
from derive.lowering.pulled_statistics import through_statistics
from derive.lowering.tangent import lower_tangents
from derive.module.in_place_variants import with_in_place
from derive.module.none_variants import with_absent, with_decided_tests
from derive.module.outside import Outside, is_rational, outside, with_wide_output
from derive.module.reduced import (
    Reductions,
    tangent_with_reductions,
    with_parameter,
    with_reductions,
)
from derive.notation import split
from derive.notation.common_output import CommonOutput
from derive.notation.operation import Operation, options
from derive.passes import Pass, as_pass, run
from derive.program.decided_tests import choices_in_a_row
from derive.program.program import Program, Tangent
from derive.program.torch_ops import has_forward_mode
from derive.reports.formula import translating_errors

# ------------------------------------------------------------------ the derivation


@as_pass
def split_axes(unit: Unit) -> Unit:
    """x[(t d)] = x[t,d]: each axis has one index."""
    op = unit.operation
    return unit if split.is_plain(op) else replace(unit, operation=split.split_axes(op).operation)


@as_pass
def rename(unit: Unit) -> Unit:
    """Names follow the order of appearance, so that none decides."""
    operation, display_names = alpha_renaming.canonical(unit.operation)
    return replace(unit, operation=operation, display_names=display_names)


@as_pass
def flatten(unit: Unit) -> Unit:
    """An equation is a sum of products; other reductions are lets."""
    variables = unit.canonical(unit.wrt) or ()
    lets = build_lets.flatten_operation(unit.operation, unit.display_names, variables)
    return replace(unit, lets=lets)


@as_pass
def insert_guards(unit: Unit) -> Unit:
    """[c]·f(u) = [c]·f(u where c, else a harmless number)."""
    unit = unit.apart()
    guard_insertion.make_safe(unit.lets, frozenset(unit.operation.outputs))
    return unit


PREPARE: tuple[Pass[Unit], ...] = (split_axes, rename, flatten, insert_guards)


@as_pass
def differentiate(unit: Unit) -> Unit:
    """grad_X[i] = Σ_F Σⱼ grad_F[j]·∂F[j]/∂X[i], deltas eliminated."""
    (of,) = unit.canonical(unit.of) or (None,)
    wrt, lets = unit.canonical(unit.wrt), unit.lets.apart()
    added = unit.canonical(unit.added) or ()
    return unit.with_backward(adjoint.differentiate(unit.operation, lets, wrt, of, added))


@as_pass
def push_tangents(unit: Unit) -> Unit:
    """d_F[j] = Σ_X Σᵢ ∂F[j]/∂X[i]·d_X[i]."""
    wrt, of, lets = unit.canonical(unit.wrt), unit.canonical(unit.of), unit.lets.apart()
    return unit.with_backward(tangent.differentiate_forward(unit.operation, lets, wrt, of))


@as_pass
def inline_adjoints(unit: Unit) -> Unit:
    """A name stays if the formulas cost less with it."""
    given = {e.name: e.size for e in unit.operation.extents}
    sizes = {name: int(n.value) for name, n in given.items() if isinstance(n, Num)}
    costs = partial(operation_costs, sizes=sizes)
    return unit.with_backward(inline.inline_adjoints(unit.apart().backward, costs))


@as_pass
def solve_positions(unit: Unit) -> Unit:
    """Σₖ δ(i, s·k)·f(k) = [s divides i]·f(i/s)."""
    return unit.with_backward(finalize.solved(unit.apart().backward))


@as_pass
def rematerialize(unit: Unit) -> Unit:
    """y = g·x is read as g·x where both are read anyway."""
    backward, outputs = unit.apart().backward, unit.operation.outputs
    return unit.with_backward(spare_reads.without_spare_reads(backward, outputs))


@as_pass
def guard_gradients(unit: Unit) -> Unit:
    """[c]·f'(u) = [c]·f'(u where c, else a number)."""
    return unit.with_backward(finalize.safe_backward(unit.apart().backward))


@as_pass
def guard_tangents(unit: Unit) -> Unit:
    """[c]·f'(u) = [c]·f'(u where c, else a number)."""
    return unit.with_backward(finalize.safe_forward(unit.backward))


_INLINE: tuple[Pass[Unit], ...] = (inline_adjoints, solve_positions)
REVERSE: tuple[Pass[Unit], ...] = (
    *PREPARE,
    differentiate,
    *_INLINE,
    rematerialize,
    guard_gradients,
)
FORWARD_MODE: tuple[Pass[Unit], ...] = (*PREPARE, push_tangents, *_INLINE)


def derive_unit(passes: Iterable[Pass[Unit]], unit: Unit) -> Unit:
    """Run the passes of a derivation; errors have the names of the user."""
    with working(unit.given.name):
        for step in passes:
            with translating_errors(unit.given, unit.shown_names):
                unit = step.run(unit)
    return unit


def differentiated(op: Operation, wrt: Sequence[str] | None = None, of: str | None = None) -> Unit:
    """Return the gradients of op, each axis read by an index."""
    return derive_unit(REVERSE, Unit.start(op, wrt, None if of is None else (of,)))


@lru_cache(maxsize=256)
@no_recursion_leaves
def derive_option(op: Operation, option: str | None, wrt: tuple[str, ...] | None = None) -> Unit:
    """Return the gradients of one option: adjoints and gradients, deltas eliminated."""
    return differentiated(dict(options(op))[option], wrt)


@lru_cache(maxsize=256)
@no_recursion_leaves
def tangents_of(
    op: Operation,
    option: str | None,
    wrt: tuple[str, ...] | None = None,
    of: tuple[str, ...] | None = None,
) -> Unit:
    """Return the forward-mode derivatives of one option, deltas eliminated."""
    return derive_unit(FORWARD_MODE, Unit.start(dict(options(op))[option], wrt, of))


# ------------------------------------------------------------------ the code


@dataclass(frozen=True)
class Code:
    """A derivation on its way to a program."""

    unit: Unit
    available: tuple[str, ...] | None = None
    """The outputs that the backward may read; None stands for all."""
    keeps: bool = True
    """True if the forward may save intermediates for the backward."""
    lowered: Lowered | None = None
    made: Program | None = None

    @property
    def program(self) -> Program:
        assert self.made is not None, "the bodies are not lowered yet"
        return self.made


def lowering_input(unit: Unit, flat: bool, named: bool = False) -> LoweringInput:
    """Return the lowering input of a derivation; with ``flat``, each group is one axis."""
    whole = unit.operation, unit.lets, unit.backward
    whole = with_flat_groups(*whole) if flat else whole
    return LoweringInput(whole[0], whole[1].apart(), whole[2], Border.of(unit.given, flat, named))


@as_pass
def center_differences(unit: Unit) -> Unit:
    """|x − y|² = |x − c|² − 2·(x − c)·(y − c) + |y − c|²."""
    lets, backward = centering.with_centres(unit.operation, unit.lets, unit.backward)
    return replace(unit, lets=lets, backward=backward)


def _of_unit(step: Pass[Unit]) -> Pass[Code]:
    """Return a pass over formulas as a pass over the code that is made of them."""
    return Pass(step.name, step.states, lambda code: replace(code, unit=step.run(code.unit)))


@as_pass
def lower_bodies(code: Code) -> Code:
    """A let is a call of torch; what costs more to recompute than to keep is saved."""
    layouts = partial(lowering_input, code.unit)
    lowered = lower_program(layouts, code.available, code.keeps)
    return replace(code, lowered=lowered, made=lowered.program)


@as_pass
def pull_statistics(code: Code) -> Code:
    """The graph leads through saved statistics if both orders have fewer lines then."""
    lowered, given = code.lowered, code.unit.given
    if lowered is None or code.available is not None or not code.keeps:
        return code
    inputs = [t.name for t in given.inputs if t.kind == "float"]

    def through(names: Sequence[str]) -> LoweringInput:
        said = [*map(code.unit.lets.display_name, names)]
        unit = replace(Unit.start(given, [*inputs, *said]), added=tuple(said))
        unit = derive_unit((*REVERSE, center_differences), unit)
        return lowering_input(unit, lowered.flat)

    return replace(code, made=through_statistics(lowered, through))


@as_pass
def specialize_none(code: Code) -> Code:
    """An input that is None reads as its default."""
    return replace(code, made=with_absent(code.unit.given, code.program))


@as_pass
def decide_tests(code: Code) -> Code:
    """A test of parameters that their bounds decide is not made."""
    return replace(code, made=with_decided_tests(code.unit.given, code.program))


@as_pass
def order_choices(code: Code) -> Code:
    """Choices by one test stand in a row."""
    return replace(code, made=code.program.in_bodies(choices_in_a_row))


@as_pass
def reuse_buffers(code: Code) -> Code:
    """A result overwrites what nothing reads later."""
    return replace(code, made=with_in_place(code.unit.given, code.program))


LOWER: tuple[Pass[Code], ...] = (_of_unit(center_differences), lower_bodies, pull_statistics)
SPECIALIZE: tuple[Pass[Code], ...] = (
    *(specialize_none, decide_tests, order_choices),
    reuse_buffers,
)


def lower(code: Code, passes: Iterable[Pass[Code]] = LOWER) -> Code:
    """Run the passes of the lowering; errors have the names of the user."""
    given = code.unit.given
    with working(given.name), translating_errors(given, code.unit.shown_names):
        return run(passes, code)


@no_recursion_leaves
def code_of(op: Operation, option: str | None) -> Code:
    """Return the code of one option with all that it is made of, before it is specialized."""
    return lower(Code(derive_option(op, option, None)))


@lru_cache(maxsize=256)
def program_of(op: Operation, option: str | None) -> Program:
    """Return the program of one option, before it is specialized."""
    return code_of(op, option).program


def specialized(op: Operation, option: str | None, least: bool = False) -> Program:
    """Return the program of one option; with ``least`` it saves only inputs and outputs."""
    unit = derive_option(op, option, None)
    made = lower(Code(unit, keeps=False)).program if least else program_of(op, option)
    return lower(Code(unit, made=made), SPECIALIZE).program


def specialized_with_reductions(
    op: Operation, r: Reductions, least: bool = False
) -> tuple[Program, Tangent | None] | None:
    """Return one program of all options, and its tangent code; None if there is none."""
    unit, tangent = derive_option(op, r.option, None), _tangent_of(op, r.option, [r.option])
    made = _without_saved_output(op, r.option, least)
    whole = with_parameter(unit.given)
    reduced = with_reductions(whole, made, r)
    moved = None if tangent is None else tangent_with_reductions(op, tangent, r)
    if reduced is None or (tangent is not None and moved is None):
        return None
    return with_in_place(whole, reduced, dict(reduced.cotangents)[r.equation]), moved


def specialized_inside(
    split: CommonOutput, least: bool = False
) -> tuple[Program, Tangent | None, Outside] | None:
    """Return the program of a common output, its tangent code, and the options outside of it.

    None if torch should not differentiate the options, or the output cannot be left unrounded.
    With ``least`` always: torch keeps terms of a quotient.
    """
    common = split.common
    if least or not is_rational(split):
        return None
    made = _without_saved_output(common, None)
    others = {o: with_absent(x, plain_program(x, None)) for o, x in split.others.items()}
    found, wide = outside(split, made, others), with_wide_output(made)
    if found is None or wide is None:
        return None
    return with_in_place(common, wide), own_tangent(common, None), found


def _without_saved_output(op: Operation, option: str | None, least: bool = False) -> Program:
    """Return the program of one option that does not save its output; no body is in place."""
    unit = derive_option(op, option, None)
    made = lower(Code(unit, keeps=False)).program if least else program_of(op, option)
    if any(s.name in unit.given.outputs for s in made.saved):
        made = lower(Code(unit, available=())).program
    return lower(Code(unit, made=made), SPECIALIZE[:-1]).program


@lru_cache(maxsize=256)
@no_recursion_leaves
def plain_program(op: Operation, option: str | None) -> Program:
    """Return the program of one option in public calls of torch, any of which has a derivative."""
    unit = derive_option(op, option, None)
    with working(op.name), translating_errors(unit.given, unit.shown_names):
        return lower_plain(partial(lowering_input, unit, named=True))


def stage_backward(
    op: Operation, wrt: Sequence[str], of: str | None, available: Collection[str]
) -> Program:
    """Return the backward of op with respect to ``wrt``, given ``available`` outputs."""
    code = Code(differentiated(op, wrt, of), tuple(available))
    return lower(code, (*LOWER, *SPECIALIZE[:-1])).program


_Made = TypeVar("_Made", Joint, Tangent)


def lowered(unit: Unit, lower_body: Callable[[LoweringInput], _Made]) -> _Made:
    """Lower one body of a derivation; if that needs flat groups, with one axis for each group."""
    with working(unit.given.name), translating_errors(unit.given, unit.shown_names):
        unit = center_differences.run(unit)
        try:
            return lower_body(lowering_input(unit, False))
        except NeedsFlatGroups:
            return lower_body(lowering_input(unit, True))


def own_tangent(op: Operation, option: str | None) -> Tangent | None:
    """Return the tangent code of one option, or None where torch's forward mode suffices.

    The options of an operation have tangent code if one of them needs it.
    """
    return _tangent_of(op, option, [name for name, _ in options(op)])


def _tangent_of(op: Operation, option: str | None, among: Iterable[str | None]) -> Tangent | None:
    """Return the tangent code of one option if torch's forward mode fails on one of ``among``."""
    every = {name: program_of(op, name) for name in among}
    forwards = [p.composed or p.forward for p in every.values()]
    if all(has_forward_mode(line.code for line in body) for body in forwards):
        return None
    still = any(
        p.rearranges or not tangents_of(op, n, None, None).backward.wanted for n, p in every.items()
    )
    return None if still else tangent_program(op, option)


def tangent_program(op: Operation, option: str | None) -> Tangent:
    """Return the tangent code of one option."""
    program = program_of(op, option)
    low = program.forward_precision.has_products
    # Tensors with a graph of their own are outputs for torch, so they need tangents too.
    of = (*program.outputs, *program.pulled) if program.pulled else None
    unit = guard_tangents.run(tangents_of(op, option, None, of))
    return lowered(unit, partial(lower_tangents, low=low))

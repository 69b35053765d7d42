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

from derive.algebra.cost_order import operation_costs
from derive.budget import working
from derive.calculus.adjoint import differentiate
from derive.calculus.alpha_renaming import canonical
from derive.calculus.build_lets import flatten_operation
from derive.calculus.centering import with_centres
from derive.calculus.finalize import safe_backward, safe_forward, solved
from derive.calculus.guard_insertion import make_safe
from derive.calculus.inline import inline_adjoints
from derive.calculus.rematerialize import without_spare_reads
from derive.calculus.tangent import differentiate_forward
from derive.calculus.unit import Unit
from derive.errors import no_recursion_leaves
from derive.lowering.ground.value import NeedsFlatGroups
from derive.lowering.groups import with_flat_groups
from derive.lowering.joint import Joint
from derive.lowering.layout_conversion import Border
from derive.lowering.lowering_input import LoweringInput
from derive.lowering.program import Lowered, lower_program, pull_statistics
from derive.lowering.tangent import tangent
from derive.module.in_place_variants import with_in_place
from derive.module.none_variants import with_absent
from derive.notation.operation import Operation
from derive.notation.options import options
from derive.notation.split import is_plain, split_axes
from derive.passes import Pass, run
from derive.program.program import Program, Tangent
from derive.program.torch_ops import has_forward_mode
from derive.reports.error_translation import translating_errors

# ------------------------------------------------------------------ the derivation


def _split_axes(unit: Unit) -> Unit:
    op = unit.operation
    return unit if is_plain(op) else replace(unit, operation=split_axes(op).operation)


def _alpha_rename(unit: Unit) -> Unit:
    operation, display_names = canonical(unit.operation)
    return replace(unit, operation=operation, display_names=display_names)


def _flatten(unit: Unit) -> Unit:
    variables = unit.canonical(unit.wrt) or ()
    return replace(unit, lets=flatten_operation(unit.operation, unit.display_names, variables))


def _insert_guards(unit: Unit) -> Unit:
    unit = unit.apart()
    make_safe(unit.lets, frozenset(unit.operation.outputs))
    return unit


PREPARE: tuple[Pass[Unit], ...] = (
    Pass("split axes", "x[(t d)] = x[t,d]: each axis has one index", _split_axes),
    Pass("rename", "names follow the order of appearance, so that none decides", _alpha_rename),
    Pass("flatten", "an equation is a sum of products; other reductions are lets", _flatten),
    Pass("insert guards", "[c]·f(u) = [c]·f(u where c, else a harmless number)", _insert_guards),
)


def _differentiate(unit: Unit) -> Unit:
    (of,) = unit.canonical(unit.of) or (None,)
    wrt, lets = unit.canonical(unit.wrt), unit.lets.apart()
    return unit.with_backward(differentiate(unit.operation, lets, wrt, of))


def _push_tangents(unit: Unit) -> Unit:
    wrt, of, lets = unit.canonical(unit.wrt), unit.canonical(unit.of), unit.lets.apart()
    return unit.with_backward(differentiate_forward(unit.operation, lets, wrt, of))


def _inline_adjoints(unit: Unit) -> Unit:
    return unit.with_backward(inline_adjoints(unit.apart().backward, operation_costs))


def _solve_positions(unit: Unit) -> Unit:
    return unit.with_backward(solved(unit.apart().backward))


def _rematerialize(unit: Unit) -> Unit:
    return unit.with_backward(without_spare_reads(unit.apart().backward, unit.operation.outputs))


def _guard_gradients(unit: Unit) -> Unit:
    return unit.with_backward(safe_backward(unit.apart().backward))


def _guard_tangents(unit: Unit) -> Unit:
    return unit.with_backward(safe_forward(unit.backward))


_INLINE: tuple[Pass[Unit], ...] = (
    Pass("inline adjoints", "a name stays if the formulas cost less with it", _inline_adjoints),
    Pass("solve positions", "Σₖ δ(i, s·k)·f(k) = [s divides i]·f(i/s)", _solve_positions),
)
REVERSE: tuple[Pass[Unit], ...] = (
    *PREPARE,
    Pass(
        "differentiate",
        "grad_X[i] = Σ_F Σⱼ grad_F[j]·∂F[j]/∂X[i], deltas eliminated",
        _differentiate,
    ),
    *_INLINE,
    Pass("rematerialize", "y = g·x is read as g·x where both are read anyway", _rematerialize),
    Pass("guard gradients", "[c]·f'(u) = [c]·f'(u where c, else a number)", _guard_gradients),
)
FORWARD_MODE: tuple[Pass[Unit], ...] = (
    *PREPARE,
    Pass("push tangents", "d_F[j] = Σ_X Σᵢ ∂F[j]/∂X[i]·d_X[i]", _push_tangents),
    *_INLINE,
)
GUARD_TANGENTS: Pass[Unit] = Pass(
    "guard tangents", "[c]·f'(u) = [c]·f'(u where c, else a number)", _guard_tangents
)


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


def lowering_input(unit: Unit, flat: bool) -> LoweringInput:
    """Return the lowering input of a derivation; with ``flat``, each group is one axis."""
    whole = unit.operation, unit.lets, unit.backward
    whole = with_flat_groups(*whole) if flat else whole
    return LoweringInput(whole[0], whole[1].apart(), whole[2], Border.of(unit.given, flat=flat))


def _center(unit: Unit) -> Unit:
    lets, backward = with_centres(unit.operation, unit.lets, unit.backward)
    return replace(unit, lets=lets, backward=backward)


CENTER: Pass[Unit] = Pass(
    "center differences", "|x − y|² = |x − c|² − 2·(x − c)·(y − c) + |y − c|²", _center
)


def _center_differences(code: Code) -> Code:
    return replace(code, unit=CENTER.run(code.unit))


def _lower_bodies(code: Code) -> Code:
    layouts = partial(lowering_input, code.unit)
    lowered = lower_program(layouts, code.available, code.keeps)
    return replace(code, lowered=lowered, made=lowered.program)


def _pull_statistics(code: Code) -> Code:
    lowered, given = code.lowered, code.unit.given
    if lowered is None or code.available is not None or not code.keeps:
        return code
    inputs = [t.name for t in given.inputs if t.kind == "float"]

    def through(names: Sequence[str]) -> LoweringInput:
        said = map(code.unit.lets.display_name, names)
        unit = derive_unit((*REVERSE, CENTER), Unit.start(given, [*inputs, *said]))
        return lowering_input(unit, lowered.flat)

    return replace(code, made=pull_statistics(lowered, through))


def _specialize_none(code: Code) -> Code:
    return replace(code, made=with_absent(code.unit.given, code.program))


def _reuse_buffers(code: Code) -> Code:
    return replace(code, made=with_in_place(code.unit.given, code.program))


LOWER: tuple[Pass[Code], ...] = (
    Pass(CENTER.name, CENTER.states, _center_differences),
    Pass(
        "lower bodies",
        "a let is a call of torch; what costs more to recompute than to keep is saved",
        _lower_bodies,
    ),
    Pass(
        "pull statistics",
        "the graph leads through a saved statistic if fewer inputs are saved then",
        _pull_statistics,
    ),
)
SPECIALIZE: tuple[Pass[Code], ...] = (
    Pass("specialize None", "an input that is None reads as its default", _specialize_none),
    Pass("reuse buffers", "a result overwrites what nothing reads later", _reuse_buffers),
)


def lower(code: Code, passes: Iterable[Pass[Code]] = LOWER) -> Code:
    """Run the passes of the lowering; errors have the names of the user."""
    given = code.unit.given
    with working(given.name), translating_errors(given, code.unit.shown_names):
        return run(passes, code)


@lru_cache(maxsize=256)
@no_recursion_leaves
def program_of(op: Operation, option: str | None) -> Program:
    """Return the program of one option, before it is specialized."""
    return lower(Code(derive_option(op, option, None))).program


def specialized(op: Operation, option: str | None, least: bool = False) -> Program:
    """Return the program of one option; with ``least`` it saves only inputs and outputs."""
    unit = derive_option(op, option, None)
    made = lower(Code(unit, keeps=False)).program if least else program_of(op, option)
    return lower(Code(unit, made=made), SPECIALIZE).program


def stage_backward(
    op: Operation, wrt: Sequence[str], of: str | None, available: Collection[str] | None
) -> Program:
    """Return the backward of op with respect to ``wrt``, given ``available`` outputs."""
    unit = differentiated(op, wrt, of)
    known = None if available is None else tuple(available)
    return lower(Code(unit, known), (*LOWER, *SPECIALIZE[:1])).program


_Made = TypeVar("_Made", Joint, Tangent)


def lowered(unit: Unit, lower_body: Callable[[LoweringInput], _Made]) -> _Made:
    """Lower one body of a derivation; if that needs flat groups, with one axis for each group."""
    with working(unit.given.name), translating_errors(unit.given, unit.shown_names):
        unit = CENTER.run(unit)
        try:
            return lower_body(lowering_input(unit, False))
        except NeedsFlatGroups:
            return lower_body(lowering_input(unit, True))


def own_tangent(op: Operation, option: str | None) -> Tangent | None:
    """Return the tangent code of one option, or None where torch's forward mode suffices."""
    every = {name: program_of(op, name) for name, _ in options(op)}
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
    unit = GUARD_TANGENTS.run(tangents_of(op, option, None, of))
    return lowered(unit, partial(tangent, low=low))

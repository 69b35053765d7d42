"""The pipeline of all stages: an operation in, its derivation or its source out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

from derive.algebra.cost_order import operation_costs
from derive.blocks.tiling import block_plan
from derive.budget import check_code, working
from derive.calculus.adjoint import Backward, differentiate
from derive.calculus.alpha_renaming import canonical_parts
from derive.calculus.build_lets import flatten_operation
from derive.calculus.centering import with_centres
from derive.calculus.finalize import safe_backward, safe_forward
from derive.calculus.inline import inline_adjoints
from derive.calculus.lets import Lets
from derive.calculus.rematerialize import without_spare_reads
from derive.calculus.tangent import differentiate_forward
from derive.cost.costs import Costs, costs_of
from derive.errors import DeriveError, no_recursion_leaves
from derive.loaded import function
from derive.lowering.assembly import LoweringInput, frame_of
from derive.lowering.ground.value import NeedsFlatGroups
from derive.lowering.groups import with_flat_groups
from derive.lowering.joint import Joint
from derive.lowering.layout_conversion import Border
from derive.lowering.program import Pulled, program
from derive.lowering.tangent import tangent
from derive.module.blocked import blocked, emit_blocked
from derive.module.checks import checks
from derive.module.docstrings import document, kernels_of
from derive.module.emit import emit
from derive.module.function_codegen import Variant
from derive.module.in_place_variants import with_in_place
from derive.module.name_mangling import coded
from derive.module.none_variants import with_absent
from derive.module.stage_functions import own_names
from derive.notation.operation import Operation
from derive.notation.option_checks import (
    check_operation,
    known_names,
    known_option,
    saves_least,
)
from derive.notation.options import options
from derive.program.cse import Line
from derive.program.program import Program, Tangent
from derive.program.torch_ops import has_forward_mode
from derive.reports.derivation import (
    Derived,
    as_formulas,
    as_shown,
    cost_of,
    steps_and_names,
    trees,
)
from derive.reports.error_translation import translating_errors
from derive.reports.presentation_names import PresentationNames, definitions, formula
from derive.reports.result import Cost, Derivation, Formulas, Tangents


@lru_cache(maxsize=256)
@no_recursion_leaves
def derive_option(op: Operation, option: str | None, wrt: tuple[str, ...] | None = None) -> Derived:
    """Return the backward of one option: adjoints and gradients, deltas eliminated."""
    return differentiated(dict(options(op))[option], wrt)


@lru_cache(maxsize=256)
@no_recursion_leaves
def tangents_of(
    op: Operation,
    option: str | None,
    wrt: tuple[str, ...] | None = None,
    of: tuple[str, ...] | None = None,
) -> Derived:
    """Return the forward-mode derivatives of one option, deltas eliminated."""
    chosen = dict(options(op))[option]
    plain, display_names, given = canonical_parts(chosen)
    asked = [None if names is None else [given[n] for n in names] for names in (wrt, of)]
    with working(op.name), translating_errors(chosen, display_names):
        lets = flatten_operation(plain, display_names)
        forward = differentiate_forward(plain, lets, *asked)
        return Derived(plain, lets, inline_adjoints(forward, operation_costs))


def differentiated(
    op: Operation, wrt: Sequence[str] | None = None, of: str | None = None
) -> Derived:
    """Return the backward of op under canonical names, each axis read by an index."""
    plain, display_names, given = canonical_parts(op)
    wanted = None if wrt is None else [given[name] for name in wrt]
    with working(op.name), translating_errors(op, display_names):
        lets = flatten_operation(plain, display_names, wanted or ())
        backward = differentiate(plain, lets, wanted, None if of is None else given[of])
        backward = without_spare_reads(inline_adjoints(backward, operation_costs), plain.outputs)
        return Derived(plain, lets, safe_backward(backward))


_Made = TypeVar("_Made", Joint, Tangent)


def lowered(
    op: Operation, derived: Derived, lower: Callable[[Operation, Lets, Backward, Border], _Made]
) -> _Made:
    """Lower the derivation of op; if that needs flat groups, retry with one axis per group."""
    with working(op.name):
        lets, backward = with_centres(derived.operation, derived.lets, derived.backward)
    with working(op.name), translating_errors(op, lets.display_names):
        try:
            return lower(derived.operation, lets, backward, Border.of(op))
        except NeedsFlatGroups:
            # The code runs as fast; it only loses the names of the axes.
            flat = with_flat_groups(derived.operation, lets, backward)
            return lower(*flat, Border.of(op, flat=True))


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
        partial(steps_and_names, derive_option, op, option, names),
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
    for name in wrt or ():
        if name not in inputs:
            raise DeriveError(
                f"{op.name} has no tangents along {name}; it has tangents along {', '.join(inputs)}"
            )
    asked = [None if names is None else tuple(dict.fromkeys(names)) for names in (wrt, of)]
    derived = tangents_of(op, option, *asked)
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
        told=partial(steps_and_names, tangents_of, op, option, *asked),
    )


@no_recursion_leaves
def _code_facts(
    op: Operation, option: str | None
) -> tuple[tuple[tuple[str, str, str], ...], tuple[str, ...], Cost]:
    """Return (recognized patterns, saved tensors, cost) of the code of an option."""
    named = coded(op)
    code = program_of(named.operation, option)
    recognised = tuple(
        (named.display_name(r.equation), r.pattern, r.states) for r in code.recognised
    )
    return (
        recognised,
        tuple(named.display_name(s.name) for s in code.saved),
        cost_of(named.operation, option, code),
    )


def formulas_of(op: Operation, option: str | None, wrt: Sequence[str] | None = None) -> Formulas:
    """Return the formulas of one option."""
    given = dict(options(op))[option]
    wanted = known_names(given, wrt)
    derived = derive_option(op, option, wanted)
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
def source(op: Operation, blocks: str | None = None, save: str = "balanced") -> str:
    """Return the Python source of the torch module of an operation.

    The module defines a function with the name of the operation. Its tensors are positional, its
    parameters are keyword arguments. It imports only torch.

    Args:
        op: the operation.
        blocks: an index to process in blocks, so that a large intermediate never exists in full.
        save: "balanced" saves inputs, outputs, and intermediates that are cheaper to keep than to
            recompute; "least" saves inputs and outputs only.

    Raises:
        LoweringError: torch operations cannot express the operation.
        DeriveError: the index cannot be processed in blocks.

    >>> import derive
    >>> text = derive.source(derive.parse("op cube(x[n]) -> y; y[n] = x[n]**3"))
    >>> "class _Cube(Function):" in text
    True
    """
    check_operation(op)
    least = saves_least(save)
    if blocks is not None:
        if least:
            raise DeriveError(f"{op.name}: a module in blocks already saves little; omit save=")
        return _source_in_blocks(op, blocks)
    with working(op.name):
        code = coded(op)
        names = [option for option, _ in options(op)]
        tests = checks(code.operation, frame_of(code.operation))
        chosen = dict(options(code.operation))
        made = least_program_of if least else program_of
        programs = {name: made(code.operation, name) for name in names}
        whole = {n: with_absent(chosen[n], p) for n, p in programs.items()}
        variants = [
            Variant(n, with_in_place(chosen[n], p), own_tangent(code.operation, n))
            for n, p in whole.items()
        ]
        derivations = [formulas_of(op, option) for option in names]
        moved = [tangents(op, v.option) for v in variants if v.tangent is not None]
        doc = document(op, derivations, moved, kernels_of(programs.values()), least=least)
        text = emit(code, variants, tests, doc)
        return check_code(op.name, text)


def _source_in_blocks(op: Operation, letter: str) -> str:
    """Return the source of a module that processes an index in blocks."""
    with working(op.name):
        code = coded(op, own_names(op))
        named = code.operation
        variants = [
            blocked(option, block_plan(chosen, letter), program_of(named, option), _stage_backward)
            for option, chosen in options(named)
        ]
        kernels = kernels_of(s.program for v in variants for s in v.stages)
        derivations = [formulas_of(op, option) for option, _ in options(op)]
        doc = document(op, derivations, kernels=kernels, blocks=letter)
        text = emit_blocked(code, variants, checks(named, frame_of(named)), doc)
        return check_code(op.name, text)


def _stage_backward(
    op: Operation, wrt: Sequence[str], of: str | None, available: Collection[str] | None
) -> Program:
    """Return the backward of op with respect to ``wrt``, given ``available`` outputs."""
    return with_absent(op, _lower_program(op, differentiated(op, wrt, of), available))


@lru_cache(maxsize=256)
@no_recursion_leaves
def program_of(op: Operation, option: str | None) -> Program:
    """Return the program of one option."""
    chosen, derived = dict(options(op))[option], derive_option(op, option, None)
    inputs = [t.name for t in chosen.inputs if t.kind == "float"]

    def pulled(names: Sequence[str], flat: bool) -> LoweringInput | None:
        said = map(derived.lets.display_name, names)
        return _lowering_input(chosen, differentiated(chosen, [*inputs, *said]), flat)

    return _lower_program(chosen, derived, pulled=pulled)


def _forward_mode_slips(op: Operation) -> bool:
    """True if torch's own forward mode is wrong for some option."""
    bodies = (_differentiable_forward(op, option) for option, _ in options(op))
    return not all(has_forward_mode(line.code for line in body) for body in bodies)


@lru_cache(maxsize=256)
def _differentiable_forward(op: Operation, option: str | None) -> tuple[Line, ...]:
    """Return the forward of one option as lines that torch can differentiate."""
    made = _lower_program(dict(options(op))[option], derive_option(op, option, None))
    return made.composed or made.forward


def least_program_of(op: Operation, option: str | None) -> Program:
    """Return the program of one option that saves only inputs and outputs."""
    given = dict(options(op))[option], derive_option(op, option, None)
    return _lower_program(*given, keeps=False)


def _lower_program(
    op: Operation,
    derived: Derived,
    available: Collection[str] | None = None,
    keeps: bool = True,
    pulled: Pulled | None = None,
) -> Program:
    """Lower the derivation of op; ``available`` outputs (default: all) need no recomputation."""
    with working(op.name), translating_errors(op, derived.lets.display_names):
        plain, flat = (partial(_lowering_input, op, derived, flat) for flat in (False, True))
        return program(plain(), flat, available, keeps, pulled)


def _lowering_input(op: Operation, derived: Derived, flat: bool) -> LoweringInput:
    """Return the lowering input of a derivation; with ``flat``, each group is one axis."""
    made = with_centres(derived.operation, derived.lets, derived.backward)
    whole = derived.operation, *made
    whole = with_flat_groups(*whole) if flat else whole
    return LoweringInput(whole[0], whole[1].apart(), whole[2], Border.of(op, flat=flat))


def own_tangent(op: Operation, option: str | None) -> Tangent | None:
    """Return the tangent code of one option, or None where torch's forward mode suffices."""
    if not _forward_mode_slips(op):
        return None
    every = {name: program_of(op, name) for name, _ in options(op)}
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
    derived = tangents_of(op, option, None, of)
    safe = safe_forward(derived.backward)
    guarded = Derived(derived.operation, safe.lets, safe)
    return lowered(dict(options(op))[option], guarded, partial(tangent, low=low))


def costs(op: Operation) -> Iterator[tuple[str | None, Costs]]:
    """Yield (option, cost of its code) for each option."""
    op = coded(op).operation
    for option, chosen in options(op):
        yield option, costs_of(chosen, program_of(op, option))


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
    return function(op.name, source(op, blocks, save))

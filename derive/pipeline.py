"""The one place that knows all stages: an operation in, its derivation or its source out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from derive.algebra.cost import pieces
from derive.algebra.expr import Expr, accesses
from derive.algebra.factor import factor
from derive.budget import check_code, working
from derive.calculus.adjoint import Adjoint, Backward, differentiate
from derive.calculus.canonical import canonical
from derive.calculus.equations import flatten_operation
from derive.calculus.inline import inline_adjoints
from derive.calculus.lets import Lets
from derive.errors import DeriveError, LimitError, LoweringError, no_recursion_leaves
from derive.lowering.code import count
from derive.lowering.cost import Costs, costs_of
from derive.lowering.differences import with_centres
from derive.lowering.facade import through_facade
from derive.lowering.joint import Joint, joint
from derive.lowering.joint_facade import joint_through_facade
from derive.lowering.program import Program, frame_of, program
from derive.lowering.value import NeedsFlatGroups
from derive.memory import loaded
from derive.module.checks import checks
from derive.module.document import document, document_joint
from derive.module.emit import Variant, emit
from derive.module.joint import emit_joint
from derive.notation.given import as_given
from derive.notation.operation import Choice, Operation
from derive.notation.split import Inside, inner_operation, is_plain, split_axes
from derive.result import Cost, Derivation, Formula, Formulas
from derive.speech import Speech, definitions, formula, formula_with_steps, steps_of

__all__ = [
    "Derived",
    "costs",
    "derivation",
    "derive_option",
    "load",
    "names_with_gradient",
    "options",
    "program_of",
    "source",
    "value_and_grad",
    "value_and_grad_source",
]


@dataclass(frozen=True)
class Derived:
    """An operation under canonical names, differentiated."""

    operation: Operation
    lets: Lets
    backward: Backward


def options(op: Operation) -> Iterator[tuple[str | None, Operation]]:
    """(option, the operation that computes it): one for each option of a choice."""
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    if choice is None:
        yield None, _pruned(op, op.outputs)
        return
    for option, output in choice.outputs:
        yield option, _pruned(op, (output,))


def _pruned(op: Operation, outputs: tuple[str, ...]) -> Operation:
    """op with these outputs and the equations that lead to them."""
    wanted = set(outputs)
    kept = []
    for equation in reversed(op.equations):
        if equation.name in wanted:
            kept.append(equation)
            wanted |= {a.tensor for a in accesses(equation.body)}
            if equation.axes:
                wanted |= {a.tensor for e in equation.axes for a in accesses(e)}
    equations = tuple(reversed(kept))
    parts = (op.inputs, op.parameters, equations, outputs, op.extents)
    return Operation.resolved(op.name, *parts, stable=op.stable)


@lru_cache(maxsize=256)
@no_recursion_leaves
def derive_option(op: Operation, option: str | None, wrt: tuple[str, ...] | None = None) -> Derived:
    """The backward of one option: adjoints and gradients, deltas eliminated."""
    chosen = dict(options(op))[option]
    return _differentiated(chosen if is_plain(chosen) else split_axes(chosen).operation, wrt)


def _differentiated(
    op: Operation, wrt: Sequence[str] | None = None, of: str | None = None
) -> Derived:
    """Both directions of op under canonical names."""
    with working(op.name):
        plain, spoken = canonical(op)
    given = {name: canonical_name for canonical_name, name in spoken.items()}
    wanted = None if wrt is None else [given[name] for name in wrt]
    with working(op.name), _told_of(op, spoken):
        lets = flatten_operation(plain, spoken, wanted or ())
        backward = differentiate(plain, lets, wanted, None if of is None else given[of])
        return Derived(plain, lets, inline_adjoints(backward, pieces))


def _lowered(op: Operation, derived: Derived) -> Program:
    """The code of what was derived from op."""
    with working(op.name):
        lets, backward = with_centres(derived.operation, derived.lets, derived.backward)
    with working(op.name), _told_of(op, lets.spoken):
        return program(derived.operation, lets, backward)


@contextmanager
def _told_of(op: Operation, spoken: Mapping[str, str]) -> Iterator[None]:
    """A lowering error of the engine, in the person's names and with the equations it is about."""
    try:
        yield
    except NeedsFlatGroups:
        raise
    except LimitError as error:
        raise LimitError(_in_given_names(str(error), spoken)) from None
    except LoweringError as error:
        message = _in_given_names(str(error), spoken)
        equations = "".join(f"\n  {Formula(e.name, e.axes, e.body)}" for e in op.equations)
        raise LoweringError(f"{op.name}: {message}\nin{equations}") from None


def _in_given_names(message: str, spoken: Mapping[str, str]) -> str:
    return re.sub(r"@?\b[tpie]\d{3,}(~\w+)?\b", lambda m: spoken.get(m[0], m[0]), message)


@no_recursion_leaves
def derivation(
    op: Operation, option: str | None = None, wrt: Sequence[str] | None = None
) -> Derivation:
    """The gradients of op with their steps; of its first option where none is named.

    ``wrt`` names float inputs and equations; without it the gradients are those of all float
    inputs. An equation that is named is a variable of its own: its adjoint is kept.
    """
    _check_operation(op)
    option = _known_option(op, option)
    given = dict(options(op))[option]
    derived = derive_option(op, option, _known_names(given, wrt))
    lets, speech = derived.lets, Speech.of(given, derived.lets)
    code = program_of(op, option)
    every = (*derived.backward.adjoints, *derived.backward.gradients)
    steps = [s for a in every for s in a.steps]
    in_steps = [e for s in (*steps, *lets.steps) for e in (s.before, s.after)]
    counted = [entry.line.code for entry in code.backward]
    operations, contractions = count(counted)
    return Derivation(
        **vars(_formulas(op, option, wrt, formula_with_steps)),
        rewritten=steps_of(lets.steps, speech),
        step_definitions=definitions(lets, [*_trees(derived, speech), *in_steps], speech),
        saved=tuple(s.name for s in code.saved),
        cost=Cost(
            **vars(costs_of(given, code)),
            operations=operations,
            contractions=contractions,
            lines=len(counted),
        ),
    )


def _formulas(
    op: Operation,
    option: str | None,
    wrt: Sequence[str] | None = None,
    told: Callable[[Adjoint, Speech], Formula] = formula,
) -> Formulas:
    """The formulas of one option, as ``told`` tells an adjoint."""
    given = dict(options(op))[option]
    wanted = _known_names(given, wrt)
    derived = derive_option(op, option, wanted)
    backward, lets = derived.backward, derived.lets
    speech = Speech.of(given, lets)
    results = [a for a in backward.adjoints if a.tensor in backward.wanted]
    kept = [a for a in backward.adjoints if a.tensor not in backward.wanted]
    found = {lets.say(a.tensor): told(a, speech) for a in (*backward.gradients, *results)}
    return Formulas(
        name=op.name,
        option=option,
        cotangents=tuple((lets.say(o), lets.say(c)) for o, c in backward.cotangents),
        equations=tuple(Formula(e.name, e.axes, as_given(given, e.body)) for e in given.equations),
        definitions=definitions(lets, _trees(derived, speech), speech),
        adjoints=tuple(told(a, speech) for a in kept),
        gradients={name: found[name] for name in wanted or found},
    )


def _trees(derived: Derived, speech: Speech) -> list[Expr]:
    """What all adjoints and gradients are of, and their bodies as formulas show them."""
    every = (*derived.backward.adjoints, *derived.backward.gradients)
    lets = (derived.lets.get(a.tensor) for a in every)
    bodies = [speech.written_out(factor(a.body)) for a in every]
    return [*(let.access for let in lets if let is not None), *bodies]


def _check_operation(op: object) -> None:
    if not isinstance(op, Operation):
        raise TypeError(
            f"op must be an Operation, not {type(op).__name__}; derive.parse(text) makes one"
        )


def _known_option(op: Operation, option: str | None) -> str | None:
    names = [name for name, _ in options(op)]
    if option is None:
        return names[0]
    if option not in names:
        raise DeriveError(f"{op.name} has no option {option!r}")
    return option


def names_with_gradient(op: Operation) -> list[str]:
    """The float equations, last first as a backward goes, and the float inputs."""
    equations = [e.name for e in reversed(op.equations) if e.kind == "float"]
    return equations + [t.name for t in op.inputs if t.kind == "float"]


def _known_names(op: Operation, wrt: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names in which a gradient is asked for, once each."""
    if wrt is None:
        return None
    known = names_with_gradient(op)
    for name in wrt:
        if name not in known:
            raise DeriveError(
                f"{op.name} has no gradient of {name}; it has those of "
                f"{', '.join(known) or 'nothing'}"
            )
    return tuple(dict.fromkeys(wrt))


@no_recursion_leaves
def source(op: Operation) -> str:
    """The Python source of the module of op."""
    _check_operation(op)
    with working(op.name):
        variants = [Variant(option, program_of(op, option)) for option, _ in options(op)]
        derivations = [_formulas(op, option) for option, _ in options(op)]
        text = emit(op, variants, checks(op, frame_of(op)), document(op, derivations))
        return check_code(op.name, text)


@lru_cache(maxsize=256)
@no_recursion_leaves
def program_of(op: Operation, option: str | None) -> Program:
    """The code of one option: with the axes as given, or with each group as one axis."""
    chosen = dict(options(op))[option]
    try:
        derived = derive_option(op, option, None)
        made = _lowered(chosen, derived)
        if is_plain(chosen):
            return made
        return through_facade(chosen, split_axes(chosen), made, _adjoints(derived))
    except NeedsFlatGroups:
        # Slower to read and as fast to run: nothing is lost but the named axes.
        inside = inner_operation(chosen)
        derived = _differentiated(inside.operation)
        made = _lowered(inside.operation, derived)
        return through_facade(chosen, inside, made, _adjoints(derived))


def _adjoints(derived: Derived) -> dict[str, str]:
    """The equation of each adjoint."""
    say, of = derived.lets.say, derived.lets.derived_from
    return {say(a.name): say(of[a.name]) for a in derived.backward.adjoints}


def costs(op: Operation) -> Iterator[tuple[str | None, Costs]]:
    """(option, what its code costs) for each option."""
    for option, chosen in options(op):
        yield option, costs_of(chosen, program_of(op, option))


def load(op: Operation) -> Any:
    """The generated function of op, imported from memory."""
    _check_operation(op)
    return loaded(op.name, source(op))


@no_recursion_leaves
def value_and_grad_source(
    op: Operation,
    wrt: Sequence[str] | None = None,
    option: str | None = None,
    of: str | None = None,
) -> str:
    """The Python source of the function that `value_and_grad` imports."""
    _check_operation(op)
    chosen = _without_choice(op, _known_option(op, option))
    derived, made = _joint(chosen, _known_names(chosen, wrt), _target(chosen, of))
    if wrt is not None:
        asked = list(wrt)
        gradients = sorted(made.gradients, key=lambda entry: asked.index(entry[0]))
        made = replace(made, gradients=tuple(gradients))
    speech = Speech.of(chosen, derived.lets)
    every = (*derived.backward.adjoints, *derived.backward.gradients)
    doc = document_joint(chosen, [formula(a, speech) for a in every])
    return emit_joint(_joint_name(op), chosen, made, checks(chosen, frame_of(chosen)), doc)


def _joint_name(op: Operation) -> str:
    return f"{op.name}_value_and_grad"


def _without_choice(op: Operation, option: str | None) -> Operation:
    """The operation of one option, which leaves no choice."""
    chosen = dict(options(op))[option]
    parameters = tuple(p for p in op.parameters if not isinstance(p, Choice))
    parts = (chosen.inputs, parameters, chosen.equations, chosen.outputs, chosen.extents)
    return Operation.resolved(op.name, *parts, stable=op.stable)


def _target(op: Operation, of: str | None) -> str:
    """The output that is differentiated."""
    equations = {e.name: e for e in op.equations}
    floats = [name for name in op.outputs if equations[name].kind == "float"]
    numbers = [name for name in floats if not equations[name].axes]
    if of is not None:
        if of in floats:
            return of
        raise DeriveError(f"{op.name} has no differentiable output {of!r}: {', '.join(floats)}")
    for found in (floats, numbers):
        if len(found) == 1:
            return found[0]
    if not floats:
        raise DeriveError(f"{op.name} has no differentiable output")
    raise DeriveError(f"{op.name} has several outputs: say which by of=, {', '.join(floats)}")


def _joint(op: Operation, wrt: Sequence[str] | None, of: str) -> tuple[Derived, Joint]:
    """Outputs and gradients: with the axes as given, or with each group as one axis."""
    try:
        if is_plain(op):
            return _jointly(op, wrt, of)
        return _jointly_inside(op, split_axes(op), wrt, of)
    except NeedsFlatGroups:
        return _jointly_inside(op, inner_operation(op), wrt, of)


def _jointly_inside(
    op: Operation, inside: Inside, wrt: Sequence[str] | None, of: str
) -> tuple[Derived, Joint]:
    derived, made = _jointly(inside.operation, wrt, of)
    return derived, joint_through_facade(op, inside, made, _adjoints(derived))


def _jointly(op: Operation, wrt: Sequence[str] | None, of: str) -> tuple[Derived, Joint]:
    derived = _differentiated(op, wrt, of)
    lets, backward = with_centres(derived.operation, derived.lets, derived.backward)
    with _told_of(op, lets.spoken):
        return derived, joint(derived.operation, lets, backward)


def value_and_grad(
    op: Operation,
    wrt: Sequence[str] | None = None,
    option: str | None = None,
    of: str | None = None,
) -> Any:
    """The outputs of an operation and gradients by name, in one function without autograd.

        f(*tensors, **parameters)  ->  outputs, {name: d of / d name}

    ``wrt`` names float inputs and equations, all float inputs without it; an equation that is
    named keeps its adjoint. ``of`` is the output that is differentiated: the only one that can
    be, or the only one that has no axes. An output without axes has the cotangent 1; that of
    any other is a keyword argument ``G`` in its shape.

    >>> op = parse("L = mean[n]((x[n] - y[n])**2)")
    >>> loss, gradients = value_and_grad(op, wrt=["x"])(torch.ones(3), torch.zeros(3))
    >>> gradients["x"]
    tensor([0.6667, 0.6667, 0.6667])
    """
    text, name = value_and_grad_source(op, wrt, option, of), _joint_name(op)
    return loaded(name, text)

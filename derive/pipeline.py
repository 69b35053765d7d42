"""The one place that knows all stages: an operation in, its derivation or its source out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from derive.algebra.expr import Expr, accesses
from derive.algebra.factor import factor
from derive.algebra.length import pieces
from derive.budget import check_code, working
from derive.calculus.adjoint import Backward, differentiate
from derive.calculus.canonical import canonical
from derive.calculus.differences import with_centres
from derive.calculus.equations import flatten_operation
from derive.calculus.inline import inline_adjoints
from derive.calculus.lets import Lets
from derive.calculus.solve import safe_backward
from derive.cost.costs import Costs, costs_of
from derive.errors import DeriveError, LimitError, LoweringError, no_recursion_leaves
from derive.loaded import function
from derive.lowering.border import Border
from derive.lowering.ground.value import NeedsFlatGroups
from derive.lowering.groups import with_flat_groups
from derive.lowering.joint import Joint, joint
from derive.lowering.program import frame_of, program
from derive.module.absent import with_absent
from derive.module.bodies import Variant
from derive.module.checks import checks, filled, one_dtype
from derive.module.document import document, document_joint
from derive.module.emit import emit
from derive.module.in_place import with_in_place
from derive.module.joint import emit_joint
from derive.module.naming import coded
from derive.notation.given import as_given
from derive.notation.operation import Choice, Operation
from derive.notation.split import is_plain, split_axes
from derive.program.program import Program
from derive.program.torch_ops import count
from derive.report.result import Cost, Derivation, DerivationStep, Formula, Formulas
from derive.report.speech import Speech, definitions, formula, steps_of


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
    return _differentiated(chosen, wrt)


def _differentiated(
    op: Operation, wrt: Sequence[str] | None = None, of: str | None = None
) -> Derived:
    """Both directions of op, each axis read by an index, under canonical names."""
    with working(op.name):
        plain, spoken = canonical(op if is_plain(op) else split_axes(op).operation)
    given = {name: canonical_name for canonical_name, name in spoken.items()}
    wanted = None if wrt is None else [given[name] for name in wrt]
    with working(op.name), _told_of(op, spoken):
        lets = flatten_operation(plain, spoken, wanted or ())
        backward = differentiate(plain, lets, wanted, None if of is None else given[of])
        return Derived(plain, lets, safe_backward(inline_adjoints(backward, pieces)))


_Made = TypeVar("_Made", Program, Joint)


def _lowered(
    op: Operation, derived: Derived, lower: Callable[[Operation, Lets, Backward, Border], _Made]
) -> _Made:
    """The code of what was derived from op: with the axes as given, or each group as one axis."""
    with working(op.name):
        lets, backward = with_centres(derived.operation, derived.lets, derived.backward)
    with working(op.name), _told_of(op, lets.spoken):
        try:
            return lower(derived.operation, lets, backward, Border.of(op))
        except NeedsFlatGroups:
            # Slower to read and as fast to run: nothing is lost but the named axes.
            flat = with_flat_groups(derived.operation, lets, backward)
            return lower(*flat, Border.of(op, flat=True))


@contextmanager
def _told_of(op: Operation, spoken: Mapping[str, str]) -> Iterator[None]:
    """A lowering error of the engine, in the person's names and with the equations it is about."""
    try:
        yield
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
    found = _formulas(op, option, wrt)
    told, made = partial(_told, op, option, wrt), partial(_made, op, option)
    return Derivation(**vars(found), told=told, made=made)


@no_recursion_leaves
def _told(
    op: Operation, option: str | None, wrt: Sequence[str] | None
) -> tuple[tuple[DerivationStep, ...], tuple[Formula, ...]]:
    """The steps to the stable form, and the names that any step reads."""
    given = dict(options(op))[option]
    derived = derive_option(op, option, _known_names(given, wrt))
    lets, speech = derived.lets, Speech.of(given, derived.lets)
    every = (*derived.backward.adjoints, *derived.backward.gradients)
    steps = [s for a in every for s in a.steps]
    in_steps = [e for s in (*steps, *lets.steps) for e in (s.before, s.after)]
    named = definitions(lets, [*_trees(derived, speech), *in_steps], speech)
    return steps_of(lets.steps, speech), named


@no_recursion_leaves
def _made(
    op: Operation, option: str | None
) -> tuple[tuple[tuple[str, str, str], ...], tuple[str, ...], Cost]:
    """The patterns that made the code of an option, what it saves, and what it costs."""
    named = coded(op)
    code = program_of(named.operation, option)
    counted = [entry.line.code for entry in code.backward]
    operations, contractions = count(counted)
    cost = Cost(
        **vars(costs_of(dict(options(named.operation))[option], code)),
        operations=operations,
        contractions=contractions,
        lines=len(counted),
    )
    recognised = tuple((named.say(r.equation), r.pattern, r.states) for r in code.recognised)
    return recognised, tuple(named.say(s.name) for s in code.saved), cost


def _formulas(op: Operation, option: str | None, wrt: Sequence[str] | None = None) -> Formulas:
    """The formulas of one option."""
    given = dict(options(op))[option]
    wanted = _known_names(given, wrt)
    derived = derive_option(op, option, wanted)
    backward, lets = derived.backward, derived.lets
    speech = Speech.of(given, lets)
    results = [a for a in backward.adjoints if a.tensor in backward.wanted]
    kept = [a for a in backward.adjoints if a.tensor not in backward.wanted]
    found = {lets.say(a.tensor): formula(a, speech) for a in (*backward.gradients, *results)}
    return Formulas(
        name=op.name,
        option=option,
        cotangents=tuple((lets.say(o), lets.say(c)) for o, c in backward.cotangents),
        equations=tuple(Formula(e.name, e.axes, as_given(given, e.body)) for e in given.equations),
        definitions=definitions(lets, _trees(derived, speech), speech),
        adjoints=tuple(formula(a, speech) for a in kept),
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
        code = coded(op)
        names = [option for option, _ in options(op)]
        tests = checks(code.operation, frame_of(code.operation))
        chosen = dict(options(code.operation))
        programs = {name: program_of(code.operation, name) for name in names}
        whole = {n: with_absent(chosen[n], p) for n, p in programs.items()}
        variants = [Variant(n, with_in_place(chosen[n], p)) for n, p in whole.items()]
        derivations = [_formulas(op, option) for option in names]
        text = emit(code, variants, tests, document(op, derivations))
        return check_code(op.name, text)


@lru_cache(maxsize=256)
@no_recursion_leaves
def program_of(op: Operation, option: str | None) -> Program:
    """The code of one option."""
    derived = derive_option(op, option, None)
    return _lowered(dict(options(op))[option], derived, program)


def costs(op: Operation) -> Iterator[tuple[str | None, Costs]]:
    """(option, what its code costs) for each option."""
    op = coded(op).operation
    for option, chosen in options(op):
        yield option, costs_of(chosen, program_of(op, option))


def load(op: Operation) -> Any:
    """The generated function of op, of a module that any process may import."""
    _check_operation(op)
    return function(op.name, source(op))


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
    wanted, target, code = _known_names(chosen, wrt), _target(chosen, of), coded(chosen)
    derived, made = _joint(chosen, wanted, target)
    if code.given:
        called = {given: name for name, given in code.given.items()}
        asked = None if wanted is None else [called.get(name, name) for name in wanted]
        _, made = _joint(code.operation, asked, called.get(target, target))
    gradients = [(code.say(name), variable, value) for name, variable, value in made.gradients]
    if wanted is not None:
        gradients.sort(key=lambda entry: wanted.index(entry[0]))
    made = replace(made, gradients=tuple(gradients))
    speech = Speech.of(chosen, derived.lets)
    every = (*derived.backward.adjoints, *derived.backward.gradients)
    doc = document_joint(chosen, [formula(a, speech) for a in every])
    tests = [
        *checks(code.operation, frame_of(code.operation)),
        *one_dtype(code.operation),
        *filled(code.operation),
    ]
    return emit_joint(_joint_name(op), code, made, tests, doc)


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
    """Outputs and gradients."""
    derived = _differentiated(op, wrt, of)
    return derived, _lowered(op, derived, joint)


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
    return function(name, text)

"""The one place that knows all stages: an operation in, its derivation or its source out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from derive.algebra.cost import cost
from derive.algebra.expr import And, Expr, Reduce, Rel, accesses, fresh, substitute
from derive.algebra.factor import factor
from derive.algebra.nested import to_tree
from derive.algebra.simplify import Step
from derive.calculus.adjoint import Adjoint, Backward, differentiate, inline_adjoints
from derive.calculus.canonical import canonical, renamed
from derive.calculus.flatten import flatten_operation
from derive.calculus.lets import Let, Lets
from derive.document import document
from derive.emit import Variant, emit
from derive.errors import DeriveError, LoweringError
from derive.lowering.checks import checks
from derive.lowering.code import count
from derive.lowering.facade import inner_operation, is_plain, split_axes, through_facade
from derive.lowering.program import Program, frame_of, program
from derive.lowering.value import NeedsFlatGroups
from derive.memory import imported
from derive.result import Cost, Derivation, DerivationStep, Formula
from derive.spec.operation import Choice, Operation

__all__ = ["Derived", "derivation", "derive_option", "load", "options", "program_of", "source"]


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
    return Operation.resolved(op.name, op.inputs, op.parameters, equations, outputs, op.extents)


@lru_cache(maxsize=256)
def derive_option(op: Operation, option: str | None) -> Derived:
    """The backward of one option: adjoints and gradients, deltas eliminated."""
    chosen = dict(options(op))[option]
    return _differentiated(chosen if is_plain(chosen) else split_axes(chosen))


def _differentiated(op: Operation) -> Derived:
    """Both directions of op under canonical names."""
    plain, spoken = canonical(op)
    with _told_of(op, spoken):
        lets = flatten_operation(plain, spoken)
        return Derived(plain, lets, inline_adjoints(differentiate(plain, lets), cost))


def _lowered(op: Operation, derived: Derived) -> Program:
    """The code of what was derived from op."""
    with _told_of(op, derived.lets.spoken):
        return program(derived.operation, derived.lets, derived.backward)


@contextmanager
def _told_of(op: Operation, spoken: Mapping[str, str]) -> Iterator[None]:
    """A lowering error of the engine, in the person's names and with the equations it is about."""
    try:
        yield
    except NeedsFlatGroups:
        raise
    except LoweringError as error:
        message = re.sub(r"@?\b[tpie]\d{3}(~\w+)?\b", lambda m: spoken.get(m[0], m[0]), str(error))
        equations = "".join(f"\n  {Formula(e.name, e.axes, e.body)}" for e in op.equations)
        raise LoweringError(f"{op.name}: {message}\nin{equations}") from None


def derivation(op: Operation, option: str | None = None) -> Derivation:
    """The gradients of op with their steps; of its first option where none is named."""
    names = [name for name, _ in options(op)]
    if option is None:
        option = names[0]
    elif option not in names:
        raise DeriveError(f"{op.name} has no option {option!r}")
    derived = derive_option(op, option)
    backward, lets = derived.backward, derived.lets
    given = dict(options(op))[option]
    code = program_of(op, option)
    adjoints = tuple(_formula(a, lets.say) for a in reversed(backward.adjoints))
    gradients = {lets.say(a.tensor): _formula(a, lets.say) for a in backward.gradients}
    trees = [factor(a.body) for a in (*backward.adjoints, *backward.gradients)]
    steps = [s for a in (*backward.adjoints, *backward.gradients) for s in a.steps]
    in_steps = [e for s in steps for e in (s.before, s.after)]
    counted = [entry.line.code for entry in code.backward]
    return Derivation(
        name=op.name,
        option=option,
        cotangents=tuple((lets.say(o), lets.say(c)) for o, c in backward.cotangents),
        equations=tuple(Formula(e.name, e.axes, e.body) for e in given.equations),
        definitions=_definitions(lets, trees),
        step_definitions=_definitions(lets, [*trees, *in_steps]),
        adjoints=adjoints,
        gradients=gradients,
        saved=tuple(s.name for s in code.saved),
        cost=Cost(*count(counted), len(counted)),
    )


def _formula(adjoint: Adjoint, say: Callable[[str], str]) -> Formula:
    """The adjoint in nested form; factoring is the last of its steps."""
    nested, last = factor(adjoint.body), to_tree(adjoint.body)
    log = list(adjoint.steps)
    subject = (adjoint.name, adjoint.formals)
    if nested is not last:
        log.append(Step("factor", "a·b + a·c = a·(b + c)", last, nested, subject))
    body, axes = renamed(nested, say), tuple(renamed(i, say) for i in adjoint.formals)
    return Formula(say(adjoint.name), axes, body, tuple(_step(s, say) for s in log))


def _step(step: Step, say: Callable[[str], str]) -> DerivationStep:
    name, axes = step.subject
    before, after = (renamed(to_tree(e), say) for e in (step.before, step.after))
    spoken = tuple(renamed(i, say) for i in axes)
    return DerivationStep(say(name), spoken, step.rule, step.states, before, after)


def _definition(let: Let, say: Callable[[str], str]) -> Formula:
    """A name of the engine's own as an equation."""
    body = factor(let.body)
    condition = None if let.condition is None else factor(let.condition)
    if let.kind == "others":
        (k,) = let.binders
        other = fresh(k, let.formals)
        body = substitute(body, {k: other})
        apart: Expr = Rel("!=", other, k)
        if condition is not None:
            apart = And((substitute(condition, {k: other}), apart))
        body = Reduce("prod", (other,), body, apart)
    elif let.kind != "sum":
        body = Reduce(let.kind, let.binders, body, condition)
    axes = tuple(renamed(i, say) for i in let.formals)
    return Formula(say(let.name), axes, renamed(body, say))


def _definitions(lets: Lets, expressions: Sequence[Expr]) -> tuple[Formula, ...]:
    """The engine's own names that the expressions read, in order of definition."""
    wanted: set[str] = set()
    pending = list(expressions)
    while pending:
        for access in accesses(pending.pop()):
            let = lets.get(access.tensor)
            if let is not None and let.internal and let.name not in wanted:
                wanted.add(let.name)
                pending.append(let.body)
    return tuple(_definition(let, lets.say) for let in lets if let.name in wanted)


def source(op: Operation) -> str:
    """The Python source of the module of op."""
    variants = []
    for option, _ in options(op):
        variants.append(Variant(option, program_of(op, option)))
    derivations = [derivation(op, option) for option, _ in options(op)]
    return emit(op, variants, checks(op, frame_of(op)), document(op, derivations))


@lru_cache(maxsize=256)
def program_of(op: Operation, option: str | None) -> Program:
    """The code of one option: with the axes as given, or with each group as one axis."""
    chosen = dict(options(op))[option]
    if is_plain(op):
        try:
            return _lowered(chosen, derive_option(op, option))
        except NeedsFlatGroups:
            # Slower to read and as fast to run: nothing is lost but the named axes.
            pass
    inner = inner_operation(chosen)
    return through_facade(chosen, _lowered(inner, _differentiated(inner)))


def load(op: Operation) -> Any:
    """The generated function of op, imported from memory."""
    return getattr(imported(f"derive_generated_{op.name}", source(op)), op.name)

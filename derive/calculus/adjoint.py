"""Reverse mode over the lets: one adjoint for each equation, then one gradient for each input.

    grad_X[i] = Sum over equations v that read X, Sum_j grad_v[j] * dv[j]/dX[i]

Every adjoint starts as a name of its own; `inline_adjoints` then opens those whose name costs
more than it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Access, Add, Expr, Index, Mul, Reduce, accesses, substitute
from derive.algebra.nested import to_tree
from derive.algebra.poly import ZERO, Poly, add, atom, mul, sum_over
from derive.algebra.rules import DELTA_RULES, Rule
from derive.algebra.simplify import Log, Step, eliminate_deltas, simplify
from derive.calculus.fold import fold_rules, inline
from derive.calculus.lets import Let, Lets
from derive.calculus.pullback import apart, partial_of_let, reads
from derive.spec.operation import Operation

__all__ = ["Adjoint", "Backward", "differentiate", "inline_adjoints"]

_MOST_TERMS = 6
"""An adjoint with more terms than this is never inlined: sums multiply out."""


@dataclass(frozen=True)
class Adjoint:
    """The gradient of the loss in one tensor: ``name[formals] = body``, and its derivation."""

    tensor: str
    name: str
    formals: tuple[Index, ...]
    body: Poly
    steps: tuple[Step, ...]

    def as_let(self) -> Let:
        """The adjoint as a definition."""
        return Let(self.name, self.formals, self.body)


@dataclass(frozen=True)
class Backward:
    """Adjoints of equations (in the order they are computed) and gradients of inputs."""

    lets: Lets
    cotangents: tuple[tuple[str, str], ...]
    """(output, the name of its cotangent), in order."""
    adjoints: tuple[Adjoint, ...]
    gradients: tuple[Adjoint, ...]


def differentiate(op: Operation, lets: Lets) -> Backward:
    """All adjoints of op, deltas eliminated, none inlined."""
    rules = (*DELTA_RULES, *fold_rules(lets))
    inputs = {t.name: t.axes for t in op.inputs if t.kind == "float"}
    moving = _moving(lets, inputs)
    outputs = [name for name in op.outputs if name in moving]
    stems = ["G"] if len(outputs) == 1 else [f"G_{lets.say(name)}" for name in outputs]
    cotangents = []
    for name, stem in zip(outputs, stems, strict=True):
        cotangents.append((name, lets.derived_name(name, stem)))
    raw: dict[str, Poly] = {
        name: atom(Access(named, lets[name].formals)) for name, named in cotangents
    }
    logs: dict[str, Log] = {}
    pulled: dict[str, list[Expr]] = {}
    adjoints: list[Adjoint] = []
    spec_lets = [let for let in lets if not let.internal]
    names = {
        let.name: lets.derived_name(let.name, f"grad_{lets.say(let.name)}") for let in spec_lets
    }
    for let in reversed(spec_lets):
        if let.name not in raw:
            continue
        subject = (names[let.name], let.formals)
        unfinished = pulled.get(let.name, [])
        body, steps = _finish(subject, raw[let.name], unfinished, rules, logs.get(let.name, []))
        adjoint = Adjoint(let.name, names[let.name], let.formals, body, steps)
        if not _is_copy(adjoint):
            adjoints.append(adjoint)
        for tensor in reads(lets, let):
            if tensor not in moving and tensor not in inputs:
                continue
            axes = inputs[tensor] if tensor in inputs else lets[tensor].formals
            j = apart(let.formals, _indices(axes))
            partial = partial_of_let(lets, let, j, tensor, _indices(axes))
            cotangent = _at(adjoint, j)
            product = Mul((to_tree(cotangent), to_tree(partial)))
            pulled.setdefault(tensor, []).append(Reduce("sum", j, product) if j else product)
            logs.setdefault(tensor, []).append(
                Step(
                    f"partial derivative of {lets.say(let.name)}",
                    "∂X[j]/∂X[i] = δ(i, j)",
                    partial,
                    partial,
                    (f"∂{lets.say(let.name)}/∂{lets.say(tensor)}", (*j, *_indices(axes))),
                )
            )
            raw[tensor] = add(raw.get(tensor, ZERO), sum_over(mul(cotangent, partial), j))
    gradients = []
    for name, axes in inputs.items():
        gradient = lets.derived_name(name, f"grad_{lets.say(name)}")
        subject = (gradient, _indices(axes))
        body, steps = _finish(
            subject, raw.get(name, ZERO), pulled.get(name, []), rules, logs.get(name, [])
        )
        gradients.append(Adjoint(name, gradient, _indices(axes), body, steps))
    return Backward(lets, tuple(cotangents), tuple(adjoints), tuple(gradients))


def _indices(axes: Sequence[object]) -> tuple[Index, ...]:
    assert all(isinstance(i, Index) for i in axes)
    return tuple(i for i in axes if isinstance(i, Index))


def _moving(lets: Lets, inputs: Mapping[str, tuple[object, ...]]) -> set[str]:
    """The equations of the spec that depend smoothly on a float input."""
    moving: set[str] = set()
    for let in lets:
        if not let.internal and let.dtype == "float":
            if any(name in inputs or name in moving for name in reads(lets, let)):
                moving.add(let.name)
    return moving


def _at(adjoint: Adjoint, positions: Sequence[Index]) -> Poly:
    """The adjoint at these positions: by name, or what it is a copy of."""
    if not _is_copy(adjoint):
        return atom(Access(adjoint.name, tuple(positions)))
    body = substitute(adjoint.body, dict(zip(adjoint.formals, positions, strict=True)))
    assert isinstance(body, Poly)
    return body


def _finish(
    subject: tuple[str, tuple[Index, ...]],
    p: Poly,
    pulled: Sequence[Expr],
    rules: Sequence[Rule],
    partials: Sequence[Step],
) -> tuple[Poly, tuple[Step, ...]]:
    """Deltas eliminated, known sums taken, the forward's names put back; with the steps."""
    before = to_tree(p) if not pulled else (pulled[0] if len(pulled) == 1 else Add(tuple(pulled)))
    log: Log = [Step("chain rule", "∂L/∂X[i] = Σⱼ ∂L/∂F[j]·∂F[j]/∂X[i]", before, p)]
    p = eliminate_deltas(p, [r for r in rules if r in DELTA_RULES], log)
    p = simplify(p, rules, log)
    return p, (*partials, *_of(subject, log))


def _of(subject: tuple[str, tuple[Index, ...]], log: Log) -> list[Step]:
    return [step if step.subject[0] else replace(step, subject=subject) for step in log]


def inline_adjoints(backward: Backward, cost: Callable[[Poly], float]) -> Backward:
    """Open every adjoint whose name does not pay for itself.

    Adjoints are visited in program order and then in reverse; one is opened where the cost of
    what reads it does not rise by more than the adjoint itself cost.
    """
    rules = fold_rules(backward.lets)
    adjoints = list(backward.adjoints)
    gradients = list(backward.gradients)
    names = [a.name for a in adjoints]
    for order in (names[::-1], names):
        for name in order:
            adjoint = _named(name, adjoints)
            if adjoint is None or len(adjoint.body.terms) > _MOST_TERMS:
                continue
            opened = _open(adjoint, adjoints, gradients, rules, backward.lets.say)
            readers = _readers(adjoint, adjoints, gradients)
            after = {a.name: a for a in (*opened[0], *opened[1])}
            old = sum(cost(a.body) for a in readers) + cost(adjoint.body)
            if sum(cost(after[a.name].body) for a in readers) <= old:
                adjoints, gradients = opened
    return replace(backward, adjoints=tuple(adjoints), gradients=tuple(gradients))


def _named(name: str, adjoints: Sequence[Adjoint]) -> Adjoint | None:
    return next((a for a in adjoints if a.name == name), None)


def _is_copy(adjoint: Adjoint) -> bool:
    if len(adjoint.body.terms) != 1:
        return False
    (t,) = adjoint.body.terms
    return t.coef == 1 and not t.binders and all(isinstance(f, Access) for f in t.factors)


def _readers(
    adjoint: Adjoint, adjoints: Sequence[Adjoint], gradients: Sequence[Adjoint]
) -> list[Adjoint]:
    return [a for a in (*adjoints, *gradients) if any(accesses(a.body, adjoint.name))]


def _open(
    adjoint: Adjoint,
    adjoints: Sequence[Adjoint],
    gradients: Sequence[Adjoint],
    rules: Sequence[Rule],
    say: Callable[[str], str],
) -> tuple[list[Adjoint], list[Adjoint]]:
    """The program without this adjoint's name."""
    definition = adjoint.as_let()

    def opened(reader: Adjoint) -> Adjoint:
        if not any(accesses(reader.body, adjoint.name)):
            return reader
        log: Log = []
        body = inline(reader.body, definition)
        spoken = say(adjoint.name)
        states = f"{spoken} by its definition"
        log.append(Step(f"substitute {spoken}", states, reader.body, body))
        body = simplify(eliminate_deltas(body, DELTA_RULES, log), rules, log)
        own = _of((reader.name, reader.formals), log)
        shared = [s for s in adjoint.steps if s not in reader.steps]
        return replace(reader, body=body, steps=(*shared, *reader.steps, *own))

    return (
        [opened(a) for a in adjoints if a.name != adjoint.name],
        [opened(g) for g in gradients],
    )

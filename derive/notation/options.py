"""The options of a choice: the operation that computes each of them."""

from __future__ import annotations

from collections.abc import Iterator

from derive.algebra.expr import accesses
from derive.notation.operation import Choice, Equation, Operation


def options(op: Operation) -> Iterator[tuple[str | None, Operation]]:
    """Yield (option, the operation that computes it) for each option of the choice."""
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    if choice is None:
        yield None, _pruned(op, op.outputs)
        return
    for option, output in choice.outputs:
        yield option, _pruned(op, (output,))


def without_choice(op: Operation, option: str | None) -> Operation:
    """Return the operation of one option, without its choice parameter."""
    chosen = dict(options(op))[option]
    parameters = tuple(p for p in op.parameters if not isinstance(p, Choice))
    parts = (chosen.inputs, parameters, chosen.equations, chosen.outputs, chosen.extents)
    return type(op).resolved(op.name, *parts, stable=op.stable)


def _pruned(op: Operation, outputs: tuple[str, ...]) -> Operation:
    """Return op with these outputs and the equations that they depend on."""
    parts = (op.inputs, op.parameters, depended_on(op, outputs), outputs, op.extents)
    return type(op).resolved(op.name, *parts, stable=op.stable)


def depended_on(op: Operation, names: tuple[str, ...]) -> tuple[Equation, ...]:
    """Return the equations with these names and those that they depend on, in order."""
    wanted = set(names)
    kept = []
    for equation in reversed(op.equations):
        if equation.name in wanted:
            kept.append(equation)
            wanted |= {a.tensor for a in accesses(equation.body)}
            if equation.axes:
                wanted |= {a.tensor for e in equation.axes for a in accesses(e)}
    return tuple(reversed(kept))

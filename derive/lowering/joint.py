"""The code of an operation and its gradients in one function, without autograd.

What the forward computes is at hand for the gradients, so nothing is saved and nothing is
computed again; what neither needs is not computed at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from derive.calculus.adjoint import Backward
from derive.calculus.lets import Let, Lets
from derive.lowering.code import Attribute, Code, Conditional, Method, Name
from derive.lowering.kept import added_axes, entered_axes
from derive.lowering.lower import Lowering
from derive.lowering.program import (
    WIDTH,
    frame_of,
    input_values,
    integers_of,
    like_input,
    sources_of,
    spoken_lines,
    with_winners,
)
from derive.lowering.resolve import Shapes
from derive.lowering.tidy import Line, names_in, tidy
from derive.lowering.value import Frame, Value
from derive.notation.operation import Operation

__all__ = ["Cotangent", "Joint", "joint"]


@dataclass(frozen=True)
class Cotangent:
    """An argument that stands for dL/d output, and the shape that it must have."""

    name: str
    output: str
    shape: Code


@dataclass(frozen=True)
class Joint:
    """Outputs, then gradients by name.

    ``forward`` computes all outputs; ``backward`` reads whatever it left.
    """

    forward: tuple[Line, ...]
    results: tuple[tuple[str, Code], ...]
    """(output, what is returned for it), in order."""
    cotangents: tuple[Cotangent, ...]
    backward: tuple[Line, ...]
    gradients: tuple[tuple[str, str, Code], ...]
    """(input or equation, the variable of its gradient, what is returned for it)."""


def joint(op: Operation, lets: Lets, backward: Backward) -> Joint:
    """Lower the outputs of ``op`` and the gradients that are wanted, in this order."""
    frame, say = frame_of(op), lets.say
    tensors = input_values(op)
    adjoints = {a.name: a.as_let() for a in (*backward.adjoints, *backward.gradients)}
    wanted = [*backward.gradients, *(a for a in backward.adjoints if a.tensor in backward.wanted)]

    def find(name: str) -> Let | None:
        return adjoints.get(name) or lets.get(name)

    at_hand = dict(tensors)
    entered: list[Line] = []
    cotangents = []
    for output, name in backward.cotangents:
        value, narrow = _cotangent(op, frame, lets[output], name)
        at_hand[name] = value
        entered += narrow
        shape = Attribute(_result(op, frame, lets[output]), "shape")
        cotangents.append(Cotangent(say(name), say(output), shape))
    known = frozenset(adjoints)
    scope = Lowering(find, frame, at_hand, like_input(op), integers_of(op), adjoints=known)
    for name in op.outputs:
        scope.tensor(name)
    for a in wanted:
        scope.tensor(a.name)
    shapes = Shapes({e.name: e for e in op.extents}, frame, sources_of(tensors))
    lines = []
    for s in scope.statements:
        let = find(s.name)
        assert let is not None
        lines.append(Line(s.name, shapes.resolve(s.code), kept=not let.internal))
    taken = {*lets.reserved, *(say(let.name) for let in lets)}
    whole = tidy(spoken_lines(with_winners(lines), lets), taken, WIDTH)
    first, second = _halves(whole, {say(name) for name in op.outputs})
    read = {name for line in second for name in names_in(line.code)}
    entry = [line for line in spoken_lines(entered, lets) if line.name in read]
    results = spoken_lines([Line(n, _result(op, frame, lets[n])) for n in op.outputs], lets)
    return Joint(
        forward=tuple(first),
        results=tuple((line.name, line.code) for line in results),
        cotangents=tuple(
            replace(c, shape=spoken_lines([Line("", c.shape)], lets)[0].code) for c in cotangents
        ),
        backward=(*entry, *second),
        gradients=tuple((say(a.tensor), say(a.name), Name(say(a.name))) for a in wanted),
    )


def _halves(lines: Sequence[Line], outputs: set[str]) -> tuple[list[Line], list[Line]]:
    """What leads to the outputs, and what comes after."""
    last = max((n for n, line in enumerate(lines) if line.name in outputs), default=-1)
    return list(lines[: last + 1]), list(lines[last + 1 :])


def _result(op: Operation, frame: Frame, let: Let) -> Code:
    """An output with the axes that flags keep."""
    code: Code = Name(let.name)
    for flag, place in added_axes(op, let.formals, frame):
        code = Conditional(flag, Method(code, "unsqueeze", (place,)), code)
    return code


def _cotangent(op: Operation, frame: Frame, let: Let, name: str) -> tuple[Value, list[Line]]:
    """A cotangent with every axis that a flag may have kept, and the line that gives it them."""
    axes, missing = entered_axes(op, let.formals, frame)
    lines = []
    for flag, place in missing:
        wide = Method(Name(name), "unsqueeze", (place,))
        lines.append(Line(name, Conditional(flag, Name(name), wide)))
    return Value(Name(name), axes), lines

"""The equation that all options of a choice reduce: mean, sum and none of one loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from derive.algebra.expr import Index
from derive.notation.operation import (
    Choice,
    Equation,
    Operation,
    Tensor,
    depended_on,
    options,
    without_choice,
)


@dataclass(frozen=True)
class CommonOutput:
    """An operation with a choice, in two parts: what all options read, and what each makes of it.

    With the input ``loss`` of its own, each of ``options`` computes one output of the operation.
    """

    common: Operation
    """The operation without the choice; its output is the output of one option."""
    choice: str
    option: str
    """The option that returns the common output itself."""
    others: Mapping[str, Operation]
    """What each other option makes of it."""

    @property
    def equation(self) -> Equation:
        """The equation of the common output."""
        (name,) = self.common.outputs
        return next(e for e in self.common.equations if e.name == name)


def common_output(op: Operation) -> CommonOutput | None:
    """Return the two parts of an operation whose options all reduce the output of one of them."""
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    if choice is None:
        return None
    outputs = dict(choice.outputs)
    equations = {e.name: e for e in op.equations}
    for option, name in outputs.items():
        common, others = equations[name], {o: n for o, n in outputs.items() if n != name}
        if common.kind != "float" or not all(isinstance(i, Index) for i in common.axes):
            continue
        if others and all(_reduces(op, equations[n], common) for n in others.values()):
            whole = without_choice(op, option)
            rests = {o: _beyond(whole, op, n, common) for o, n in others.items()}
            return CommonOutput(whole, choice.name, option, rests)
    return None


def _reduces(op: Operation, output: Equation, common: Equation) -> bool:
    """True if the output has fewer axes than the common equation, and depends on it."""
    read = depended_on(op, (output.name,))
    return len(output.axes) < len(common.axes) and any(e is common for e in read)


def _beyond(whole: Operation, op: Operation, output: str, common: Equation) -> Operation:
    """Return the operation that computes an output from the common equation and the inputs."""
    given = Tensor(common.name, common.axes)
    indices = [(n, i.extent) for n, i in enumerate(common.axes) if isinstance(i, Index)]
    extents = tuple(
        replace(e, sources=(*e.sources, *((common.name, n) for n, own in indices if own == e.name)))
        for e in whole.extents
    )
    equations = tuple(e for e in op.equations if e is not common)
    parts = {"equations": equations, "outputs": (output,), "extents": extents}
    made = whole.replaced(inputs=(given, *whole.inputs), **parts)
    return dict(options(made))[None]

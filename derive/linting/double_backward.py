"""Rules DRV4xx: second derivatives."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from derive.linting.source_model import At, FunctionReading, listed
from derive.linting.values import Token, Tokens, node_position


def saved_intermediate(reading: FunctionReading) -> Iterator[At]:
    """Double backward treats a saved intermediate as a constant."""
    function = reading.function
    if function.once or not function.backward.plain or any(no_derivative(reading)):
        return
    if reading.backward.of_kind("guard"):
        return
    if any(f.own_graph for f in (reading.forward, reading.keeping, reading.backward)):
        return
    used: Tokens = frozenset().union(*(v.slopes for v in reading.returned))
    for event in reading.keeping.of_kind("save_for_backward"):
        names = [
            ast.unparse(node)
            for n, (node, value) in enumerate(zip(event.node.args, event.others, strict=False))  # type: ignore[attr-defined]
            if Token("saved", n) in used
            and n < len(reading.saved)
            and reading.kind(reading.saved[n]) == "intermediate"
            and reading.kind(value) == "intermediate"
            and reading.smooth(value)
        ]
        if names and not any(isinstance(a, ast.Starred) for a in event.node.args):  # type: ignore[attr-defined]
            what = f"{listed(names)} as {'a constant' if len(names) == 1 else 'constants'}"
            text = f"double backward treats {what}; mark backward once_differentiable"
            yield At(event.node, text)


def no_derivative(reading: FunctionReading) -> Iterator[At]:
    """Backward has a step without a derivative, and is not once_differentiable."""
    function = reading.function
    if function.once or not function.backward.plain or not reading.returned:
        return
    if reading.backward.of_kind("guard"):
        return
    used: Tokens = frozenset().union(*(v.slopes for v in reading.returned))
    launches = reading.backward.of_kind("launch")
    cuts = [cut for token, cut in reading.backward.cuts.items() if token in used]
    steps = [(event.node, "a kernel", event.value.reads) for event in launches]
    steps += [(cut.node, f"`{cut.what}`", cut.slopes) for cut in cuts]
    for node, what, tokens in sorted(steps, key=lambda step: node_position(step[0])):
        if any(_differentiable(reading, t) for t in tokens):
            yield At(node, f"{what} has no derivative; mark backward once_differentiable")
            return


def _differentiable(reading: FunctionReading, token: Token) -> bool:
    """True if a tensor of backward depends on an input that has a gradient."""
    if token.kind == "cotangent":
        return True
    value = reading.kept_value(token)
    return value is not None and reading.smooth(value)

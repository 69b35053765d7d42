"""Rules DRV4xx: second derivatives."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from derive.linting.finding import At, listed
from derive.linting.reading import Reading, first
from derive.linting.values import Token, Tokens


def saved_intermediate(reading: Reading) -> Iterator[At]:
    """Double backward takes a saved intermediate for a constant."""
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
            yield At(
                event.node,
                f"double backward takes {listed(names)} for "
                f"{'a constant' if len(names) == 1 else 'constants'}; "
                "mark backward once_differentiable or save inputs and outputs only",
            )


def no_derivative(reading: Reading) -> Iterator[At]:
    """backward calls what has no derivative, without once_differentiable."""
    function = reading.function
    if function.once or not function.backward.plain or not reading.returned:
        return
    if reading.backward.of_kind("guard"):
        return
    launch = first(
        [
            event
            for event in reading.backward.of_kind("launch")
            if any(_differentiable(reading, t) for t in event.value.reads)
        ]
    )
    found = [(launch.node, "a kernel")] if launch else []
    used: Tokens = frozenset().union(*(v.slopes for v in reading.returned))
    for token, cut in reading.backward.cuts.items():
        if token in used and any(_differentiable(reading, t) for t in cut.slopes):
            found.append((cut.node, f"`{cut.what}`"))
    for node, what in sorted(found, key=lambda f: (f[0].lineno, f[0].col_offset))[:1]:  # type: ignore[attr-defined]
        yield At(
            node,
            f"{what} has no derivative; mark backward once_differentiable, "
            "else double backward is silently wrong",
        )


def _differentiable(reading: Reading, token: Token) -> bool:
    """Whether a tensor of backward depends on an input that has a gradient."""
    if token.kind == "cotangent":
        return True
    value = reading.kept_value(token)
    return value is not None and reading.smooth(value)

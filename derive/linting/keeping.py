"""Rules DRV1xx: what forward keeps for backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from derive.linting.finding import At, listed
from derive.linting.reading import Reading
from derive.linting.values import Level, Token, Value


def tensor_on_ctx(reading: Reading) -> Iterator[At]:
    """A tensor is kept as an attribute of ctx."""
    flows = {id(f): f for f in (reading.forward, reading.keeping)}.values()
    for flow in flows:
        for event in flow.of_kind("keep"):
            node = event.node
            if isinstance(node, ast.Attribute) and _holds_tensor(event.value):
                yield At(
                    node,
                    f"`{ast.unparse(node)}` holds {_described(reading, event.value)}; "
                    "keep tensors with save_for_backward",
                )


def _holds_tensor(value: Value) -> bool:
    if value.items is not None:
        return any(map(_holds_tensor, value.items))
    return value.tensor and not value.void


def _described(reading: Reading, value: Value) -> str:
    if value.items is not None:
        return "tensors"
    kind = reading.kind(value)
    name = reading.input_name(value)
    if kind == "input":
        return f"the input `{name}`" if name else "an input"
    return {"output": "an output of forward"}.get(kind, "a tensor")


def second_save(reading: Reading) -> Iterator[At]:
    """A second save_for_backward replaces the first."""
    for body in _bodies(reading):
        seen = None
        for statement in body:
            if reading.is_save(statement):
                if seen is not None:
                    yield At(
                        statement,
                        f"this call replaces the tensors saved in line {seen}; "
                        "save all tensors in one call",
                    )
                seen = statement.lineno


def _bodies(reading: Reading) -> Iterator[list[ast.stmt]]:
    """The statement lists of the method that saves."""
    method = reading.function.setup or reading.function.forward
    for node in ast.walk(method.node):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


def unmarked_change(reading: Reading) -> Iterator[At]:
    """forward changes an input in place without mark_dirty."""
    flows = [reading.forward, reading.keeping]
    if any(f.escapes or f.of_kind("mark_dirty") or f.of_kind("lost") for f in flows):
        return
    seen: set[Token] = set()
    for event in reading.forward.of_kind("changed"):
        value = event.value
        numbers = {t.key for t in value.roots if t.kind == "input"}
        if len(numbers) != len(value.roots) or value.level > Level.VIEW or len(numbers) != 1:
            continue
        if any(other.roots & value.roots for other in event.others):
            continue  # x.copy_(x)
        if value.roots <= seen:
            continue
        seen |= value.roots
        if numbers <= reading.differentiable and not reading.through_data(event.node):
            yield At(
                event.node,
                f"forward changes the input {listed([reading.input_name(value)])} in place; "
                "clone it, or return it and declare it with ctx.mark_dirty",
            )

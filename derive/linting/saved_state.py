"""Rules DRV1xx: what forward keeps for backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from derive.linting.source_model import At, FunctionReading
from derive.linting.values import AliasLevel, Token, TrackedValue


def tensor_on_ctx(reading: FunctionReading) -> Iterator[At]:
    """A tensor is kept on ctx as an attribute."""
    flows = {id(f): f for f in (reading.forward, reading.keeping)}.values()
    for flow in flows:
        for event in flow.of_kind("keep"):
            node = event.node
            if isinstance(node, ast.Attribute) and _holds_tensor(event.value):
                what = f"`{ast.unparse(node)}` holds {_described(reading, event.value)}"
                yield At(node, f"{what}; keep tensors with save_for_backward")


def _holds_tensor(value: TrackedValue) -> bool:
    if value.items is not None:
        return any(map(_holds_tensor, value.items))
    return value.tensor and not value.void


def _described(reading: FunctionReading, value: TrackedValue) -> str:
    if value.items is not None:
        return "tensors"
    kind = reading.kind(value)
    if kind == "input":
        name = reading.input_name(value)
        return f"the input `{name}`" if name else "an input"
    return "an output of forward" if kind == "output" else "a tensor"


def second_save(reading: FunctionReading) -> Iterator[At]:
    """A second save_for_backward replaces the first."""
    saves = [event.node for event in reading.keeping.of_kind("save_for_backward")]
    for body in _statement_lists(reading):
        seen = None
        for statement in body:
            if isinstance(statement, ast.Expr) and statement.value in saves:
                if seen is not None:
                    yield At(statement, f"this call replaces the tensors saved in line {seen}")
                seen = statement.lineno


def _statement_lists(reading: FunctionReading) -> Iterator[list[ast.stmt]]:
    """The statement lists of the method that saves."""
    method = reading.function.setup or reading.function.forward
    for node in ast.walk(method.node):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


def unmarked_change(reading: FunctionReading) -> Iterator[At]:
    """Forward changes an input in place without mark_dirty."""
    flows = [reading.forward, reading.keeping]
    if any(f.escapes or f.of_kind("mark_dirty") or f.of_kind("lost") for f in flows):
        return
    seen: set[Token] = set()
    for event in reading.forward.of_kind("changed"):
        value = event.value
        numbers = {t.key for t in value.roots if t.kind == "input"}
        if len(numbers) != len(value.roots) or value.level > AliasLevel.VIEW or len(numbers) != 1:
            continue
        if any(other.roots & value.roots for other in event.others) or value.roots <= seen:
            continue  # x.copy_(x)
        seen |= value.roots
        parts = ast.walk(event.node)
        if any(isinstance(n, ast.Attribute) and n.attr == "data" for n in parts):
            continue  # around autograd on purpose
        if numbers <= reading.differentiable:
            what = f"forward changes the input `{reading.input_name(value)}` in place"
            yield At(event.node, f"{what}; clone it, or call ctx.mark_dirty")

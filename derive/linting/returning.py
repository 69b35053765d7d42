"""Rules DRV2xx: what backward takes and returns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from derive.linting.finding import At
from derive.linting.functions import Method
from derive.linting.reading import Reading
from derive.linting.values import Level, Value


def number_of_gradients(reading: Reading) -> Iterator[At]:
    """backward returns a wrong number of gradients."""
    function = reading.function
    if not (function.forward.plain and function.backward.plain):
        return
    marked = any(f.of_kind("mark_non_differentiable") for f in (reading.forward, reading.keeping))
    if marked and not reading.returned:
        return
    most = len(function.inputs)
    least = most - min(most, len(function.forward.node.args.defaults))
    for event, gradients in zip(reading.backward.of_kind("return"), reading.gradients, strict=True):
        if gradients is None:
            continue
        count = len(gradients)
        wanted = _numbers(least, most, function.forward.star)
        if event.value.listed:
            yield At(event.node, f"backward returns a list; return a tuple of {wanted}")
        elif count < least:
            yield At(
                event.node,
                f"backward returns {_gradients(count)}; forward has {wanted} besides ctx"
                if not function.setup
                else f"backward returns {_gradients(count)}; forward has {wanted}",
            )
        elif not function.forward.star and any(_is_gradient(v) for v in gradients[most:]):
            yield At(event.node, f"backward returns {_gradients(count)}; forward has {wanted}")


def _gradients(count: int) -> str:
    return f"{count} gradient{'s' * (count != 1)}"


def _numbers(least: int, most: int, star: str | None) -> str:
    count = f"{least} to {most}" if least < most else f"{most}"
    count = f"at least {least}" if star else count
    return f"{count} argument{'s' * (count != '1')}"


def _is_gradient(value: Value) -> bool:
    return value.tensor and not value.none and not value.void


def number_of_cotangents(reading: Reading) -> Iterator[At]:
    """backward takes a wrong number of cotangents."""
    function = reading.function
    if not (function.forward.plain and function.backward.plain) or not reading.outputs:
        return
    if None in reading.outputs or not reading.gradients:
        return
    counts = {len(o) for o in reading.outputs if o is not None}
    most = len(function.cotangents)
    least = most - min(most, len(function.backward.node.args.defaults))
    if len(counts) == 1 and not reading.forward.of_kind("lost"):
        (count,) = counts
        if count < least or (count > most and not function.backward.star):
            yield At(
                function.backward.node,
                f"backward takes {most} cotangent{'s' * (most != 1)}; "
                f"forward returns {count} output{'s' * (count != 1)}",
            )


def unbound_gradient(reading: Reading) -> Iterator[At]:
    """A returned gradient has a value only if some input needs one."""
    if len(reading.differentiable) < 2:
        return
    ctx = re.escape(reading.function.backward.ctx)
    wanted = re.compile(rf"(?:{ctx}\.needs_input_grad\[\d+\]|[\s()]|\b(?:and|not)\b)+")
    returned = {
        id(n)
        for statement in ast.walk(reading.function.backward.node)
        if isinstance(statement, ast.Return)
        for n in ast.walk(statement)
    }
    for event in reading.backward.of_kind("unbound"):
        if id(event.node) in returned and all(map(wanted.fullmatch, event.value.unbound)):
            (condition, *_) = sorted(event.value.unbound)
            yield At(
                event.node,
                f"`{ast.unparse(event.node)}` has no value unless `{condition}`; "
                "set it to None before",
            )


def other_needs(reading: Reading) -> Iterator[At]:
    """A gradient is computed if another input needs one."""
    backward = reading.function.backward
    places = _places(backward)
    if places is None or not backward.plain or len(reading.differentiable) < 2:
        return
    tests = _tests_of_names(backward)
    for name, positions in places.items():
        several = tests.get(name, [])
        if len(several) != 1 or len(positions) != 1:
            continue
        node, numbers, exact = several[0]
        (position,) = positions
        if exact is not None and position not in numbers:
            if position in reading.differentiable and exact in reading.differentiable:
                inputs = reading.function.inputs
                if max(exact, position) < len(inputs):
                    yield At(
                        node,
                        f"`{name}`, the gradient of `{inputs[position]}`, is computed only if "
                        f"`{inputs[exact]}` needs one: needs_input_grad[{exact}]",
                    )


def _places(backward: Method) -> dict[str, set[int]] | None:
    """Each name that is returned alone, and its positions."""
    found: dict[str, set[int]] = {}
    for node in ast.walk(backward.node):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            for n, element in enumerate(node.value.elts):
                if isinstance(element, ast.Starred):
                    return None
                if isinstance(element, ast.Name):
                    found.setdefault(element.id, set()).add(n)
                else:
                    for part in ast.walk(element):
                        if isinstance(part, ast.Name):
                            found.setdefault(part.id, set()).update({n, -1})
    return found


Tested = tuple[ast.AST, set[int], int | None]


def _tests_of_names(backward: Method) -> dict[str, list[Tested]]:
    """For each name, where it gets a value, under which needs_input_grad[i]."""
    found: dict[str, list[Tested]] = {}

    def visit(body: list[ast.stmt], numbers: set[int], exact: int | None) -> None:
        for statement in body:
            if isinstance(statement, ast.If):
                inner = _indices(statement.test, backward.ctx)
                only = _exact(statement.test, backward.ctx)
                here = only if only is not None else None if inner is None else exact
                visit(statement.body, numbers | (inner or set()), here)
                visit(statement.orelse, numbers | {-1}, None)
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    if not _is_none(statement):
                        found.setdefault(node.id, []).append((statement, numbers, exact))
            if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
                names = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name)]
                for name in names:
                    found.setdefault(name, []).append((statement, {-1}, None))

    visit(backward.node.body, set(), None)
    return found


def _is_none(statement: ast.stmt) -> bool:
    """Whether a statement sets names to None."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    return all(isinstance(v, ast.Constant) and v.value is None for v in values)


def _indices(test: ast.expr, ctx: str) -> set[int] | None:
    """The i of each needs_input_grad[i] in a condition; None for any other condition."""
    found = re.findall(rf"{re.escape(ctx)}\.needs_input_grad\[(\d+)\]", ast.unparse(test))
    return set(map(int, found)) if found else None


def _exact(test: ast.expr, ctx: str) -> int | None:
    """The i of a condition that is needs_input_grad[i]."""
    found = re.fullmatch(rf"{re.escape(ctx)}\.needs_input_grad\[(\d+)\]", ast.unparse(test))
    return int(found[1]) if found else None


def asked_of_copy(reading: Reading) -> Iterator[At]:
    """requires_grad is asked of a saved copy."""
    for event in reading.backward.of_kind("requires_grad"):
        for token in event.value.roots:
            kept = reading.kept_value(token)
            if kept is not None and len(event.value.roots) == 1 and _is_copy(reading, kept):
                if event.value.level == Level.ITSELF and reading.in_test(event.node):
                    yield At(
                        event.node,
                        f"`{ast.unparse(event.node)}` is False for a saved copy; "
                        "ask ctx.needs_input_grad",
                    )


def _is_copy(reading: Reading, value: Value) -> bool:
    if reading.kind(value) == "intermediate":
        return True
    return value.tensor and value.kinds() == {"input"} and value.level >= Level.VIEW

"""Rules DRV2xx: what backward takes and returns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from derive.linting.functions import FunctionClass, FunctionMethod
from derive.linting.source_model import At, FunctionReading
from derive.linting.values import AliasLevel, Token, TrackedValue


def number_of_gradients(reading: FunctionReading) -> Iterator[At]:
    """Backward returns a wrong number of gradients."""
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
        wanted = _argument_count(least, most, function.forward.star)
        text = f"backward returns {_plural(count, 'gradient')}; forward has {wanted}"
        if event.value.listed:
            yield At(event.node, f"backward returns a list; return a tuple of {wanted}")
        elif count < least:
            yield At(event.node, text if function.setup else f"{text} besides ctx")
        elif not function.forward.star and any(_is_gradient(v) for v in gradients[most:]):
            yield At(event.node, text)


def _argument_count(least: int, most: int, star: str | None) -> str:
    count = f"{least} to {most}" if least < most else f"{most}"
    return _plural(f"at least {least}" if star else count, "argument")


def _plural(count: int | str, noun: str) -> str:
    return f"{count} {noun}{'s' * (str(count) != '1')}"


def _is_gradient(value: TrackedValue) -> bool:
    return value.tensor and not value.none and not value.void


def number_of_cotangents(reading: FunctionReading) -> Iterator[At]:
    """Backward takes a wrong number of cotangents."""
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
            given, made = _plural(most, "cotangent"), _plural(count, "output")
            yield At(function.backward.node, f"backward takes {given}; forward returns {made}")


# --------------------------------------------------------------------------------- needs input grad
# Rules DRV203 to DRV205: gradients that only some inputs need.


def unbound_gradient(reading: FunctionReading) -> Iterator[At]:
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
            yield At(event.node, f"`{ast.unparse(event.node)}` has no value unless `{condition}`")


def other_needs(reading: FunctionReading) -> Iterator[At]:
    """A gradient is computed only if another input needs one."""
    backward = reading.function.backward
    places = _returned_positions(backward)
    if places is None or not backward.plain or len(reading.differentiable) < 2:
        return
    tests, inputs = _tests_of_names(backward), reading.function.inputs
    for name, positions in places.items():
        several = tests.get(name, [])
        if len(several) != 1 or len(positions) != 1:
            continue
        ((node, numbers, exact),), (position,) = several, positions
        if exact is None or position in numbers or max(exact, position) >= len(inputs):
            continue
        if {position, exact} <= reading.differentiable:
            what = f"`{name}`, the gradient of `{inputs[position]}`,"
            yield At(node, f"{what} is computed only if needs_input_grad[{exact}]")


def _returned_positions(backward: FunctionMethod) -> dict[str, set[int]] | None:
    """Map each returned name to its positions; None if a return has a starred element.

    A name within an expression also has the position -1.
    """
    found: dict[str, set[int]] = {}
    for node in ast.walk(backward.node):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            for n, element in enumerate(node.value.elts):
                if isinstance(element, ast.Starred):
                    return None
                places = {n} if isinstance(element, ast.Name) else {n, -1}
                for part in ast.walk(element):
                    if isinstance(part, ast.Name):
                        found.setdefault(part.id, set()).update(places)
    return found


Tested = tuple[ast.AST, set[int], int | None]


def _tests_of_names(backward: FunctionMethod) -> dict[str, list[Tested]]:
    """Map each name to its assignments, each with its conditions on needs_input_grad[i].

    The conditions are the i of all, and the i of one that is ``needs_input_grad[i]`` itself.
    """
    found: dict[str, list[Tested]] = {}
    flag = rf"{re.escape(backward.ctx)}\.needs_input_grad\[(\d+)\]"

    def visit(body: list[ast.stmt], numbers: set[int], exact: int | None) -> None:
        for statement in body:
            if isinstance(statement, ast.If):
                test = ast.unparse(statement.test)
                inner = set(map(int, re.findall(flag, test)))
                alone = re.fullmatch(flag, test)
                here = int(alone[1]) if alone else exact if inner else None
                visit(statement.body, numbers | inner, here)
                visit(statement.orelse, numbers | {-1}, None)
                continue
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    if not _is_none(statement):
                        found.setdefault(node.id, []).append((statement, numbers, exact))
            if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name):
                        found.setdefault(node.id, []).append((statement, {-1}, None))

    visit(backward.node.body, set(), None)
    return found


def _is_none(statement: ast.stmt) -> bool:
    """True if a statement sets names to None."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    return all(isinstance(v, ast.Constant) and v.value is None for v in values)


def flag_of_copy(reading: FunctionReading) -> Iterator[At]:
    """Backward tests requires_grad of a saved copy."""
    if _sets_requires_grad(reading.function):
        return
    seen: set[Token] = set()
    for event in reading.backward.of_kind("requires_grad"):
        token = event.value.identity
        kept = reading.kept_value(token) if token is not None else None
        if token is None or kept is None or token in seen:
            continue
        if _is_copy(reading, kept) and reading.in_test(event.node):
            seen.add(token)
            flag = f"`{ast.unparse(event.node)}`"
            yield At(event.node, f"{flag} is False for a saved copy; use ctx.needs_input_grad")


def _sets_requires_grad(function: FunctionClass) -> bool:
    """True if forward sets requires_grad of a tensor."""
    for method in filter(None, (function.forward, function.setup)):
        for node in ast.walk(method.node):
            match node:
                case ast.Attribute(_, "requires_grad_") | ast.Attribute(
                    _, "requires_grad", ast.Store()
                ):
                    return True
    return False


def _is_copy(reading: FunctionReading, value: TrackedValue) -> bool:
    if reading.kind(value) == "intermediate":
        return True
    return value.tensor and value.kinds() == {"input"} and value.level >= AliasLevel.VIEW

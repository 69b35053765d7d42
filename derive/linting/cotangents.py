"""Rules DRV3xx: what backward does with cotangents and saved tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from derive.linting.functions import COPYING
from derive.linting.source_model import At, FunctionReading
from derive.linting.values import AliasLevel, Event, Token, TrackedValue


def never_read(reading: FunctionReading) -> Iterator[At]:
    """Backward never reads a cotangent."""
    function = reading.function
    node = function.backward.node
    read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    names = [*function.cotangents, *([function.backward.star] if function.backward.star else [])]
    unread = [n for n in names if n not in read and not n.startswith("_")]
    if not unread or not any(map(_sure, reading.returned)):
        return
    if len(names) == 1:
        unread = [] if _has_constant_outputs(reading) else unread
    else:
        several = enumerate(function.cotangents)
        unread = [name for n, name in several if name in unread and _needs_gradient(reading, n)]
    for a in (*node.args.posonlyargs, *node.args.args, node.args.vararg):
        if a is not None and a.arg in unread:
            yield At(a, f"backward never reads the cotangent `{a.arg}`")


def _has_constant_outputs(reading: FunctionReading) -> bool:
    """True if all outputs are constants, as in a Function used for its side effects."""
    results = reading.results
    return bool(results) and all(v.tensor and v.known and not v.slopes for v in results)


def _sure(value: TrackedValue) -> bool:
    return not value.void and (value.known or value.tensor or bool(value.reads))


def _needs_gradient(reading: FunctionReading, n: int) -> bool:
    """True if output n is a tensor that depends on an input, and is not marked otherwise."""
    flows = [reading.forward, reading.keeping]
    if any(flow.escapes or flow.of_kind("mark_non_differentiable") for flow in flows):
        return False
    if not reading.outputs or None in reading.outputs:
        return False
    several = [o[n] for o in reading.outputs if o is not None and n < len(o)]
    return len(several) == len(reading.outputs) and all(
        v.tensor and not v.none and reading.smooth(v) for v in several
    )


def without_cotangent(reading: FunctionReading) -> Iterator[At]:
    """A returned gradient depends on no cotangent."""
    if any(never_read(reading)) or _has_constant_outputs(reading):
        return
    flow = reading.backward
    if _has_cotangent(flow.steering) or flow.escapes or flow.of_kind("lost"):
        return
    for event, gradients in zip(reading.backward.of_kind("return"), reading.gradients, strict=True):
        for n, value in enumerate(gradients or ()):
            if value.tensor and value.known and not value.void and value.reads:
                if value.identity is not None and value.identity.kind == "saved":
                    continue  # a gradient computed elsewhere, passed on
                if not _has_cotangent(value.reads) and n < len(reading.function.inputs):
                    what = f"the gradient of `{reading.function.inputs[n]}`"
                    yield At(_returned_element(event.node, n), f"{what} depends on no cotangent")


def _has_cotangent(reads: frozenset[Token]) -> bool:
    return any(token.kind == "cotangent" for token in reads)


def _returned_element(node: ast.AST, n: int) -> ast.AST:
    """Return element n of a returned tuple."""
    match node:
        case ast.Return(ast.Tuple(elements)) if n < len(elements):
            return elements[n]
    return node


def changed_cotangent(reading: FunctionReading) -> Iterator[At]:
    """Backward changes a cotangent in place."""
    for event in _changes(reading, {"cotangent"}):
        yield At(event.node, "backward changes a cotangent in place; other nodes may read it")


def _changes(reading: FunctionReading, kinds: set[str]) -> Iterator[Event]:
    """Yield the first change of each tensor of these kinds."""
    seen: set[Token] = set()
    for event in reading.backward.of_kind("changed"):
        value = event.value
        if value.roots and value.kinds() <= kinds and value.level <= AliasLevel.CONTIGUOUS:
            if not value.roots <= seen:
                yield event
            seen |= value.roots


def changed_saved(reading: FunctionReading) -> Iterator[At]:
    """Backward changes a saved tensor in place."""
    for event in _changes(reading, {"saved", "kept"}):
        yield At(event.node, "backward changes a saved tensor; a second backward fails or is wrong")


def viewed_cotangent(reading: FunctionReading) -> Iterator[At]:
    """Backward merges axes of a cotangent with view."""
    backward = reading.function.backward
    if not backward.plain or any(d.rpartition(".")[2] in COPYING for d in backward.decorators):
        return
    checked = frozenset().union(*(e.value.roots for e in reading.backward.of_kind("layout")))
    for event in reading.backward.of_kind("view"):
        token, node = event.value.identity, event.node
        if token is None or token.kind != "cotangent" or token in checked:
            continue
        if isinstance(node, ast.Call) and _merges(node):
            yield At(node, f"`{ast.unparse(node)}` raises for a strided cotangent; use reshape")


def _merges(node: ast.Call) -> bool:
    """True if a view merges axes: a size is a product, or one -1 stands for several axes."""
    given = node.args
    if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List):
        given = given[0].elts
    if any(isinstance(a, ast.Starred) for a in given) or not given:
        return False
    texts = [ast.unparse(a) for a in given]
    if texts == ["-1"]:
        return True
    if any(isinstance(n, ast.Mult) for a in given for n in ast.walk(a)):
        return True
    return len(texts) == 2 and "-1" in texts and "1" not in texts

"""Edits that transpose, flip, exchange or shift what the code reads."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from derive.auditing.points import is_tensor
from derive.auditing.scope import (
    CodeScope,
    Edit,
    Made,
    is_number,
    is_target,
    kind_of_value,
    parsed,
    stands,
)

# ------------------------------------------------------- places, order, axes


def turned(node: ast.expr, scope: CodeScope) -> Made:
    """Transpose, reverse or shift the node."""
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            yield ast.BinOp(right, ast.MatMult(), left), _swapped_sentence(node)
            for a, b in ((True, False), (False, True), (True, True)):
                for x, y in ((left, right), (right, left)):
                    first, second = transposed(x) if a else x, transposed(y) if b else y
                    yield stands(node, ast.BinOp(first, ast.MatMult(), second))
        case ast.Slice(lower=lower, upper=upper, step=step):
            if step is None:
                yield from _slices(node, lower, upper)
            yield from _ends(node)
        case ast.Name(id=name) if is_number(scope.values.get(name)):
            for op in (ast.Sub(), ast.Add()):
                yield stands(node, ast.BinOp(node, op, ast.Constant(1)))
    if isinstance(node, ast.Name) and is_tensor(scope.values.get(node.id)):
        value = scope.values[node.id]
        if value.ndim > 1:
            yield stands(node, transposed(node))
        for text in scope.along_rows(node.id):
            yield stands(node, parsed(text))
        if value.ndim:
            ways = ["flip(-1)", "flip(0)"] if value.ndim > 1 else ["flip(0)"]
            ways += ["flip(1)"] if value.ndim > 2 else []
            ways += ["conj()"] if value.is_complex() else []
            for way in ways:
                yield stands(node, parsed(f"{ast.unparse(node)}.{way}"))
        if not value.is_floating_point() and value.ndim and "bool" not in str(value.dtype):
            yield stands(node, parsed(f"{node.id}.argsort(-1)"))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("cumsum", "cumprod", "logcumsumexp") and node.args:
            whole, axis = node.func.value, ast.unparse(node.args[0])
            text = f"({ast.unparse(whole)}).flip({axis}).{node.func.attr}({axis}).flip({axis})"
            after = parsed(text)
            yield after, f"{ast.unparse(node)} runs forward; it should run from the end"


def _slices(node: ast.Slice, lower: ast.expr | None, upper: ast.expr | None) -> Made:
    """Move a slice to the other end, with the same length."""
    if isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Add) and upper is not None:
        after = ast.Slice(lower.left, ast.BinOp(upper, ast.Sub(), lower.right))
        yield stands(node, after)
    if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Sub) and lower is not None:
        after = ast.Slice(ast.BinOp(lower, ast.Add(), upper.right), upper.left)
        yield stands(node, after)
    if (lower is None) != (upper is None):
        yield stands(node, ast.Slice(upper, lower))


def _ends(node: ast.Slice) -> Made:
    """Replace the bounds of a slice by those of the first or last positions."""
    whole: list[ast.expr | None] = [None, *map(parsed, ("0", "1", "-1", "-2"))]
    for lower in [node.lower, *whole]:
        for upper in [node.upper, *whole]:
            if lower is not node.lower or upper is not node.upper:
                yield stands(node, ast.Slice(lower, upper, node.step))


def transposed(node: ast.expr) -> ast.expr:
    """Transpose a matrix, or undo its transpose."""
    if isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "t":
            return node.func.value
    return ast.Attribute(node, "mT", ast.Load())


def _swapped_sentence(node: ast.BinOp) -> str:
    after = ast.BinOp(node.right, node.op, node.left)
    return stands(node, after)[1]


# ------------------------------------------------ throughout a statement


class _Exchange(ast.NodeTransformer):
    """Exchanges two expressions."""

    def __init__(self, one: str, other: str) -> None:
        self.texts, self.inside = {one: other, other: one}, 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Subscript):
            self.inside += 1
            node.slice = self.visit(node.slice)
            self.inside -= 1
            node.value = self.visit(node.value)
            return node
        if isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and self.inside):
            if is_target(node):
                return node
            other = self.texts.get(ast.unparse(node))
            return node if other is None else parsed(other)
        return self.generic_visit(node)


class _Turning(ast.NodeTransformer):
    """Transposes every read of a name, or renames it."""

    def __init__(self, name: str, other: str = "") -> None:
        self.name, self.other = name, other

    def visit(self, node: ast.AST) -> Any:
        if not self.other and isinstance(node, ast.Attribute | ast.Call):
            if isinstance(node, ast.expr) and _is_transposed(node, self.name):
                return transposed(node)
        if isinstance(node, ast.Name) and node.id == self.name and not is_target(node):
            return parsed(self.other) if self.other else transposed(node)
        return self.generic_visit(node)


def _exchangeable_pairs(statement: ast.stmt, scope: CodeScope) -> Iterator[tuple[str, str]]:
    """Yield pairs of names of one kind, or of integers, that a statement reads."""
    parts = [p for p in ast.walk(statement) if isinstance(p, ast.Name | ast.Constant)]
    texts = dict.fromkeys(ast.unparse(p) for p in parts if not is_target(p))
    for one, other in combinations(texts, 2):
        tensors = [kind_of_value(scope.values.get(t)) for t in (one, other)]
        if (tensors[0] is not None and tensors[0] == tensors[1]) or (
            one.isdigit() and other.isdigit()
        ):
            yield one, other


def _is_transposed(node: ast.expr, name: str) -> bool:
    return ast.unparse(node) in (f"{name}.mT", f"{name}.T", f"{name}.t()")


def throughout(tree: ast.AST, scope: CodeScope) -> Iterator[Edit]:
    """Yield edits of a whole statement: two names exchanged, or one transposed or renamed."""
    for part in ast.walk(tree):
        for _, value in ast.iter_fields(part):
            for n, statement in enumerate(value) if isinstance(value, list) else ():
                if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Return):
                    continue
                for one, other in _exchangeable_pairs(statement, scope):
                    after = _Exchange(one, other).visit(copy.deepcopy(statement))
                    yield Edit(value, n, after, f"{one} and {other} are swapped", statement.lineno)
                used = [p.id for p in ast.walk(statement) if isinstance(p, ast.Name)]
                for name in dict.fromkeys(used):
                    if not is_tensor(scope.values.get(name)) or used.count(name) < 2:
                        continue
                    ways = ["", *scope.like(name)] if scope.values[name].ndim > 1 else []
                    for way in ways:
                        after = _Turning(name, way).visit(copy.deepcopy(statement))
                        text = (
                            f"{name} stands where {way} should"
                            if way
                            else f"{name} and its transpose stand in each other's place"
                        )
                        yield Edit(value, n, after, text, statement.lineno)

"""Single edits of the code of a backward, the likely ones first.

Most mistakes are one wrong name, sign, factor, term, index or function, so one edit mends them.
Each edit has a sentence that says what is wrong if the edited code is right.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from derive.auditing.points import is_tensor
from derive.auditing.substitution_edits import (
    CodeScope,
    Edit,
    Made,
    exchanged_for,
    inverted,
    is_number,
    is_target,
    kind_of_value,
    left_out,
    named,
    parsed,
    removed,
    replaced,
    stands,
    statements,
)

# ---------------------------------------------------------------------------------- insertion edits
# Edits that insert one factor, term or mask.

_SHORT = 30


def is_arithmetic(node: ast.expr) -> bool:
    """True if the node may get another factor or term."""
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call | ast.Name | ast.Subscript)


def with_factor(node: ast.expr, scope: CodeScope) -> Made:
    """Insert a factor: -1, a number, a tensor or its inverse, a mask."""
    yield ast.UnaryOp(ast.USub(), node), f"the sign of {ast.unparse(node)} is wrong"
    beside = _beside_text(node)
    for text in scope.factors():
        value = scope.values.get(text)
        is_mask = text in scope.values and scope.is_mask(text)
        for name in scope.spread(text) if is_tensor(value) else (text,):
            factor, what = parsed(name), "mask" if is_mask else "factor"
            also = scope.also(int(name)) if name.isdigit() else ""
            missing = f"is missing{beside}{also}"
            yield ast.BinOp(node, ast.Mult(), factor), f"the {what} {name} {missing}"
            if is_mask:
                continue
            if name != ast.unparse(node):
                inverse = f"the factor 1/{name} {missing}"
                yield ast.BinOp(node, ast.Div(), factor), inverse
            if not name.isdigit() and type(value) is not int:
                other = ast.BinOp(ast.Constant(1), ast.Sub(), factor)
                yield ast.BinOp(node, ast.Mult(), other), f"the factor (1 - {name}) {missing}"
    for text in scope.masks():
        yield ast.BinOp(node, ast.Mult(), parsed(text)), f"the mask {text} is missing{beside}"


def wrapped_in_call(node: ast.expr, scope: CodeScope) -> Made:
    """Wrap in a call: clamp, where, gather or indexing."""
    whole = ast.unparse(node)
    whole = f"({whole})" if isinstance(node, ast.BinOp | ast.UnaryOp) else whole
    numbers = [text for text, value in scope.values.items() if isinstance(value, float)]
    for text in numbers:
        yield stands(node, parsed(f"{whole}.clamp(-{text}, {text})"))
    for name in scope.tensors:
        if not scope.values[name].ndim or not (scope.is_mask(name) or scope.is_whole(name)):
            continue
        if scope.is_whole(name):
            yield stands(node, parsed(f"{whole}.gather(-1, {name})"))
            yield stands(node, parsed(f"{whole}[{name}]"))
            yield stands(node, parsed(f"{whole}[{name}.argsort()]"))
            continue
        for text in numbers:
            for sides in (f"{whole}, {text} * {whole}", f"{text} * {whole}, {whole}"):
                yield stands(node, parsed(f"torch.where({name}, {sides})"))


def _beside_text(node: ast.expr) -> str:
    """Return " beside NODE", or '' if the node is too long to print."""
    text = ast.unparse(node)
    return f" beside {text}" if len(text) <= _SHORT else ""


def with_term(node: ast.expr, scope: CodeScope) -> Made:
    """Insert a term: 1, a tensor, its transpose, or an identity matrix."""
    one = ast.Constant(1)
    yield ast.BinOp(one, ast.Add(), node), f"the term 1 is missing beside {ast.unparse(node)}"
    yield stands(node, ast.BinOp(one, ast.Sub(), node))
    value: Any = scope.values.get(ast.unparse(node))
    if is_tensor(value) and value.ndim > 1 and value.shape[-1] == value.shape[-2]:
        yield from _added_term(node, ast.unparse(transposed(node)))
    sizes = [f"torch.eye({t})" for t, v in scope.values.items() if ".shape[" in t]
    for text in [*(t for f in scope.floats for t in scope.spread(f)), *sizes]:
        yield from _added_term(node, text)


def with_unread(node: ast.expr, scope: CodeScope, names: Sequence[str]) -> Made:
    """Insert a tensor that the code computes and reads nowhere, as a term or a factor."""
    for name in names:
        what = "mask" if scope.is_mask(name) else "factor"
        for text in scope.spread(name):
            yield from _added_term(node, text)
            missing = f"the {what} {text} is missing{_beside_text(node)}"
            yield ast.BinOp(node, ast.Mult(), parsed(text)), missing


def unread_names(trees: Sequence[ast.AST], scope: CodeScope) -> list[str]:
    """Return the names of tensors that are assigned and not read."""
    names = [p for tree in trees for p in ast.walk(tree) if isinstance(p, ast.Name)]
    read = {p.id for p in names if not is_target(p)}
    return list(dict.fromkeys(p.id for p in names if p.id in scope.tensors and p.id not in read))


def with_product(node: ast.expr, scope: CodeScope) -> Made:
    """Insert a product of two tensors as a term, or with the derivative s*(1 - s) of a sigmoid."""
    for a, b in combinations(scope.floats, 2):
        yield from _added_term(node, f"{a} * {b}")
        yield from _added_term(node, f"{a} * {b} * (1 - {b})")
        yield from _added_term(node, f"{a} * (1 - {a}) * {b}")


def _added_term(node: ast.expr, text: str) -> Made:
    term, beside = parsed(text), f"is missing beside {ast.unparse(node)}"
    yield ast.BinOp(node, ast.Add(), term), f"the term {text} {beside}"
    yield ast.BinOp(node, ast.Sub(), term), f"the term -{text} {beside}"


# ------------------------------------------------------------------------------------ reorder edits
# Edits that transpose, flip, exchange or shift what the code reads.


def turned(node: ast.expr, scope: CodeScope) -> Made:
    """Transpose, reverse or shift the node."""
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            yield stands(node, ast.BinOp(right, ast.MatMult(), left))
            for a, b in ((True, False), (False, True), (True, True)):
                for x, y in ((left, right), (right, left)):
                    first, second = transposed(x) if a else x, transposed(y) if b else y
                    yield stands(node, ast.BinOp(first, ast.MatMult(), second))
        case ast.Slice(lower=lower, upper=upper, step=step):
            if step is None:
                yield from _slices(node, lower, upper)
            yield from _ends(node)
        case ast.Call(func=ast.Attribute(attr="view" | "reshape" | "flatten")):
            yield from _other_orders(node)
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


def _other_orders(node: ast.Call) -> Made:
    """Exchange two sizes of a view and then the axes, or two axes before the view."""
    assert isinstance(node.func, ast.Attribute)
    way = node.func.attr.replace("view", "reshape")

    def called(of: ast.expr, text: str) -> ast.Call:
        made = parsed(f"_.{text}")
        made.func.value = of  # type: ignore[attr-defined]
        assert isinstance(made, ast.Call)
        return made

    for a, b in combinations(range(len(node.args)), 2) if way != "flatten" else ():
        args = [*node.args]
        args[a], args[b] = args[b], args[a]
        exchanged = ast.Call(node.func, args, node.keywords)
        yield stands(node, called(exchanged, f"transpose({a}, {b})"))
    for a, b in ((1, 2), (0, 1), (-2, -1)):
        after = called(called(node.func.value, f"transpose({a}, {b})"), f"{way}()")
        after.args, after.keywords = node.args, node.keywords
        yield stands(node, after)


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
        minus = [e and ast.UnaryOp(ast.USub(), e) for e in (upper, lower)]
        yield stands(node, ast.Slice(*minus))


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
            if ast.unparse(node) in (f"{self.name}.mT", f"{self.name}.T", f"{self.name}.t()"):
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


# -------------------------------------------------------------------------------------------- edits


def sites(tree: ast.AST) -> Iterator[tuple[Any, str | int, ast.expr]]:
    """Yield (container, key, node) for each expression that is read, the outer ones first."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, ast.expr) and not is_target(value):
                if not (isinstance(parent, ast.Call) and name == "func"):
                    yield parent, name, value
            elif isinstance(value, list):
                for n, part in enumerate(value):
                    if isinstance(part, ast.expr) and not is_target(part):
                        yield value, n, part


def edits(trees: Sequence[ast.AST], scope: CodeScope) -> Iterator[Edit]:
    """Yield edits of one node or statement, the likely ones first."""
    bodies = [part for tree in trees if isinstance(tree, ast.FunctionDef) for part in tree.body]
    every = [site for part in bodies for site in sites(part)]
    # The truth of a comparison hardly constrains the numbers compared, so they are not edited.
    compares = (c for body in bodies for c in ast.walk(body) if isinstance(c, ast.Compare))
    compared = {id(p) for c in compares for p in ast.walk(c)}
    every = [s for s in every if not (isinstance(s[2], ast.Constant) and id(s[2]) in compared)]
    # A string selects a formula; another string makes no formula right.
    every = [s for s in every if not isinstance(scope.values.get(ast.unparse(s[2])), str)]
    values = [s for s in every if is_arithmetic(s[2]) and id(s[2]) not in compared]
    # Integers are counts, such as a chunk length; an edited count may hide the real mistake.
    values = [s for s in values if type(scope.values.get(ast.unparse(s[2]))) is not int]
    for tree in trees:
        yield from left_out(tree)
    yield from inserted(values, scope, partial(with_unread, names=unread_names(trees, scope)))
    for make in (removed, replaced, turned, inverted, exchanged_for):
        for where, key, node in every:
            for after, text in make(node, scope):
                yield Edit(where, key, after, text, node.lineno)
    for tree in trees:
        yield from statements(tree)
    for tree in trees:
        yield from throughout(tree, scope)
    for make in (with_factor, wrapped_in_call, with_term, with_product):
        yield from inserted(values, scope, make)


def inserted(
    places: Sequence[Any], scope: CodeScope, make: Callable[[ast.expr, CodeScope], Made]
) -> Iterator[Edit]:
    """Yield the edits that insert something at each of these places."""
    for where, key, node in places:
        for after, text in make(node, scope):
            stem = text.partition(" beside ")[0] if " is missing" in text else ""
            yield Edit(where, key, after, text, node.lineno, stem)


def saved(tree: ast.AST, scope: CodeScope) -> Iterator[Edit]:
    """Yield edits of what forward saves on ctx, and of nothing else in it."""
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.Expr | ast.Assign):
            continue
        if "ctx." not in ast.unparse(statement):
            continue
        for where, key, node in sites(statement):
            if isinstance(node, ast.Name):
                for after, text in named(node, scope):
                    yield Edit(where, key, after, text, node.lineno)

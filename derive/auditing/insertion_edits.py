"""Edits that insert one factor, term or mask."""

from __future__ import annotations

import ast
from itertools import combinations

from derive.auditing.points import is_tensor
from derive.auditing.scope import CodeScope, Made, parsed, stands

_SHORT = 30


def is_arithmetic(node: ast.expr) -> bool:
    """True if the node may get another factor or term."""
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call | ast.Name | ast.Subscript)


def with_factor(node: ast.expr, scope: CodeScope) -> Made:
    """Insert a factor: a number, a tensor or its inverse, a mask."""
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
            other = ast.BinOp(ast.Constant(1), ast.Sub(), factor)
            yield ast.BinOp(node, ast.Mult(), other), f"the factor (1 - {name}) {missing}"
    yield ast.UnaryOp(ast.USub(), node), f"the sign of {ast.unparse(node)} is wrong"
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
            continue
        for text in numbers:
            for sides in (f"{whole}, {text} * {whole}", f"{text} * {whole}, {whole}"):
                yield stands(node, parsed(f"torch.where({name}, {sides})"))


def _beside_text(node: ast.expr) -> str:
    """Return " beside NODE", or '' if the node is too long to print."""
    text = ast.unparse(node)
    return f" beside {text}" if len(text) <= _SHORT else ""


def with_term(node: ast.expr, scope: CodeScope) -> Made:
    """Insert a term: 1, a tensor, or an identity matrix."""
    one = ast.Constant(1)
    yield ast.BinOp(one, ast.Add(), node), f"the term 1 is missing beside {ast.unparse(node)}"
    yield ast.BinOp(one, ast.Sub(), node), f"{ast.unparse(node)} stands where 1 - it should"
    sizes = [f"torch.eye({t})" for t, v in scope.values.items() if ".shape[" in t]
    for text in [*(t for f in scope.floats for t in scope.spread(f)), *sizes]:
        yield from _added_term(node, text)


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

"""Code with one factor, term or mask more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from derive.auditing.points import is_tensor
from derive.auditing.scope import Made, Scope, parsed, stands


def is_arithmetic(node: ast.expr) -> bool:
    """Whether a factor or a term may stand beside it."""
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call | ast.Name | ast.Subscript)


def with_factor(node: ast.expr, scope: Scope) -> Made:
    for number in (2, 3):
        value = ast.Constant(number)
        yield ast.BinOp(node, ast.Mult(), value), f"the factor {number} is missing"
        yield ast.BinOp(node, ast.Div(), value), f"the factor 1/{number} is missing"
    for text in (t for f in scope.factors() for t in _spread(f, scope)):
        factor = parsed(text)
        yield ast.BinOp(node, ast.Mult(), factor), f"the factor {text} is missing"
        own: Any = scope.values.get(text.removesuffix("[..., None]"))
        if is_tensor(own) and not own.is_floating_point():
            continue
        if text != ast.unparse(node):
            yield ast.BinOp(node, ast.Div(), factor), f"the factor 1/{text} is missing"
        other = ast.BinOp(ast.Constant(1), ast.Sub(), factor)
        yield ast.BinOp(node, ast.Mult(), other), f"the factor (1 - {text}) is missing"
    yield ast.UnaryOp(ast.USub(), node), f"the sign of {ast.unparse(node)} is wrong"
    for text in scope.masks():
        yield ast.BinOp(node, ast.Mult(), parsed(text)), f"the mask {text} is missing"
    whole = ast.unparse(node)
    for text, number in scope.values.items():
        if isinstance(number, float):
            yield stands(node, parsed(f"({whole}).clamp(-{text}, {text})"))
    for name in scope.tensors:
        value = scope.values[name]
        if value.dtype.is_floating_point or not value.ndim:
            continue
        if "bool" in str(value.dtype):
            for text, number in scope.values.items():
                if isinstance(number, float):
                    for sides in (f"{whole}, {text} * ({whole})", f"{text} * ({whole}), {whole}"):
                        yield stands(node, parsed(f"torch.where({name}, {sides})"))
        else:
            yield stands(node, parsed(f"({whole}).gather(-1, {name})"))
            yield stands(node, parsed(f"({whole})[{name}]"))


def _spread(text: str, scope: Scope) -> Iterator[str]:
    return scope.spread(text) if is_tensor(scope.values[text]) else iter([text])


def with_term(node: ast.expr, scope: Scope) -> Made:
    one = ast.Constant(1)
    yield ast.BinOp(one, ast.Add(), node), f"the term 1 is missing beside {ast.unparse(node)}"
    yield ast.BinOp(one, ast.Sub(), node), f"{ast.unparse(node)} stands where 1 - it should"
    sizes = [f"torch.eye({t})" for t, v in scope.values.items() if ".shape[" in t]
    for text in [*(t for f in scope.floats for t in scope.spread(f)), *sizes]:
        yield from _beside(node, text)


def with_product(node: ast.expr, scope: Scope) -> Made:
    for a, b in combinations(scope.floats, 2):
        yield from _beside(node, f"{a} * {b}")
        yield from _beside(node, f"{a} * {b} * (1 - {b})")
        yield from _beside(node, f"{a} * (1 - {a}) * {b}")


def _beside(node: ast.expr, text: str) -> Made:
    term, beside = parsed(text), f"is missing beside {ast.unparse(node)}"
    yield ast.BinOp(node, ast.Add(), term), f"the term {text} {beside}"
    yield ast.BinOp(node, ast.Sub(), term), f"the term -{text} {beside}"

"""Single edits of the code of a backward, the likely ones first.

Most mistakes are one wrong name, sign, factor, term, index or function, so one edit mends them.
Each edit has a sentence that says what is wrong if the edited code is right.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from derive.auditing.insertion_edits import (
    is_arithmetic,
    with_factor,
    with_product,
    with_term,
    wrapped_in_call,
)
from derive.auditing.reorder_edits import throughout, turned
from derive.auditing.scope import CodeScope, Edit, is_target
from derive.auditing.substitution_edits import (
    exchanged_for,
    inverted,
    named,
    removed,
    replaced,
    statements,
)


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
    bodies = [part for tree in trees for part in _function_statements(tree)]
    every = [site for part in bodies for site in sites(part)]
    # The truth of a comparison hardly constrains the numbers compared, so they are not edited.
    compared = {id(p) for body in bodies for c in _comparisons_in(body) for p in ast.walk(c)}
    every = [s for s in every if not (isinstance(s[2], ast.Constant) and id(s[2]) in compared)]
    # A string selects a formula; another string makes no formula right.
    every = [s for s in every if not isinstance(scope.values.get(ast.unparse(s[2])), str)]
    for make in (removed, replaced, turned, inverted, exchanged_for):
        for where, key, node in every:
            for after, text in make(node, scope):
                yield Edit(where, key, after, text, node.lineno)
    for part in bodies:
        yield from statements(part)
    for tree in trees:
        yield from throughout(tree, scope)
    values = [s for s in every if is_arithmetic(s[2]) and id(s[2]) not in compared]
    # Integers are counts, such as a chunk length; an edited count may hide the real mistake.
    values = [s for s in values if type(scope.values.get(ast.unparse(s[2]))) is not int]
    for make in (with_factor, wrapped_in_call, with_term, with_product):
        for where, key, node in values:
            for after, text in make(node, scope):
                stem = text.partition(" beside ")[0] if " is missing" in text else ""
                yield Edit(where, key, after, text, node.lineno, stem)


def _comparisons_in(body: ast.stmt) -> Iterator[ast.Compare]:
    return (part for part in ast.walk(body) if isinstance(part, ast.Compare))


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


def _function_statements(tree: ast.AST) -> list[ast.stmt]:
    return list(tree.body) if isinstance(tree, ast.FunctionDef) else []

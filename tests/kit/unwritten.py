"""Generated code of which nothing is written in place, and the part without a graph."""

import ast
from collections.abc import Iterator
from unittest.mock import patch

from derive import pipeline, source
from derive.notation.operation import Operation


def source_without_reuse(op: Operation, standalone: bool = False) -> str:
    """The source whose forward and backward of any order never overwrite what they made."""
    with patch.object(pipeline, "SPECIALIZE", pipeline.SPECIALIZE[:-1]):
        return source(op, standalone=standalone)


def first_order(text: str) -> str:
    """The lines of each backward that run where no graph is recorded."""
    return "\n".join(ast.unparse(s) for body in _backwards(text) for s in of_order(body, True))


def _backwards(text: str) -> Iterator[list[ast.stmt]]:
    defined = (f for f in ast.walk(ast.parse(text)) if isinstance(f, ast.FunctionDef))
    return (f.body for f in defined if f.name == "backward")


def of_order(body: list[ast.stmt], first: bool) -> list[ast.stmt]:
    """The statements of a backward that run in first order, or in any other.

    Of first order are those of a block that returns, or all after the test that is named.
    """
    for n, s in enumerate(body):
        tested = "unrecorded(" in ast.unparse(s)
        if tested and isinstance(s, ast.If):
            return s.body if first else [*body[:n], *body[n + 1 :]]
        if tested and isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "first_order":
            rest = [part for later in body[n + 1 :] for part in _decided(later, first)]
            return rest if first else [*body[:n], *rest]
    return body


def _decided(statement: ast.stmt, first: bool) -> list[ast.stmt]:
    """The statement without the other side of each fork."""
    if not isinstance(statement, ast.If):
        return [statement]
    test = ast.unparse(statement.test)
    sides = {"first_order": first, "not first_order": not first}
    body, other = (
        [part for s in side for part in _decided(s, first)]
        for side in (statement.body, statement.orelse)
    )
    if test in sides:
        return body if sides[test] else other
    return [ast.If(statement.test, body, other)] if body else []

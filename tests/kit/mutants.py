"""Wrong backwards made from right ones: one change each, of a sign, a factor or a term."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kit.unwritten import of_order

SCALE = 1.001


class _Change(ast.NodeTransformer):
    """Makes the n-th of all changes within backward methods."""

    def __init__(self, n: int) -> None:
        self.left = n
        self.made = ""
        self.inside = False

    def turn(self, what: str, node: ast.AST) -> bool:
        self.left -= 1
        if self.left == -1:
            self.made = f"{what}: {ast.unparse(node)}"
        return self.left == -1

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.inside = node.name == "backward"
        found = self.generic_visit(node)
        self.inside = False
        return found

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not self.inside:
            return node
        if isinstance(node.op, ast.Add | ast.Sub):
            if self.turn("other sign", node):
                other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
                return ast.BinOp(node.left, other, node.right)
            if self.turn("first term alone", node):
                return node.left
            if self.turn("second term alone", node):
                return node.right
        if isinstance(node.op, ast.Mult | ast.Div):
            if self.turn("inverse factor", node):
                other = ast.Div() if isinstance(node.op, ast.Mult) else ast.Mult()
                return ast.BinOp(node.left, other, node.right)
            if self.turn("scaled", node):
                return ast.BinOp(ast.Constant(SCALE), ast.Mult(), node)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        negative = isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
        return node.operand if self.inside and negative and self.turn("sign lost", node) else node


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """What is changed, and the source with it."""
    n = 0
    while True:
        change = _Change(n)
        tree = change.visit(ast.parse(source))
        if not change.made:
            return
        yield change.made, ast.unparse(ast.fix_missing_locations(tree))
        n += 1


def wrong_at_second_order(source: str) -> Iterator[tuple[str, str]]:
    """Each gradient with a term that is 0, whose derivative is not, where it has a graph."""
    n = 0
    while True:
        tree = ast.parse(source)
        backwards = (f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef))
        lines = [
            line
            for f in backwards
            if f.name == "backward"
            for part in of_order(f.body, first=False)
            for line in ast.walk(part)
            if isinstance(line, ast.Assign)
            and ast.unparse(line.targets[0]).startswith("grad_")
            and not isinstance(line.value, ast.Constant)
            and len(line.targets) == 1
        ]
        if n == len(lines):
            return
        text = f"(lambda g: g + 0.01*(g*g - (g*g).detach()))({ast.unparse(lines[n].value)})"
        lines[n].value = ast.parse(text, mode="eval").body
        yield ast.unparse(lines[n].targets[0]), ast.unparse(tree)
        n += 1

"""Torch code from its text."""

from __future__ import annotations

import ast

from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Subscript,
    Tuple,
    Unary,
)

OPERATORS = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@"},
    **{ast.Pow: "**", ast.FloorDiv: "//", ast.BitAnd: "&", ast.BitOr: "|"},
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="},
    **{ast.Is: "is", ast.USub: "-", ast.Invert: "~", ast.Not: "not"},
}


def torch_code(text: str) -> Code:
    """The code of a Python expression."""
    return tree(ast.parse(text, mode="eval").body)


def tree(e: ast.expr) -> Code:
    match e:
        case ast.Name(name):
            return Name(name)
        case ast.Constant(value):
            return Literal(f'"{value}"' if isinstance(value, str) else repr(value))
        case ast.UnaryOp(ast.USub(), ast.Constant(value)):
            return Literal(f"-{value}")
        case ast.UnaryOp(op, operand):
            return Unary(OPERATORS[type(op)], tree(operand))
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            return Binary(OPERATORS[type(op)], tree(left), tree(right))
        case ast.IfExp(test, then, other):
            return Conditional(tree(test), tree(then), tree(other))
        case ast.Tuple(items):
            return Tuple(tuple(map(tree, items)))
        case ast.Subscript(obj, ast.Tuple(items)):
            return Subscript(tree(obj), tuple(map(tree, items)))
        case ast.Subscript(obj, item):
            return Subscript(tree(obj), (tree(item),))
        case ast.Attribute(obj, name):
            return Attribute(tree(obj), name)
        case ast.Call(f, args, keywords):
            named = (Keyword(k.arg or "", tree(k.value)) for k in keywords)
            given = (*map(tree, args), *named)
            name = ast.unparse(f)
            dotted = name.startswith(("torch.", "math.")) and name.replace(".", "").isidentifier()
            if isinstance(f, ast.Name) or dotted:
                return FunctionCall(name, given)
            assert isinstance(f, ast.Attribute)
            return MethodCall(tree(f.value), f.attr, given)
    raise AssertionError(ast.unparse(e))

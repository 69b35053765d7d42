"""Torch code from its text."""

import ast

from derive.program import torch_ir as ir

OPERATORS = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@"},
    **{ast.Pow: "**", ast.FloorDiv: "//", ast.BitAnd: "&", ast.BitOr: "|"},
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="},
    **{ast.Is: "is", ast.USub: "-", ast.Invert: "~", ast.Not: "not"},
}


def torch_code(text: str) -> ir.Code:
    """The code of a Python expression."""
    return tree(ast.parse(text, mode="eval").body)


def tree(e: ast.expr) -> ir.Code:
    match e:
        case ast.Name(name):
            return ir.Name(name)
        case ast.Constant(value):
            return ir.Literal(f'"{value}"' if isinstance(value, str) else repr(value))
        case ast.UnaryOp(ast.USub(), ast.Constant(value)):
            return ir.Literal(f"-{value}")
        case ast.UnaryOp(op, operand):
            return ir.Unary(OPERATORS[type(op)], tree(operand))
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            return ir.Binary(OPERATORS[type(op)], tree(left), tree(right))
        case ast.IfExp(test, then, other):
            return ir.Conditional(tree(test), tree(then), tree(other))
        case ast.Tuple(items):
            return ir.Tuple(tuple(map(tree, items)))
        case ast.Subscript(obj, ast.Tuple(items)):
            return ir.Subscript(tree(obj), tuple(map(tree, items)))
        case ast.Subscript(obj, item):
            return ir.Subscript(tree(obj), (tree(item),))
        case ast.Attribute(obj, name):
            return ir.Attribute(tree(obj), name)
        case ast.Call(f, args, keywords):
            named = (ir.Keyword(k.arg or "", tree(k.value)) for k in keywords)
            given = (*map(tree, args), *named)
            name = ast.unparse(f)
            dotted = (
                name.startswith(("torch.", "math.", "rt.")) and name.replace(".", "").isidentifier()
            )
            if isinstance(f, ast.Name) or dotted:
                return ir.FunctionCall(name, given)
            assert isinstance(f, ast.Attribute)
            return ir.MethodCall(tree(f.value), f.attr, given)
    raise AssertionError(ast.unparse(e))

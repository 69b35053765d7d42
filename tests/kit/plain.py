"""Code without what it says of dtypes and of views: what it computes."""

import ast
from typing import Any, TypeVar

Tree = TypeVar("Tree", ast.Module, ast.FunctionDef)
DTYPES = ("low", "wide", "dtype")
_TAKEN = (
    *("cast", "widened", "cast_alike", "widened_for_kernel"),
    *("autocast_product", "product_dtypes", "autocast_float32", "promoted"),
)


class _Plain(ast.NodeTransformer):
    """Without casts to the dtypes of a body, and with the views of torch."""

    def visit_Call(self, call: ast.Call) -> Any:
        self.generic_visit(call)
        match call:
            case ast.Call(ast.Attribute(x, "to"), [ast.Name(name)]) if name in DTYPES:
                return x
            case ast.Call(ast.Attribute(ast.Name("rt"), "no_view"), [x]):
                return x
            case ast.Call(ast.Attribute(ast.Name("rt"), "positions"), [size, x]):
                device = ast.keyword("device", ast.Attribute(x, "device", ast.Load()))
                arange = ast.Attribute(ast.Name("torch", ast.Load()), "arange", ast.Load())
                return ast.Call(arange, [size], [device])
            case ast.Call(
                ast.Attribute(ast.Name("rt"), "flatten" | "unflatten" as name), [x, *args]
            ):
                return ast.Call(ast.Attribute(x, name, ast.Load()), args, [])
        call.keywords = [k for k in call.keywords if not _is_wide(k)]
        return call

    def visit_Assign(self, statement: ast.Assign) -> Any:
        match statement:
            case ast.Assign([ast.Name("low" | "wide" | "dtype")]):
                return None
            case ast.Assign([ast.Tuple([ast.Name("low"), ast.Name("wide")])]):
                return None
            case ast.Assign([ast.Attribute(ast.Name("ctx"), "low")]):
                return None
            case ast.Assign(_, ast.Subscript(ast.Call(f))) | ast.Assign(_, ast.Call(f)):
                match f:
                    case ast.Attribute(ast.Name("rt"), name) if name in _TAKEN:
                        return None
        return self.generic_visit(statement)


def _is_wide(keyword: ast.keyword) -> bool:
    return keyword.arg == "dtype" and isinstance(keyword.value, ast.Name)


def plain_tree(tree: Tree) -> Tree:
    """A module or a function without them; helpers stay."""
    made: Tree = _Plain().visit(tree)
    return made


def plain(text: str) -> str:
    """The text of a module without them."""
    return ast.unparse(ast.fix_missing_locations(plain_tree(ast.parse(text))))

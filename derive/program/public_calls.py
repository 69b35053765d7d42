"""Calls that a reader knows, in place of those that only save time, or refuse what others wrap."""

from __future__ import annotations

from derive.algebra.substitution import replace
from derive.program.torch_ir import (
    Binary,
    Code,
    FunctionCall,
    MethodCall,
    Name,
    Subscript,
    Tuple,
    Unary,
    literal,
)


def with_public_calls(code: Code) -> Code:
    """Return the code in public functions of torch.

    >>> from derive.program.torch_ir import text
    >>> text(with_public_calls(FunctionCall("rt.where", (Name("c"), Name("x"), literal(0)))))
    'torch.where(c, x, 0)'
    """

    def visit(part: Code) -> Code | None:
        made = _public(part)
        return None if made is None else made.map(with_public_calls)

    return replace(code, visit)


def with_subscripts(code: Code) -> Code:
    """Return the code with reads of a first axis as subscripts.

    >>> from derive.program.torch_ir import text
    >>> text(with_subscripts(FunctionCall("_indexed", (Name("x"), Name("at")))))
    'x[at]'
    """

    def visit(part: Code) -> Code | None:
        match part:
            case FunctionCall("_indexed", (x, at)):
                return Subscript(with_subscripts(x), (with_subscripts(at),))
        return None

    return replace(code, visit)


def _public(code: Code) -> Code | None:
    """Return what takes the place of a node, its parts unchanged; None for all others."""
    zero = literal(0)
    match code:
        case FunctionCall("rt.where" | "rt.stack" as name, args):
            return FunctionCall(name.replace("rt.", "torch."), args)
        case FunctionCall("torch.ops.aten.threshold_backward", (g, x, bound)):
            return FunctionCall("torch.where", (Binary(">", x, bound), g, zero))
        case FunctionCall("torch.ops.aten.hardtanh_backward", (g, x, least, most)):
            inside = Binary("&", Binary(">", x, least), Binary("<", x, most))
            return FunctionCall("torch.where", (inside, g, zero))
        case MethodCall(x, "unflatten", (at, Tuple((Name() as count, Binary("//"))))):
            # The parameter is a size, so at least 1.
            return MethodCall(x, "unflatten", (at, Tuple((count, Unary("-", literal(1))))))
    return None

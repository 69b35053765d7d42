"""Replaces calls along an axis that precedes a group, whose axes may have size 1 or be absent.

    torch.softmax(x, i)                             _softmax_of(x, i)
    torch.log_softmax(x, i)                         _logsoftmax(x, i)
    torch._softmax_backward_data(g, y, i, ..)       _softmax_slope(g, y, i)
    torch._log_softmax_backward_data(g, y, i, ..)   _logsoftmax_slope(g, y, i)
    x.gather(i, n)                                  _gathered(x, i, n)
    x.scatter_add(i, n, y)                          _scatter_added(x, i, n, y)

torch takes ten times as long for [512, 8192, 1] along 1 as for [512, 8192].
"""

from __future__ import annotations

from derive.algebra.substitution import replace
from derive.program.torch_ir import Code, FunctionCall, Literal, MethodCall

_CALLS = {"torch.softmax": "_softmax_of", "torch.log_softmax": "_logsoftmax"}
_SLOPES = {
    "torch._softmax_backward_data": "_softmax_slope",
    "torch._log_softmax_backward_data": "_logsoftmax_slope",
}
_METHODS = {"gather": "_gathered", "scatter_add": "_scatter_added"}


def legalize_group_axes(code: Code) -> Code:
    """Return the code with such calls replaced where the axis counts from the first."""

    def visit(part: Code) -> Code | None:
        match part:
            case FunctionCall(name, (x, Literal(at) as dim)) if name in _CALLS and at.isdigit():
                return FunctionCall(_CALLS[name], (legalize_group_axes(x), dim))
            case FunctionCall(name, (g, y, Literal(at) as dim, _)) if (
                name in _SLOPES and at.isdigit()
            ):
                return FunctionCall(
                    _SLOPES[name], (legalize_group_axes(g), legalize_group_axes(y), dim)
                )
            case MethodCall(x, name, (Literal(at) as dim, *rest)) if (
                name in _METHODS and at.isdigit()
            ):
                return FunctionCall(
                    _METHODS[name], (legalize_group_axes(x), dim, *map(legalize_group_axes, rest))
                )
        return None

    return replace(code, visit)

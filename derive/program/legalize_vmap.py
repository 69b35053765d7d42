"""Calls for which autograd's older vmap has a rule: that of is_grads_batched and of jacobian.

    x.flatten(i, j)    _flatten(x, i, j)
    x.unflatten(i, s)  _unflatten(x, i, s)

A backward alone is called under it. It has no rule for torch.einsum either, which nothing
replaces.
"""

from __future__ import annotations

from derive.algebra.substitution import replace
from derive.program.torch_ir import Code, FunctionCall, MethodCall

_CALLS = ("flatten", "unflatten")


def ruled(code: Code) -> Code:
    """The code with such calls alone, where there are any."""

    def visit(part: Code) -> Code | None:
        if isinstance(part, MethodCall) and part.name in _CALLS and part.args:
            return FunctionCall(f"_{part.name}", tuple(map(ruled, (part.obj, *part.args))))
        return None

    return replace(code, visit)

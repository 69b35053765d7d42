"""Replaces calls without a rule in autograd's older vmap, of is_grads_batched and jacobian.

    x.flatten(i, j)    _flatten(x, i, j)
    x.unflatten(i, s)  _unflatten(x, i, s)

Only a backward runs under it. torch.einsum has no rule either, but has no replacement.
"""

from __future__ import annotations

from derive.algebra.substitution import replace
from derive.program.torch_ir import Code, FunctionCall, MethodCall

_CALLS = ("flatten", "unflatten")


def legalize_vmap_calls(code: Code) -> Code:
    """Return the code with these calls replaced."""

    def visit(part: Code) -> Code | None:
        if isinstance(part, MethodCall) and part.name in _CALLS and part.args:
            return FunctionCall(
                f"_{part.name}", tuple(map(legalize_vmap_calls, (part.obj, *part.args)))
            )
        return None

    return replace(code, visit)

"""Positions of the same tensor type as their operand: a DTensor cannot be combined with a Tensor.

torch.arange(n, device=x.device)  _positions(n, x)
"""

from __future__ import annotations

from derive.algebra.substitution import replace
from derive.program.torch_ir import Attribute, Code, FunctionCall, Keyword, Name


def legalize_arange(code: Code) -> Code:
    """Return the code with positions created from a tensor."""

    def visit(part: Code) -> Code | None:
        match part:
            case FunctionCall("torch.arange", (size, Keyword("device", Attribute(Name() as x, _)))):
                return FunctionCall("_positions", (legalize_arange(size), x))
        return None

    return replace(code, visit)

"""Branchless code for masks that are slow on a CPU because branch prediction fails.

    [not x <= t] f    torch.ops.aten.threshold_backward(f, x, t)
    [not x >= t] f    torch.ops.aten.threshold_backward(f, -x, -t)
    both              torch.ops.aten.hardtanh_backward(f, x, s, t)

Each call is one pass, selects f whatever its value, and can be differentiated any number of times.
x is a tensor and t a number. If x is nan, the condition ``not x <= t`` holds and the calls return
f too. So ``x > t``, which is false for nan, has no such call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from derive.algebra.expr import Expr, Not, Rel, accesses, is_number
from derive.algebra.factor import factor
from derive.program.torch_ir import Attribute, Binary, Code, FunctionCall, Literal, Name, Unary

if TYPE_CHECKING:
    from derive.lowering.ground.value import Value


def above_number(condition: Expr) -> tuple[Expr, Expr] | None:
    """Return (x, t) for a condition ``not x <= t``, and (-x, -t) for ``not x >= t``."""
    match condition:
        case Not(Rel("<=", x, t)) if is_number(t) and any(accesses(x)):
            return factor(x), factor(t)
        case Not(Rel("<=", t, x)) if is_number(t) and any(accesses(x)):
            return factor(-x), factor(-t)
    return None


def above(x: Code, t: Code, value: Code) -> Code:
    """Return the value where x > t or x is nan, else 0; bounds on both sides make one call."""
    match value:
        case FunctionCall("torch.ops.aten.threshold_backward", (inner, other, low)) if x is Unary(
            "-", other
        ):
            return FunctionCall("torch.ops.aten.hardtanh_backward", (inner, other, low, _less(t)))
    return FunctionCall("torch.ops.aten.threshold_backward", (value, x, t))


def _less(t: Code) -> Code:
    """-t"""
    match t:
        case Unary("-", positive):
            return positive
        case Literal(text) if text.startswith("-"):
            return Literal(text[1:])
    return Unary("-", t)


def follows_data(mask: Code, tensors: Mapping[str, Value]) -> bool:
    """True if the mask compares float tensors or is itself a bool tensor."""
    match mask:
        case Name(name) if name in tensors and tensors[name].kind == "bool":
            return True
        case Binary("<" | "<=" | ">" | ">=", left, right):
            return any(
                n in tensors and tensors[n].kind == "float" for n in _mask_operands((left, right))
            )
    return any(follows_data(part, tensors) for part in mask.parts())


def _mask_operands(codes: Iterable[Code]) -> Iterable[str]:
    """Yield the names whose elements the code reads."""
    for code in codes:
        match code:
            case Name(name):
                yield name
            case Attribute(_, "shape" | "device" | "dtype"):
                pass
            case _:
                yield from _mask_operands(code.parts())

"""Masks that are slow on a CPU, as no branch can be foreseen, and code without such branches.

    [not x <= t] f    torch.ops.aten.threshold_backward(f, x, t)
    [not x >= t] f    torch.ops.aten.threshold_backward(f, -x, -t)
    both              torch.ops.aten.hardtanh_backward(f, x, s, t)

This is one pass, selects whatever f is, and is differentiated as often as one likes. x is a tensor
and t a number. Where x is nan the condition holds, and both have f; so none of it
is for ``x > t``, which does not hold there.
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
    """x and t of a condition ``not x <= t``; of ``not x >= t``, -x and -t."""
    match condition:
        case Not(Rel("<=", x, t)) if is_number(t) and any(accesses(x)):
            return factor(x), factor(t)
        case Not(Rel("<=", t, x)) if is_number(t) and any(accesses(x)):
            return factor(-x), factor(-t)
    return None


def above(x: Code, t: Code, value: Code) -> Code:
    """The value where x > t or x is nan, 0 elsewhere; of both sides of x in one call."""
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
    """Whether the mask compares floating-point numbers that tensors have, or is given."""
    match mask:
        case Name(name) if name in tensors and tensors[name].kind == "bool":
            return True
        case Binary("<" | "<=" | ">" | ">=", left, right):
            return any(n in tensors and tensors[n].kind == "float" for n in _read((left, right)))
    return any(follows_data(part, tensors) for part in mask.parts())


def _read(codes: Iterable[Code]) -> Iterable[str]:
    """The names whose elements the code reads."""
    for code in codes:
        match code:
            case Name(name):
                yield name
            case Attribute(_, "shape" | "device" | "dtype"):
                pass
            case _:
                yield from _read(code.parts())

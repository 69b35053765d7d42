"""Guarded arguments of masked expressions.

The value under a mask does no harm, as it is not selected. But if the code is differentiated
again, the derivative of the other branch is multiplied by 0, and 0*inf is nan: 0*exp(800).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from derive.algebra.expr import Call, Expr, Guard, Iverson, Not, Num, Rel, accesses, is_number, num
from derive.algebra.factor import factor
from derive.algebra.logic import conditions_of
from derive.algebra.reference_values import function_at
from derive.algebra.substitution import replace as replaced
from derive.calculus.guards import without_guards
from derive.lowering.ground.value import Value
from derive.program.dataflow import names_read
from derive.program.torch_ir import Binary, Code, FunctionCall, Literal, Name, Unary


def under_condition(e: Expr, condition: Expr) -> Expr:
    """Return e for use where the condition holds.

    A condition on numbers is a Python conditional, which does not evaluate the other branch; its
    guards are dropped. A guard with the same conditions in another order gets them in this order.
    """
    parts = frozenset(conditions_of(condition))
    if is_number(condition):
        return without_guards(e, parts)

    def visit(part: Expr) -> Expr | None:
        if isinstance(part, Guard) and parts == frozenset(conditions_of(part.condition)):
            return Guard(condition, replaced(part.position, visit), part.elsewhere)
        return None

    return replaced(e, visit)


def is_zero_outside(args: Sequence[Expr], condition: Expr) -> bool:
    """True if the product of guarded arguments is 0 where the condition fails.

    log(1) is 0, and so is x*log(1) outside x != 0. This is the code for entropies. torch.xlogy does
    not do: its derivative in the second argument is 0/0 where both are 0, and its value is nan
    where the first is 0 and the second nan.
    """
    rest = [a for a in args if not isinstance(a, Iverson)]
    zero = [a for a in rest if _vanishes(a, condition)]
    beside = [a for a in rest if a not in zero]
    number = Num(Fraction(0))
    ends = [(Rel("!=", a, number), Rel("!=", number, a)) for a in beside]
    return len(zero) == 1 and all(condition in either for either in ends)


def kept_below(e: Guard) -> Expr | None:
    """Return t of a guard with x where ``not x > t`` and a harmless value elsewhere, else None.

    t satisfies the condition, so t can replace x there (a clamp).
    """
    match e.condition:
        case Not(Rel("<", t, x)) if x is e.position and is_number(t) and e.elsewhere is num(1):
            return t
    return None


def _vanishes(e: Expr, condition: Expr) -> bool:
    if not isinstance(e, Call) or len(e.args) > 1:
        return False
    (inside,) = e.args
    one = Num(Fraction(1))
    if not isinstance(inside, Guard) or inside.elsewhere is not one or kept_below(inside):
        return False
    asked = frozenset(conditions_of(inside.condition))
    everywhere = asked.issuperset(conditions_of(condition))
    return everywhere and function_at(e.function, 1.0) == 0


# --------------------------------------------------------------------
# Branchless code for masks that are slow on a CPU because branch prediction fails.
#
#     [not x <= t] f    torch.ops.aten.threshold_backward(f, x, t)
#     [not x >= t] f    torch.ops.aten.threshold_backward(f, -x, -t)
#     both              torch.ops.aten.hardtanh_backward(f, x, s, t)
#
# Each call is one pass, selects f whatever its value, and can be differentiated any number of
# times.
# x is a tensor and t a number. If x is nan, the condition ``not x <= t`` holds and the calls return
# f too. So ``x > t``, which is false for nan, has no such call.


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
            read = (tensors.get(name.id) for name in names_read(left) | names_read(right))
            return any(x is not None and x.kind == "float" for x in read)
    return any(follows_data(part, tensors) for part in mask.parts())

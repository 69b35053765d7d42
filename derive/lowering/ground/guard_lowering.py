"""What stands under a bracket: its arguments are kept safe.

A masked value does no harm where it is selected away. But where the code is differentiated again,
the derivative of the branch that is not taken is multiplied by 0, which neither a nan nor an
infinity survives: 0*exp(800).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from derive.algebra.exact import function_at
from derive.algebra.expr import (
    Call,
    Expr,
    Guard,
    Iverson,
    Not,
    Num,
    Rel,
    is_number,
    num,
)
from derive.algebra.logic import conditions_of
from derive.algebra.substitution import replace as replaced
from derive.calculus.guards import without_guards


def under(e: Expr, condition: Expr) -> Expr:
    """e, which is read where the condition holds.

    A condition on numbers is Python's, which does not compute the other branch; one that guards
    an operand in another order is said as it is here.
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
    """Whether the product of what was protected is 0 where the condition fails.

    log(1) is, and so is x*log(1) outside x != 0. This is the code for entropies: torch.xlogy is
    not, as its derivative in the second argument is 0/0 where both are 0, and as a nan in the
    second argument is its value where the first is 0.
    """
    rest = [a for a in args if not isinstance(a, Iverson)]
    zero = [a for a in rest if _vanishes(a, condition)]
    beside = [a for a in rest if a not in zero]
    number = Num(Fraction(0))
    ends = [(Rel("!=", a, number), Rel("!=", number, a)) for a in beside]
    return len(zero) == 1 and all(condition in either for either in ends)


def kept_below(e: Guard) -> Expr | None:
    """t of what is x where ``not x > t``, and where x > t any value that does no harm: t is one.

    The condition holds of t, so what is asked of x there can be asked of t.
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

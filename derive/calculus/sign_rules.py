"""Brackets on the sign of an unnamed relu as brackets on its argument.

[relu(e) > 0]  =  [e > 0]
"""

from __future__ import annotations

from derive.algebra.expr import Call, Expr, Rel
from derive.algebra.poly import Poly, as_atom
from derive.algebra.rules import Step
from derive.algebra.simplify import Log
from derive.algebra.substitution import replace


def without_rectified(p: Poly, log: Log) -> Poly:
    """p with such brackets rewritten, and a log entry if there are any."""
    whole: Expr = p
    made = replace(whole, _relu_argument_sign)
    assert isinstance(made, Poly)
    if made is not p:
        log.append(Step("sign of a rectified value", "[relu(e) > 0] = [e > 0]", p, made))
    return made


def _relu_argument_sign(part: Expr) -> Expr | None:
    """e <= 0 for relu(e) <= 0: both are false for a nan."""
    if not (isinstance(part, Rel) and part.op == "<="):
        return None
    left = as_atom(part.left) if isinstance(part.left, Poly) else part.left
    zero = isinstance(part.right, Poly) and not part.right.terms
    if isinstance(left, Call) and left.function == "relu" and zero:
        return Rel("<=", left.args[0], part.right)
    return None

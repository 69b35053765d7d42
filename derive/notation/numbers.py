"""Fold expressions of numbers alone; sqrt(-1), log(0) and overflow are errors.

A reduction ignores an infinite branch: max[k](where(c, x, -inf)) is max[k | c](x).
"""

from __future__ import annotations

from dataclasses import replace
from math import isinf, isnan

from derive.algebra.exact import constant_value
from derive.algebra.expr import Call, Const, Expr, Pow, num
from derive.notation import syntax
from derive.notation.smart_constructors import product
from derive.notation.syntax import Raw, fail, show


def check_number(e: Expr, written: Raw) -> None:
    """Refuse nan, and an infinite function of numbers."""
    value = constant_value(e)
    if value is not None and isnan(value):
        fail(written.at, f"{show(written)} is not a real number")
    if value is not None and isinf(value) and isinstance(e, Call | Pow):
        fail(written.at, f"{show(written)} is infinite or out of the range of float64")


_INFINITY = Const("inf")
_LEFT_OUT = {
    **dict.fromkeys(
        "max amax argmax logsumexp softmax log_softmax".split(), product((num(-1), _INFINITY))
    ),
    **dict.fromkeys("min amin argmin".split(), _INFINITY),
}
"""The branch value that each reduction ignores."""


def infinity(e: Raw) -> Expr | None:
    """Return the node of inf or -inf, else None."""
    match e:
        case syntax.NameSyntax("inf"):
            return _INFINITY
        case syntax.Negative(arg):
            inner = infinity(arg)
            return None if inner is None else product((num(-1), inner))
    return None


def taken(e: syntax.Bind) -> syntax.Bind:
    """Return the head with an ignored infinite branch as its condition."""
    match e.args:
        case (syntax.ApplySyntax("where", (test, then, other)),):
            for value, branch, holds in (
                (then, other, test),
                (other, then, syntax.Negation(test, at=test.at)),
            ):
                if e.kind in _LEFT_OUT and infinity(branch) is _LEFT_OUT[e.kind]:
                    both = (holds,) if e.condition is None else (e.condition, holds)
                    condition = both[0] if len(both) == 1 else syntax.Both(both, at=both[0].at)
                    return taken(replace(e, condition=condition, args=(value,)))
    return e

"""The values of what is made of numbers alone, of which sqrt(-1) and log(0) are none, and inf.

An infinite branch is what a reduction leaves out: max[k](where(c, x, -inf)) is max[k | c](x).
"""

from __future__ import annotations

from dataclasses import replace
from math import isinf, isnan

from derive.algebra.exact import value_of
from derive.algebra.expr import Call, Const, Expr, Pow, num
from derive.notation import syntax
from derive.notation.smart_constructors import product
from derive.notation.syntax import Raw, fail, show


def check_number(e: Expr, written: Raw) -> None:
    """Refuse a nan, and a function of numbers that is infinite."""
    value = value_of(e)
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
"""What a head takes as nothing."""


def infinity(e: Raw) -> Expr | None:
    """The node of inf or -inf."""
    match e:
        case syntax.NameSyntax("inf"):
            return _INFINITY
        case syntax.Negative(arg):
            inner = infinity(arg)
            return None if inner is None else product((num(-1), inner))
    return None


def taken(e: syntax.Bind) -> syntax.Bind:
    """The head, what an infinite branch leaves out being left out by its condition."""
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

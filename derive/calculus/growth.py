"""Expressions that are bounded, or grow at most linearly, in the given tensors, by structure.

    sigmoid, tanh, softmax,   exp(-x^2),   1/(1 + x^2)          are bounded
    x*w,   abs(x),   Sum_k x[k]*w[k],   max_k x[k]              grow no faster than their operands

exp(x), 1/x and log(x) do not: such a factor may be infinite where its cofactor is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from derive.algebra.expr import (
    Access,
    Call,
    Const,
    Delta,
    Expr,
    Index,
    Iverson,
    Num,
    Param,
    Size,
    is_number,
)
from derive.algebra.functions import FUNCTIONS
from derive.algebra.poly import FactoredSum, Poly, Term, base_and_power, is_mask
from derive.calculus.lets import Find
from derive.calculus.softmax_recognition import NormalizedExp, recognise


@dataclass
class GrowthBounds:
    """The growth facts of one operation; ``find`` returns the let of a name."""

    find: Find
    _known: dict[str, bool] = field(default_factory=dict)

    def __call__(self, e: Expr) -> bool:
        """True if e is finite of moderate size wherever the given tensors are."""
        e = recognise(e, self.find, self.find)
        base, power = base_and_power(e)
        if power < 0:
            return is_number(base) or self._is_away_from_0(base)
        match base:
            case Num() | Const() | Param() | Size() | Index() | Iverson() | Delta():
                return base is not Const("inf")
            case Access(tensor):
                return self._is_moderate_tensor(tensor)
            case Poly(terms):
                return all(map(self._term, terms))
            case FactoredSum(body):
                return self(body)
            case Call(function, args):
                return self._call(function, args)
            case NormalizedExp(kind, _, body):
                return kind == "softmax" or self(body)
        return False

    def _term(self, t: Term) -> bool:
        return all(map(self, t.factors))

    def _call(self, function: str, args: tuple[Expr, ...]) -> bool:
        if function == "exp":
            return self._is_never_above(args[0])
        row = FUNCTIONS[function]
        return -inf < row.least <= row.most < inf or (row.linear and all(map(self, args)))

    def _is_moderate_tensor(self, name: str) -> bool:
        if name not in self._known:
            let = self.find(name)
            known = let is None or let.dtype != "float"
            self._known[name] = known
            # Over an empty selection, which a condition may leave, a maximum is infinite.
            if let is not None and (
                let.kind == "sum" or (let.reduction.linear and let.condition is None)
            ):
                self._known[name] = known or self(let.body)
        return self._known[name]

    def _is_away_from_0(self, e: Expr) -> bool:
        """True if e is a positive number plus terms that are at least 0."""
        if not isinstance(e, Poly):
            return False
        numbers = sum(t.coef for t in e.terms if not t.factors)
        return numbers > 0 and all(self._is_never_below(t) for t in e.terms if t.factors)

    def _is_never_above(self, e: Expr) -> bool:
        """True if e is at most 0."""
        if not isinstance(e, Poly):
            return False
        return all(
            t.coef < 0 if self.are_never_below(t.factors) else self._is_log_softmax(t)
            for t in e.terms
        )

    def _is_log_softmax(self, t: Term) -> bool:
        return (
            t.coef > 0
            and len(t.factors) == 1
            and isinstance(t.factors[0], NormalizedExp)
            and t.factors[0].kind == "log_softmax"
        )

    def _is_never_below(self, t: Term) -> bool:
        return t.coef > 0 and self.are_never_below(t.factors)

    def are_never_below(self, factors: Iterable[Expr]) -> bool:
        """True if each factor is at least 0 wherever it is defined."""
        return all(map(self._is_factor_never_below, factors))

    def _is_factor_never_below(self, f: Expr) -> bool:
        base, power = base_and_power(f)
        if power.denominator != 1 or power.numerator % 2 == 0 or is_mask(base):
            return True
        match base:
            case Num(value):
                return value >= 0
            case Const() | Size():
                return True
            case Call(function):
                return FUNCTIONS[function].least >= 0
            case NormalizedExp(kind):
                return kind == "softmax"
            case Poly(terms):
                return all(map(self._is_never_below, terms))
            case Access(tensor):
                let = self.find(tensor)
                if let is None or let.kind != "sum" or let.dtype != "float":
                    return False
                return all(map(self._is_never_below, let.body.terms))
        return False

"""Value analysis: what holds of an expression wherever the tensors that it reads are finite.

    facts(e)  =  (low, high, nonzero, finite, defined, moderate)        low <= e <= high

The facts follow from structure and the columns of the tables of functions and reductions. A
quotient by a nonzero value, a logarithm of a positive value and an exponential of a bounded value
are finite. They need no guard, and they commute with conditions.

    sigmoid, tanh, softmax,   exp(-x^2),   1/(1 + x^2)          are bounded, and so moderate
    x*w,   abs(x),   Sum_k x[k]*w[k],   max_k x[k]              grow no faster than their operands

exp(x), 1/x and log(x) are not moderate: such a factor may be infinite where its cofactor is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf, isfinite

from derive.algebra import expr as ex
from derive.algebra.functions import FUNCTIONS
from derive.algebra.logic import conjunction, negate
from derive.algebra.poly import FactoredSum, Poly, Term
from derive.algebra.reductions import REDUCTIONS, Reduction
from derive.calculus.lets import Find, Let
from derive.calculus.softmax import NormalizedExp, log_normalizer, recognise_under


@dataclass(frozen=True)
class Facts:
    """What holds of a value: low <= value <= high where it is defined, not 0 if ``nonzero``.

    - ``finite``: no selection that it is reduced over may be empty.
    - ``defined``: also no function and no power in it leaves its domain, so that the value and its
      derivatives are finite but for an overflow.
    - ``moderate``: where it is defined, it grows no faster than a polynomial of the tensors.
    """

    low: float = -inf
    high: float = inf
    nonzero: bool = False
    finite: bool = True
    defined: bool = True
    moderate: bool = True

    @property
    def positive(self) -> bool:
        """True if the value is above 0."""
        return self.low > 0 or (self.low == 0 and self.nonzero)


_ANY = Facts()
_OF_NOTHING = Facts(finite=False, defined=False, moderate=False)


@dataclass
class ValueFacts:
    """The facts about expressions; ``find`` returns the let of a name."""

    find: Find
    known: dict[ex.Expr, Facts] = field(default_factory=dict)
    named: dict[str, Facts] = field(default_factory=dict)

    def facts(self, e: ex.Expr) -> Facts:
        """The facts of e."""
        found = self.known.get(e)
        if found is None:
            self.known[e] = _ANY
            found = self.known[e] = self._facts(e)
        return found

    def _facts(self, e: ex.Expr) -> Facts:
        match e:
            case NormalizedExp(kind, _, body, _, condition):
                return self._of_softmax(kind, body, condition)
            case ex.Call():
                return self._of_call(e)
            case ex.Pow(base, ex.Num(exponent)):
                return self._of_power(e, self.facts(base), exponent)
            case ex.Guard(_, position, elsewhere):
                return _hull([self.facts(position), self.facts(elsewhere)])
            case ex.Where(_, then, other):
                return _hull([self.facts(then), self.facts(other)])
            case FactoredSum(body):
                return self.facts(body)
            case Poly(parts) | ex.Add(parts):
                whole = _sum_facts([self.facts(t) for t in parts])
                return whole if log_normalizer(e) is None else replace(whole, high=0)
            case ex.Mul(args):
                return _product_facts([self.facts(a) for a in args])
            case Term(coef, binders, factors):
                whole = _product_facts([self.facts(ex.Num(coef)), *map(self.facts, factors)])
                return _summed_facts(whole) if binders else whole
            case ex.Reduce("sum", _, body, None):
                return _summed_facts(self.facts(body))
            case ex.Reduce(kind, _, body, condition):
                return _reduced_facts(REDUCTIONS[kind], self.facts(body), condition)
            case ex.Access(tensor, positions):
                found = self._of_name(tensor)
                if not any(isinstance(p, ex.Guard) for p in positions):
                    return found
                # A window reads zeros where a guarded position is outside of its axis.
                low, high = min(found.low, 0), max(found.high, 0)
                return replace(found, low=low, high=high, nonzero=False)
            case ex.Iverson() | ex.Delta():
                return Facts(0, 1)
            case ex.Num() | ex.Const() | ex.Param() | ex.Size() | ex.Index():
                return _leaf_facts(e)
        inner = [self.facts(part) for part in e.parts()]
        return replace(_ANY, defined=all(f.defined for f in inner), moderate=False)

    def _of_name(self, tensor: str) -> Facts:
        """The facts of a name, computed after those of the names that it reads."""

        def reads(name: str) -> Iterable[str]:
            let = None if name in self.named else self.find(name)
            return () if let is None else (t for t in ex.tensors(let.body) if self.find(t))

        for name in ex.inside_out([tensor], reads):
            if name not in self.named:
                self.named[name] = self._of_definition(name)
        return self.named[tensor]

    def _of_definition(self, tensor: str) -> Facts:
        let = self.find(tensor)
        if let is None or let.dtype != "float":
            return _ANY
        if let.kind == "sum":
            return self.facts(recognise_under(let.body, self.find, ()))
        return _reduced_facts(let.reduction, self.facts(let.body), taken_where(let))

    def _of_softmax(self, kind: str, body: ex.Expr, condition: ex.Expr | None) -> Facts:
        inner = self.facts(body)
        defined = inner.defined and condition is None
        if kind == "softmax":
            return Facts(0, 1, True, defined=defined)
        return Facts(-inf, 0, defined=defined, moderate=inner.moderate)

    def _of_call(self, e: ex.Call) -> Facts:
        row, args = FUNCTIONS[e.function], [self.facts(a) for a in e.args]
        defined = all(a.defined for a in args) and self._is_inside(e)
        if e.function != "exp" and not all(a.finite for a in args):
            return _OF_NOTHING
        if e.function in ("maximum", "minimum", "clamp"):
            return _chosen(e.function, args)
        moderate = -inf < row.least <= row.most < inf or (
            args[0].high < inf if row.overflows else row.linear and all(a.moderate for a in args)
        )
        nonzero = row.open or row.least > 0 or row.most < 0
        return Facts(row.least, row.most, nonzero, True, defined, moderate)

    def _of_power(self, e: ex.Pow, base: Facts, exponent: Fraction) -> Facts:
        if exponent < 0 and isinstance(e.base, Poly) and _is_selection_count(e.base):
            return Facts(0, 1, True, False, False)
        low, high = _power_range(base, exponent)
        bare = isinstance(e.base, ex.Num | ex.Const | ex.Param | ex.Size)
        defined = bare or (base.defined and self._is_inside(e))
        away = base.low > 0 or base.high < 0 or ex.is_number(e.base)
        moderate = away if exponent < 0 else base.moderate
        return Facts(low, high, base.nonzero, base.finite, defined, moderate)

    def _is_inside(self, e: ex.Call | ex.Pow) -> bool:
        """True if the operands are within the domain of the function or the power."""
        if isinstance(e, ex.Pow):
            assert isinstance(e.exponent, ex.Num)
            power, base = e.exponent.value, self.facts(e.base)
            return base.positive if power.denominator != 1 else power > 0 or base.nonzero
        row = FUNCTIONS[e.function]
        if row.total:
            return True
        if row.domain is None:
            return any(self.facts(a).nonzero for a in (e.args[-1:] if row.divides else e.args))
        (low, high), first = row.domain, self.facts(e.args[0])
        above = first.positive if low == 0 else first.low > low
        return above and (high == inf or first.high < high)

    def may_fail(self, e: ex.Expr, held: Iterable[ex.Expr] = ()) -> bool:
        """True if f(u) or its derivative may be nan or infinite where u is finite.

        e is the function call or the power; ``held`` are the conditions that hold there.
        """
        if not isinstance(e, ex.Call | ex.Pow):
            return False
        if isinstance(e, ex.Call):
            if e.function != "exp" and not all(self.facts(a).finite for a in e.args):
                return True
        return self.may_overflow(e, held) or not self._is_inside(e)

    def may_overflow(self, e: ex.Expr, held: Iterable[ex.Expr] = ()) -> bool:
        """True if e calls a function that may overflow at moderate values of the tensors."""
        if not isinstance(e, ex.Call) or not FUNCTIONS[e.function].overflows:
            return False
        known = recognise_under(e, self.find, held)
        return self.facts(known.args[0] if isinstance(known, ex.Call) else known).high == inf


def _leaf_facts(e: ex.Expr) -> Facts:
    match e:
        case ex.Num(value):
            return Facts(float(value), float(value), value != 0)
        case ex.Const("pi"):
            return Facts(3.0, 4.0, True)
        case ex.Const():
            return replace(_ANY, defined=False, moderate=False)
        case ex.Size():
            return Facts(0, inf, True)
        case ex.Index():
            return Facts(0, inf)
    return _ANY


def _chosen(function: str, parts: list[Facts]) -> Facts:
    """The facts of the maximum, minimum or clamp of these."""
    if function == "maximum":
        low, high = max(p.low for p in parts), max(p.high for p in parts)
    elif function == "minimum":
        low, high = min(p.low for p in parts), min(p.high for p in parts)
    else:
        x, least, most = parts
        low = min(max(x.low, least.low), most.low)
        high = min(max(x.high, least.high), most.high)
    return _of_parts(low, high, low > 0 or high < 0, parts)


def _of_parts(low: float, high: float, nonzero: bool, parts: list[Facts]) -> Facts:
    """The facts of a value in that range that is finite, defined or moderate if all parts are."""
    finite, defined = all(p.finite for p in parts), all(p.defined for p in parts)
    return Facts(low, high, nonzero, finite, defined, all(p.moderate for p in parts))


def _sum_facts(parts: list[Facts]) -> Facts:
    if not parts:
        return Facts(0, 0)
    low, high = sum(p.low for p in parts), sum(p.high for p in parts)
    above = low > 0 or (low == 0 and any(p.positive for p in parts))
    return _of_parts(low, high, above or high < 0, parts)


def _product_facts(parts: list[Facts]) -> Facts:
    low, high = 1.0, 1.0
    for p in parts:
        ends = [a * b if a and b else 0.0 for a in (low, high) for b in (p.low, p.high)]
        low, high = min(ends), max(ends)
    return _of_parts(low, high, all(p.nonzero for p in parts), parts)


def _power_range(base: Facts, exponent: Fraction) -> tuple[float, float]:
    """The least and the greatest value of the power."""
    if exponent.denominator == 1 and exponent.numerator % 2 == 0:
        unbounded = base.high == inf or base.low == -inf or exponent < 0
        return 0, inf if unbounded else max(base.low ** int(exponent), base.high ** int(exponent))
    # A root is nan below 0.
    return (0 if base.low >= 0 or exponent.denominator != 1 else -inf), inf


def _summed_facts(inner: Facts) -> Facts:
    """The facts of a sum over a nonempty axis."""
    low = 0 if inner.low >= 0 else -inf
    high = 0 if inner.high <= 0 else inf
    return replace(inner, low=low, high=high, nonzero=inner.positive or inner.high < 0)


def _reduced_facts(row: Reduction, inner: Facts, condition: ex.Expr | None) -> Facts:
    """The facts of a reduction of such values where a condition holds, over a nonempty axis."""
    if not row.is_smooth:
        return _ANY
    if condition is not None and not isfinite(row.of_nothing):
        return _OF_NOTHING
    moderate = row.linear and condition is None and inner.moderate
    if row.sign:
        return replace(inner, moderate=moderate)
    return Facts(finite=inner.finite, defined=inner.defined, moderate=moderate)


def _is_selection_count(p: Poly) -> bool:
    """True if p counts the positions that conditions select: the mean of none is nan."""
    factors = [f for t in p.terms for f in t.factors]
    return any(t.binders for t in p.terms) and all(isinstance(f, ex.Iverson) for f in factors)


def _hull(parts: list[Facts]) -> Facts:
    """The facts of a value that is one of these."""
    low, high = min(p.low for p in parts), max(p.high for p in parts)
    return _of_parts(low, high, all(p.nonzero for p in parts), parts)


def taken_where(let: Let) -> ex.Expr | None:
    """The condition of a reduction, including a -inf branch of a maximum, which excludes too."""
    conditions = [] if let.condition is None else [let.condition]
    least = Fraction(1 if let.reduction.neutral == inf else -1)
    for t in let.body.terms:
        if t.coef == least and ex.Const("inf") in t.factors:
            masks = [f.condition for f in t.factors if isinstance(f, ex.Iverson)]
            if len(masks) == 1 and len(t.factors) == 2:
                conditions.append(negate(masks[0]))
    return conjunction(conditions) if conditions else None

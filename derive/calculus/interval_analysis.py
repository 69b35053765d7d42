"""Interval analysis: bounds of an expression wherever the tensors that it reads are finite.

    facts(e)  =  (low, high, nonzero)        low <= e <= high

The facts follow from structure and the columns of the function table. A quotient by a nonzero
value, a logarithm of a positive value and an exponential of a bounded value are finite. They need
no guard, and they commute with conditions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf

from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Const,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Num,
    Param,
    Pow,
    Reduce,
    Size,
    tensors,
    walk,
)
from derive.algebra.functions import FUNCTIONS
from derive.algebra.logic import conjunction, negate
from derive.algebra.poly import FactoredSum, Poly, Term
from derive.calculus.lets import Find, Let
from derive.calculus.softmax_recognition import NormalizedExp, recognise_under


@dataclass(frozen=True)
class Facts:
    """low <= value <= high, not 0 if ``nonzero``; not ``finite`` if a selection may be empty."""

    low: float = -inf
    high: float = inf
    nonzero: bool = False
    finite: bool = True

    @property
    def positive(self) -> bool:
        """True if the value is above 0."""
        return self.low > 0 or (self.low == 0 and self.nonzero)


_ANY = Facts()


@dataclass
class ValueFacts:
    """The facts about flat expressions; ``find`` returns the let of a name."""

    find: Find
    known: dict[Expr, Facts] = field(default_factory=dict)
    named: dict[str, Facts] = field(default_factory=dict)

    def facts(self, e: Expr) -> Facts:
        """The facts of e."""
        found = self.known.get(e)
        if found is None:
            self.known[e] = _ANY
            found = self.known[e] = self._facts(e)
        return found

    def _facts(self, e: Expr) -> Facts:
        match e:
            case Num(value):
                return Facts(float(value), float(value), value != 0)
            case Const("pi"):
                return Facts(3.0, 4.0, True)
            case Size():
                return Facts(0, inf, True)
            case Index():
                return Facts(0, inf)
            case Iverson():
                return Facts(0, 1)
            case NormalizedExp("softmax"):
                return Facts(0, 1, True)
            case NormalizedExp():
                return Facts(-inf, 0)
            case Call(function, args):
                return self._of_call(function, args)
            case Pow(Poly() as count, Num(exponent)) if exponent < 0 and _is_selection_count(count):
                return Facts(0, 1, True, False)
            case Pow(base, Num(exponent)):
                return _power_facts(self.facts(base), exponent)
            case Guard(_, position, elsewhere):
                return _hull(self.facts(position), self.facts(elsewhere))
            case FactoredSum(body):
                return self.facts(body)
            case Poly(terms):
                return _sum_facts([self.facts(t) for t in terms])
            case Term(coef, binders, factors):
                whole = _product_facts([self.facts(Num(coef)), *map(self.facts, factors)])
                return _summed_facts(whole) if binders else whole
            case Access(tensor, positions):
                found = self._of_name(tensor)
                if not any(isinstance(p, Guard) for p in positions):
                    return found
                # A window reads zeros where a guarded position is outside of its axis.
                low, high = min(found.low, 0), max(found.high, 0)
                return replace(found, low=low, high=high, nonzero=False)
        return _ANY

    def _of_name(self, tensor: str) -> Facts:
        """The facts of a name, computed after those of the names that it reads.

        Iterative, as a network is deeper than Python's stack.
        """
        pending = [tensor]
        while pending:
            name = pending[-1]
            let = None if name in self.named else self.find(name)
            inner = tensors(let.body) if let is not None else ()
            before = [t for t in inner if t not in self.named and self.find(t) is not None]
            if before and not set(before) & set(pending):
                pending += before
                continue
            pending.pop()
            if name not in self.named:
                self.named[name] = self._of_definition(name)
        return self.named[tensor]

    def _of_definition(self, tensor: str) -> Facts:
        let = self.find(tensor)
        if let is None or let.dtype != "float":
            return _ANY
        if let.kind == "sum":
            return self.facts(recognise_under(let.body, self.find, ()))
        if not let.reduction.is_infinite_of_nothing:
            return _ANY
        inner = self.facts(let.body)
        if taken_where(let) is not None:
            return Facts(finite=False)
        return _ANY if let.kind == "logsumexp" else inner

    def _of_call(self, function: str, args: tuple[Expr, ...]) -> Facts:
        row = FUNCTIONS[function]
        if function != "exp" and not all(self.facts(a).finite for a in args):
            return Facts(finite=False)
        if function in ("maximum", "minimum", "clamp"):
            return _chosen(function, [self.facts(a) for a in args])
        return Facts(row.least, row.most, row.open or row.least > 0 or row.most < 0)

    def may_fail(self, e: Expr, held: Iterable[Expr] = ()) -> bool:
        """True if f(u) or its derivative may be nan or infinite where u is finite.

        e is the function call or the power; ``held`` are the conditions that hold there.
        """
        if isinstance(e, Pow):
            assert isinstance(e.exponent, Num)
            power, base = e.exponent.value, self.facts(e.base)
            if power.denominator != 1:
                return not base.positive
            return power < 0 and not base.nonzero
        if not isinstance(e, Call):
            return False
        row = FUNCTIONS[e.function]
        if e.function != "exp" and not all(self.facts(a).finite for a in e.args):
            return True
        first = self.facts(e.args[0])
        if row.overflows:
            known = recognise_under(e, self.find, held)
            return self.facts(known.args[0] if isinstance(known, Call) else known).high == inf
        if row.total:
            return False
        if row.domain is None:
            return not any(self.facts(a).nonzero for a in e.args)
        low, high = row.domain
        inside = first.positive if low == 0 else first.low > low
        return not (inside and (high == inf or first.high < high))


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
    return Facts(low, high, low > 0 or high < 0)


def _sum_facts(parts: list[Facts]) -> Facts:
    low, high = sum(p.low for p in parts), sum(p.high for p in parts)
    above = low > 0 or (low == 0 and any(p.positive for p in parts))
    return Facts(low, high, above or high < 0, all(p.finite for p in parts))


def _product_facts(parts: list[Facts]) -> Facts:
    low, high = 1.0, 1.0
    for p in parts:
        ends = [_bound_product(a, b) for a in (low, high) for b in (p.low, p.high)]
        low, high = min(ends), max(ends)
    return Facts(low, high, all(p.nonzero for p in parts), all(p.finite for p in parts))


def _bound_product(a: float, b: float) -> float:
    return 0.0 if not a or not b else a * b


def _power_facts(base: Facts, exponent: Fraction) -> Facts:
    if exponent.denominator == 1 and exponent.numerator % 2 == 0:
        return Facts(
            0,
            inf
            if base.high == inf or base.low == -inf or exponent < 0
            else max(base.low ** int(exponent), base.high ** int(exponent)),
            base.nonzero,
        )
    if base.low < 0:
        return Facts(nonzero=base.nonzero)
    return Facts(0, inf, base.nonzero)


def _summed_facts(inner: Facts) -> Facts:
    """The facts of a sum over a nonempty axis."""
    low = 0 if inner.low >= 0 else -inf
    high = 0 if inner.high <= 0 else inf
    return Facts(low, high, inner.positive or inner.high < 0, inner.finite)


def _is_selection_count(p: Poly) -> bool:
    """True if p counts the positions that conditions select: the mean of none is nan."""
    factors = [f for t in p.terms for f in t.factors]
    return any(t.binders for t in p.terms) and all(isinstance(f, Iverson) for f in factors)


def _hull(a: Facts, b: Facts) -> Facts:
    return Facts(min(a.low, b.low), max(a.high, b.high), a.nonzero and b.nonzero)


def taken_where(let: Let) -> Expr | None:
    """The condition of a reduction, including a -inf branch of a maximum, which excludes too."""
    conditions = [] if let.condition is None else [let.condition]
    least = Fraction(1 if let.reduction.neutral == inf else -1)
    for t in let.body.terms:
        if t.coef == least and Const("inf") in t.factors:
            masks = [f.condition for f in t.factors if isinstance(f, Iverson)]
            if len(masks) == 1 and len(t.factors) == 2:
                conditions.append(negate(masks[0]))
    return conjunction(conditions) if conditions else None


def may_be_infinite(find: Find, e: Expr) -> bool:
    """True if e may be infinite, or nan, at finite values of the tensors.

    ``find`` returns the let of a name.
    """
    pending, seen = [e], set[str]()
    while pending:
        e = pending.pop()
        match e:
            case Const("inf"):
                return True
            case Pow(Num() | Const() | Param() | Size()):
                continue
            case Pow(_, Num(power)) if power < 0 or power.denominator != 1:
                return True
            case Call(function) if not FUNCTIONS[function].total:
                return True
            case Access(tensor):
                let = find(tensor)
                if let is not None and tensor not in seen:
                    if let.reduction.is_infinite_of_nothing and taken_where(let) is not None:
                        return True
                    seen.add(tensor)
                    pending.append(let.body)
                continue
        pending += e.parts()
    return False


def is_everywhere(part: Expr) -> bool:
    """True if a node is finite whatever its operands are, and reads within its axes."""
    match part:
        case Access(_, positions):
            return all(isinstance(p, Index) for p in positions)
        case Pow(base, Num(power)):
            fixed = all(isinstance(p, Add | Mul | Pow | Num | Param | Size) for p in walk(base))
            return fixed or (power > 0 and power.denominator == 1)
        case Call(function):
            return FUNCTIONS[function].total and not FUNCTIONS[function].overflows
        case Reduce(kind, _, _, condition):
            return kind == "sum" and condition is None
        case Const(name):
            return name != "inf"
    return not isinstance(part, Guard | Delta)


def is_finite_alike(part: Expr) -> bool:
    """True if a node is finite in the same sense; exp counts, as its argument is a score."""
    match part:
        case Reduce(kind, _, _, condition):
            return kind in ("sum", "logsumexp") and condition is None
        case Pow(base, Num(power)):
            numbers = all(isinstance(p, Add | Mul | Pow | Num | Param | Size) for p in walk(base))
            return numbers or (power > 0 and power.denominator == 1)
        case Call(function):
            return function == "exp" or (
                FUNCTIONS[function].total and not FUNCTIONS[function].overflows
            )
    return isinstance(part, Access | Add | Index | Mul | Num | Param | Size)

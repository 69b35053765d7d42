"""Nested equations to torch code.

Every expression is lowered in a layout: the order of the indices around it. A tensor is permuted
and given size-1 axes only as far as it must to broadcast there. Conditions become masks of
``torch.where``, never factors 0 and 1, since 0*nan is nan. A read at computed positions is a
gather, a delta that no sum removed is a scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
    Where,
    free_indices,
)
from derive.algebra.factor import factor
from derive.algebra.poly import Poly, as_atom
from derive.algebra.squares import Centre, Nonnegative
from derive.algebra.substitution import substitute
from derive.calculus.emptiness import may_be_infinite
from derive.calculus.lets import Let
from derive.errors import LoweringError
from derive.lowering.access import lower_access
from derive.lowering.additions import lower_addition
from derive.lowering.binders import apart, renaming, with_binders
from derive.lowering.calls import lower_call, lower_normal
from derive.lowering.code import (
    Attribute,
    Binary,
    Code,
    Dim,
    Function,
    Literal,
    Method,
    Name,
    Unary,
    literal,
)
from derive.lowering.conditions import lower_condition
from derive.lowering.cumulative import cumulated, running
from derive.lowering.guarded import protected, under_guards
from derive.lowering.nothing import (
    never_empty,
    only_where_there_is,
    split_by_winners,
    with_errors,
)
from derive.lowering.products import chain, lower_product
from derive.lowering.recognise import Normal, recognise
from derive.lowering.scope import Scope, number
from derive.lowering.segments import segment_any, segment_extremum
from derive.lowering.sums import lower_sum
from derive.lowering.value import Value, broadcast
from derive.notation.operation import Kind

__all__ = ["Lowering"]

_SMALLEST = Literal("-math.inf")
_EXCLUDED: dict[str, Code] = {
    "logsumexp": _SMALLEST,
    "max": _SMALLEST,
    "amax": _SMALLEST,
    "argmax": _SMALLEST,
    "min": Literal("math.inf"),
    "amin": Literal("math.inf"),
    "argmin": Literal("math.inf"),
    "prod": literal(1),
}
"""What leaves a reduction as it is."""
_BOUNDS = {"argmax": ("clamp_min", "min"), "argmin": ("clamp_max", "max")}
_EXTREMA = ("max", "min", "amax", "amin", "argmax", "argmin")
_CUMULATIVE = {"logsumexp": "logcumsumexp", "prod": "cumprod"}


@dataclass
class Lowering(Scope):
    """A scope that knows how to lower every kind of node."""

    _conditions: dict[tuple[Expr, tuple[Index, ...]], Value] = field(default_factory=dict)
    """What is known of conditions: one stands in the guard of each of its own reads."""

    def definition(self, let: Let) -> Value:
        """The code of a let with all of its axes at full size."""
        if let.kind == "sum":
            value = self._plain(let)
        else:
            value = self._reduction(let)
        if let.dtype == "float" and value.kind != "float":
            value = self.as_float(value)
        elif let.dtype == "int" and value.kind == "float":
            # A function of integers that keeps them, computed as torch does for floats.
            if not value.scalar:
                value = replace(value, code=Method(value.code, "to", (Name("torch.int64"),)))
            value = replace(value, kind="int")
        value = replace(value, code=with_errors(value.code))
        return self.frame.expand(value, let.formals, self.like)

    def _plain(self, let: Let) -> Value:
        """The body as it is; of an adjoint, without terms of a winner of nothing."""
        groups = split_by_winners(self, let) if let.name in self.adjoints else []
        if len(groups) > 1:
            parts = [self._guarded(needed, body, let.formals) for needed, body in groups]
            return chain(self, "+", parts, let.formals)
        ((needed, whole),) = groups or [((), let.body)]
        if needed:
            return self._guarded(needed, whole, let.formals)
        body = self.nested(whole)
        if let.dtype == "bool" and isinstance(body, Iverson | Delta):
            return self.condition(body, let.formals)
        return self.lower(body, let.formals)

    def _guarded(self, needed: Sequence[str], body: Poly, order: Sequence[Index]) -> Value:
        value = self.as_float(self.lower(self.nested(body), order))
        return only_where_there_is(self, value, needed, order) if needed else value

    def _reduction(self, let: Let) -> Value:
        """kind over the binders of the body, where the condition holds."""
        if let.kind == "others":
            return self._others(let)
        if let.kind in _CUMULATIVE and let.condition is not None:
            value = self._cumulative(let)
            if value is not None:
                return value
        if let.kind in (*_EXTREMA, "logsumexp") and let.condition is not None:
            segmented = segment_extremum(self, let, Value(_EXCLUDED[let.kind], scalar=True))
        else:
            segmented = segment_any(self, let)
        if segmented is not None:
            return segmented
        order = with_binders(let.formals, let.binders, let.body)
        body = self.nested(let.body)
        # An extremum equals what it is of to the last bit where one tensor is read for both.
        if not let.compared:
            body = self._kept_safe(let, body)
        value = self._truth(let, order) or self.lower(body, order)
        if let.kind not in ("any", "all", "argmax", "argmin"):
            value = self.as_float(value)
        around = tuple(i for i in value.axes if i not in let.binders)
        if around != let.formals or let.condition is not None:
            value = self.frame.fit(value, order)
        if any(i not in value.axes for i in let.binders):
            value = self.frame.expand(value, order, self.like)
        if let.condition is not None:
            test = self.condition(let.condition, order)
            if let.kind in ("any", "all"):
                value = _masked_truth(let.kind, test, value)
            else:
                if let.kind in _BOUNDS and may_be_infinite(self.find, let.body):
                    value = self._bounded(value, *_BOUNDS[let.kind])
                value = self.where(test, value, Value(_EXCLUDED[let.kind], scalar=True), order)
            value = self.frame.expand(value, order, self.like)
        which = [n for n, i in enumerate(value.axes) if i in let.binders]
        if let.kind in _EXTREMA:
            value = never_empty(self.frame, value, which, _EXCLUDED[let.kind])
        kind = let.dtype if let.kind in ("any", "all", "argmax", "argmin") else value.kind
        reduced = self.frame.reduce(value, let.kind, which, False, kind)
        if let.kind in ("max", "min"):
            # (values, indices): the one whose gradient goes to the first winner.
            return replace(reduced, code=Attribute(reduced.code, "values"))
        return reduced

    def _kept_safe(self, let: Let, body: Expr) -> Expr:
        """The body, protected where it is not taken."""
        if let.condition is None:
            return under_guards(self, body)
        return body if let.kind in ("any", "all") else protected(self, body, let.condition)

    def _bounded(self, value: Value, clamp: str, bound: str) -> Value:
        """What is taken before what is not, though both are infinite."""
        value = self.as_float(value)
        limits = Function("torch.finfo", (Attribute(self.like, "dtype"),))
        code = Method(value.code, clamp, (Attribute(limits, bound),))
        return value if value.scalar else replace(value, code=code)

    def _truth(self, let: Let, order: Sequence[Index]) -> Value | None:
        """What any and all run over, where it is a condition."""
        bracket = as_atom(let.body) if let.kind in ("any", "all") else None
        return self.condition(bracket.condition, order) if isinstance(bracket, Iverson) else None

    def _cumulative(self, let: Let) -> Value | None:
        """A reduction over the positions up to one's own, if it is one."""
        assert let.condition is not None
        along = running(self.frame.bounds, let.binders, let.condition)
        if along is None or len(let.binders) > 1 or along.is_strict:
            return None
        free = free_indices(let.body)
        if along.within or along.outside or along.index in free or along.binder not in free:
            return None
        order = [along.binder if i is along.index else i for i in let.formals]
        body = self.nested(let.body)
        value = self.frame.fit(self.as_float(self.lower(body, order)), order)
        return cumulated(self, value, along, _CUMULATIVE[let.kind])

    def _others(self, let: Let) -> Value:
        """The product over all positions along an axis but one's own."""
        (k,) = let.binders
        body = self.nested(let.body)
        if let.condition is not None:
            body = protected(self, body, let.condition)
        value = self.as_float(self.lower(body, let.formals))
        if let.condition is not None:
            test = self.condition(let.condition, let.formals)
            value = self.where(test, value, Value(literal(1), scalar=True), let.formals)
        if k not in let.formals:
            raise LoweringError(f"the product over {k.name} of something without {k.name}")
        value = self.frame.expand(value, let.formals, self.like)
        place = self.frame.position(value.axes, value.axes.index(k))
        return Value(Function("_product_of_others", (value.code, place)), value.axes)

    def nested(self, body: Expr) -> Expr:
        """A flat body in the form that is computed."""
        return factor(recognise(body, self.find, self.absent))

    def lower(self, e: Expr, order: Sequence[Index]) -> Value:
        """e as code that fits ``order``, which lists every free index of e."""
        if isinstance(e, Add | Mul | Pow | Call):
            # Small tensors are combined before they are spread over the axes around them.
            free = free_indices(e)
            order = [i for i in order if i in free]
        match e:
            case Num(value):
                return number(value)
            case Const(name):
                return Value(Literal(f"math.{name}"), scalar=True)
            case Size(extent):
                return Value(Dim(extent), kind="int", scalar=True)
            case Param(name):
                kind: Kind = "int" if name in self.integers else "float"
                return Value(Name(name), kind=kind, scalar=True)
            case Index():
                return self.positions(e)
            case Access():
                return lower_access(self, e)
            case Guard(condition, position):
                inner = self.lower(position, order)
                test = self.condition(condition, order)
                zero = Value(literal(0), kind="int", scalar=True)
                return self.where(test, inner, zero, order)
            case Add(args):
                return lower_addition(self, args, order)
            case Mul(args):
                return lower_product(self, args, order)
            case Pow(base, exponent):
                return lower_product(self, (Pow(base, exponent),), order)
            case Call():
                return lower_call(self, e, order)
            case Where(condition, then, other):
                branches = (self.lower(then, order), self.lower(other, order))
                return self.where(self.condition(condition, order), *branches, order)
            case Iverson(condition):
                return self.as_float(self.condition(condition, order))
            case Delta():
                return lower_product(self, (e,), order)
            case Reduce("sum", binders, body):
                own = apart(binders, order)
                return lower_sum(self, own, substitute(body, renaming(binders, own)), order)
            case Nonnegative(body):
                whole = self.lower(body, order)
                return replace(whole, code=Method(whole.code, "clamp_min", (literal(0),)))
            case Centre(mean, square):
                return self._centre(self.lower(mean, order), self.lower(square, order))
            case Normal():
                return lower_normal(self, e, order)
        raise LoweringError(f"no torch code for {e!r}")

    def _centre(self, mean: Value, square: Value) -> Value:
        """No comparison with what is infinite or no number holds."""
        twice = Binary("*", literal(2), Method(mean.code, "square"))
        near = Binary(">", twice, square.code)
        return replace(mean, code=Function("torch.where", (near, mean.code, literal(0))))

    def condition(self, e: Expr, order: Sequence[Index]) -> Value:
        key = e, tuple(order)
        if key not in self._conditions:
            self._conditions[key] = lower_condition(self, e, order)
        return self._conditions[key]


def _masked_truth(kind: str, test: Value, value: Value) -> Value:
    axes = broadcast(test.axes, value.axes)
    if kind == "any":
        return Value(Binary("&", test.code, value.code), axes, "bool")
    return Value(Binary("|", Unary("~", test.code), value.code), axes, "bool")

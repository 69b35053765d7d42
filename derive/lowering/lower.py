"""Nested equations to torch code.

Every expression is lowered in a layout: the order of the indices around it. A tensor is permuted
and given size-1 axes only as far as it must to broadcast there. Conditions become masks of
``torch.where``, never factors 0 and 1, since 0*nan is nan. A read at computed positions is a
gather, a delta that no sum removed is a scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Const,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Param,
    Pow,
    Reduce,
    Rel,
    Size,
    free_indices,
    fresh,
    substitute,
)
from derive.algebra.factor import factor
from derive.algebra.functions import FUNCTIONS
from derive.algebra.poly import Poly, add, atom, negate, scale
from derive.calculus.lets import Let, layout
from derive.errors import LoweringError
from derive.lowering.code import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Dim,
    Function,
    Keyword,
    Literal,
    Method,
    Name,
    Shape,
    Tuple,
    Unary,
    literal,
)
from derive.lowering.contract import contract, times
from derive.lowering.gather import add_at, put_at, read_at, select_at
from derive.lowering.recognise import Normal, recognise
from derive.lowering.value import Frame, Value, broadcast, index_key
from derive.spec.operation import Kind

__all__ = ["Scope", "Statement"]

_SMALLEST = Literal("-math.inf")


_OF_NUMBERS = (
    *("exp", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    *("tanh", "erf", "erfc", "lgamma", "log", "atan2"),
)
"""Functions that the math module has too: a number stays a number."""


@dataclass(frozen=True)
class Statement:
    """name = code, a tensor with these axes."""

    name: str
    code: Code
    axes: tuple[Index | None, ...]


@dataclass
class Scope:
    """The code written so far, and what it can read.

    ``tensors`` are at hand; any other name is lowered from its definition when first read.
    """

    find: Callable[[str], Let | None]
    frame: Frame
    tensors: dict[str, Value]
    like: Code
    """A float tensor that new ones take dtype and device from."""
    integers: frozenset[str] = frozenset()
    """The parameters that are integers."""
    statements: list[Statement] = field(default_factory=list)

    # ---------------------------------------------------------------- definitions

    def tensor(self, name: str) -> Value:
        """The named tensor, computed first where it is not at hand."""
        if name not in self.tensors:
            let = self.find(name)
            if let is None:
                raise LoweringError(f"{name} is not defined")
            self.define(let)
        return self.tensors[name]

    def define(self, let: Let) -> None:
        """Write the statement of a let."""
        value = self.definition(let)
        self.statements.append(Statement(let.name, value.code, value.axes))
        self.tensors[let.name] = replace(value, code=Name(let.name))

    def definition(self, let: Let) -> Value:
        """The code of a let with all of its axes at full size."""
        if let.kind == "sum":
            body = factor(recognise(let.body, self.find))
            value = self.lower(body, let.formals)
        else:
            value = self._reduction(let)
        if let.dtype == "float" and value.kind != "float":
            value = self.as_float(value)
        return self.frame.expand(value, let.formals, self.like)

    def _reduction(self, let: Let) -> Value:
        """kind over the binders of the body, where the condition holds."""
        if let.kind == "others":
            return self._others(let)
        order = _with_binders(let.formals, let.binders, let.body)
        value = self.lower(factor(recognise(let.body, self.find)), order)
        if let.kind not in ("any", "all", "argmax", "argmin"):
            value = self.as_float(value)
        value = self.frame.fit(value, order)
        if any(i not in value.axes for i in let.binders):
            value = self.frame.expand(value, order, self.like)
        excluded = {
            "logsumexp": _SMALLEST,
            "max": _SMALLEST,
            "amax": _SMALLEST,
            "argmax": _SMALLEST,
            "min": Literal("math.inf"),
            "amin": Literal("math.inf"),
            "argmin": Literal("math.inf"),
            "prod": literal(1),
        }
        if let.condition is not None:
            test = self.condition(let.condition, order)
            if let.kind in ("any", "all"):
                value = self._masked_truth(let.kind, test, value)
            else:
                value = self._where(test, value, Value(excluded[let.kind], scalar=True), order)
            value = self.frame.expand(value, order, self.like)
        which = [n for n, i in enumerate(value.axes) if i in let.binders]
        reduced = self.frame.reduce(value, let.kind, which, False, let.dtype)
        if let.kind in ("max", "min"):
            # (values, indices): the one whose gradient goes to the first winner.
            return replace(reduced, code=Attribute(reduced.code, "values"))
        return reduced

    @staticmethod
    def _masked_truth(kind: str, test: Value, value: Value) -> Value:
        axes = broadcast(test.axes, value.axes)
        if kind == "any":
            return Value(Binary("&", test.code, value.code), axes, "bool")
        return Value(Binary("|", Unary("~", test.code), value.code), axes, "bool")

    def _others(self, let: Let) -> Value:
        """The product over all positions along an axis but one's own."""
        (k,) = let.binders
        value = self.as_float(self.lower(factor(recognise(let.body, self.find)), let.formals))
        if let.condition is not None:
            test = self.condition(let.condition, let.formals)
            value = self._where(test, value, Value(literal(1), scalar=True), let.formals)
        if k not in let.formals:
            raise LoweringError(f"the product over {k.name} of something without {k.name}")
        value = self.frame.expand(value, let.formals, self.like)
        place = self.frame.position(value.axes, value.axes.index(k))
        return Value(Function("_product_of_others", (value.code, place)), value.axes)

    # ---------------------------------------------------------------- expressions

    def lower(self, e: Expr, order: Sequence[Index]) -> Value:
        """e as code that fits ``order``, which lists every free index of e."""
        if isinstance(e, Add | Mul | Pow | Call):
            # Small tensors are combined before they are spread over the axes around them.
            free = free_indices(e)
            order = [i for i in order if i in free]
        match e:
            case Num(value):
                return _number(value)
            case Const(name):
                return Value(Literal(f"math.{name}"), scalar=True)
            case Size(extent):
                return Value(Dim(extent), kind="int", scalar=True)
            case Param(name):
                kind: Kind = "int" if name in self.integers else "float"
                return Value(Name(name), kind=kind, scalar=True)
            case Index():
                return self._positions(e)
            case Access():
                return self._access(e)
            case Guard(condition, position):
                inner = self.lower(position, order)
                test = self.condition(condition, order)
                zero = Value(literal(0), kind="int", scalar=True)
                return self._where(test, inner, zero, order)
            case Add(args):
                return self._add(args, order)
            case Mul(args):
                return self._mul(args, order)
            case Pow(base, exponent):
                return self._mul((Pow(base, exponent),), order)
            case Call():
                return self._call(e, order)
            case Iverson(condition):
                return self.as_float(self.condition(condition, order))
            case Delta():
                return self._mul((e,), order)
            case Reduce("sum", binders, body):
                apart = _apart(binders, order)
                return self._sum(apart, substitute(body, _renaming(binders, apart)), order)
            case Normal(kind_, index, body, condition_):
                return self._normal(kind_, index, body, condition_, order)
        raise LoweringError(f"no torch code for {e!r}")

    def as_float(self, value: Value) -> Value:
        """An integer or bool tensor as one of the floating type at hand."""
        if value.kind == "float" or value.scalar:
            return replace(value, kind="float")
        code = Method(value.code, "to", (Attribute(self.like, "dtype"),))
        return replace(value, code=code, kind="float")

    def _positions(self, i: Index) -> Value:
        """0, 1, ..., size(i) - 1."""
        device = Keyword("device", Attribute(self.like, "device"))
        return Value(Function("torch.arange", (Dim(i.extent), device)), (i,), "int")

    def _access(self, e: Access) -> Value:
        """X[e1, ...]: plain positions name axes, any other is read one axis after the other."""
        value = self.tensor(e.tensor)
        axes: list[Index | None] = []
        pending: list[tuple[Index, Expr]] = []
        positions = iter(e.positions)
        for n, home in enumerate(value.axes):
            if home is None:
                axes.append(None)
                continue
            position = next(positions)
            whole = isinstance(position, Index) and position.extent == home.extent
            if whole and position not in axes:
                assert isinstance(position, Index)
                axes.append(position)
                continue
            # An axis that is still to be read has an index that nothing else can have.
            marker = Index(f"#{n}", home.extent, home.group)
            axes.append(marker)
            pending.append((marker, position))
        value = replace(value, axes=tuple(axes))
        for marker, position in pending:
            value = self._read(value, value.axes.index(marker), position)
        return value

    def _read(self, value: Value, n: int, position: Expr) -> Value:
        place = self.frame.position(value.axes, n)
        if isinstance(position, Num):
            at = literal(int(position.value))
            code = Method(value.code, "select", (place, at))
            return replace(value, code=code, axes=value.axes[:n] + value.axes[n + 1 :])
        if isinstance(position, Index) and position in value.axes:
            m = value.axes.index(position)
            ends = (self.frame.position(value.axes, m), place)
            code = Method(value.code, "diagonal", (literal(0), *ends))
            axes = tuple(i for x, i in enumerate(value.axes) if x not in (m, n))
            return replace(value, code=code, axes=(*axes, position))
        window = _window(position)
        if window is not None and window[0] not in value.axes:
            i, start = window
            args = (place, self.lower(factor(start), ()).code, Dim(i.extent))
            axes = (*value.axes[:n], i, *value.axes[n + 1 :])
            return replace(value, code=Method(value.code, "narrow", args), axes=axes)
        where = layout(position)
        index = self.lower(factor(position), where)
        if index.scalar:
            code = Method(value.code, "select", (place, index.code))
            return replace(value, code=code, axes=value.axes[:n] + value.axes[n + 1 :])
        return read_at(self.frame, value, n, index)

    # ---------------------------------------------------------------- sums and products

    def _add(self, args: Sequence[Expr], order: Sequence[Index]) -> Value:
        plain: list[Expr] = []
        scattered: list[Expr] = []
        for a in args:
            (scattered if _is_scattered(a) else plain).append(a)
        if scattered:
            return self._add_scattered(plain, scattered, order)
        paired = self._complement(plain)
        if paired is not None:
            condition, then, other, rest = paired
            value = self._where(
                self.condition(condition, order),
                self.lower(then, order),
                self.lower(other, order),
                order,
            )
            if not rest:
                return value
            values = [(value, 1)]
            plain = rest
        else:
            values = []
        for a in plain:
            sign, positive = _signed(a)
            values.append((self.lower(positive, order), sign))
        kind = _common_kind([v for v, _ in values])
        if kind == "float":
            values = [(self.as_float(v), sign) for v, sign in values]
        if all(sign < 0 for _, sign in values):
            first, sign = values[0]
            values[0] = (replace(first, code=Unary("-", first.code)), 1)
        values.sort(key=lambda entry: entry[1] < 0)
        result, _ = values[0]
        result = self.frame.fit(result, order)
        for value, sign in values[1:]:
            value = self.frame.fit(value, order)
            code = Binary("+" if sign > 0 else "-", result.code, value.code)
            both = result.scalar and value.scalar
            result = Value(code, broadcast(result.axes, value.axes), kind, both)
        return result

    def _complement(self, args: Sequence[Expr]) -> tuple[Expr, Expr, Expr, list[Expr]] | None:
        """[c]*a + [not c]*b among the addends: (c, a, b, the rest)."""
        for n, a in enumerate(args):
            for m, b in enumerate(args):
                masks_a, masks_b = _masks(a), _masks(b)
                if n < m and len(masks_a) == len(masks_b) == 1:
                    if negate(masks_a[0].condition) is masks_b[0].condition:
                        then, other = _unmasked(a), _unmasked(b)
                        if isinstance(then, Num) and isinstance(other, Num):
                            return None
                        condition = masks_a[0].condition
                        rest = [x for k, x in enumerate(args) if k not in (n, m)]
                        if isinstance(condition, Not) or (
                            isinstance(condition, Rel)
                            and condition.op == "!="
                            and isinstance(then, Num)
                        ):
                            return negate(condition), other, then, rest
                        return condition, then, other, rest
        return None

    def _add_scattered(
        self, plain: Sequence[Expr], scattered: Sequence[Expr], order: Sequence[Index]
    ) -> Value:
        """The plain addends, and each scattered one added into them in place of a new tensor."""
        result: Value | None = None
        if plain:
            whole = plain[0] if len(plain) == 1 else Add(tuple(plain))
            result = self.as_float(self.lower(whole, order))
            result = self.frame.expand(result, order, self.like)
        for e in scattered:
            base = None if result is None else result.code
            value, into_base = self._scatter(e, order, base)
            value = self.frame.fit(value, order)
            if result is not None and not into_base:
                code = Binary("+", result.code, value.code)
                value = Value(code, broadcast(result.axes, value.axes))
            result = value
        assert result is not None
        return result

    def _mul(self, args: Sequence[Expr], order: Sequence[Index]) -> Value:
        if any(isinstance(a, Delta) for a in args):
            return self._scatter(Mul(tuple(args)), order, None)[0]
        args, mean = _take_mean(args)
        masks = [a for a in args if isinstance(a, Iverson)]
        coef = Fraction(1)
        above: list[Value] = []
        below: list[Value] = []
        for a in args:
            if isinstance(a, Iverson):
                continue
            if isinstance(a, Num):
                coef *= a.value
            elif isinstance(a, Pow) and isinstance(a.exponent, Num):
                value, divides = self._power(a.base, a.exponent.value, order)
                (below if divides else above).append(value)
            elif isinstance(a, Pow):
                raise LoweringError(f"a power with the exponent {a.exponent!r}")
            elif a is mean:
                assert isinstance(a, Reduce)
                apart = _apart(a.indices, order)
                renamed = substitute(a.body, _renaming(a.indices, apart))
                above.append(self._sum(apart, renamed, order, "mean"))
            else:
                above.append(self.lower(a, order))
        if not above and not below and masks and coef.denominator == 1:
            return self._bracket_product(masks, coef, order)
        result = self._quotient(coef, above, below, order)
        if not masks:
            return result
        test = self._conjunction(masks, order)
        zero = Value(literal(0), scalar=True)
        return self._where(test, result, zero, order)

    def _bracket_product(
        self, masks: Sequence[Iverson], coef: Fraction, order: Sequence[Index]
    ) -> Value:
        """coef * [condition], a number."""
        test = self._conjunction(masks, order)
        if test.scalar:
            code: Code = Conditional(test.code, _number(coef).code, literal(0))
            return Value(code, kind="int", scalar=True)
        value = self.as_float(test) if coef != 1 else test
        if coef == 1:
            return replace(value, kind="bool")
        return self._quotient(coef, [value], [], order)

    def _quotient(
        self,
        coef: Fraction,
        above: Sequence[Value],
        below: Sequence[Value],
        order: Sequence[Index],
    ) -> Value:
        """coef * above... / below..., numbers first, then small tensors."""
        whole = coef.denominator == 1 and not below
        kind: Kind = "int" if whole and all(v.kind != "float" for v in above) else "float"
        if kind == "float":
            above, below = [self.as_float(v) for v in above], [self.as_float(v) for v in below]
        else:
            above = [
                replace(self.as_float(v), kind="int") if v.kind == "bool" else v for v in above
            ]
        top, bottom = coef.numerator, coef.denominator
        factors: list[Value] = []
        if bottom in (2, 4, 8, 16):
            factors.append(Value(literal(abs(top) / bottom), scalar=True))
            bottom = 1
        elif abs(top) != 1:
            factors.append(Value(literal(abs(top)), kind="int", scalar=True))
        factors += [v for v in above if v.scalar]
        tensors = [v for v in above if not v.scalar]
        factors += sorted(tensors, key=lambda v: len(v.indices))
        if not factors:
            factors = [Value(literal(1), kind="int", scalar=True)]
        divisors = [Value(literal(bottom), kind="int", scalar=True)] if bottom != 1 else []
        divisors += [v for v in below if v.scalar] + [v for v in below if not v.scalar]
        first = factors[0]
        if top < 0:
            negative = Unary("-", first.code)
            first = replace(first, code=negative)
        factors[0] = first
        if not divisors:
            return replace(self._chain("*", factors, order), kind=kind)
        # Small factors meet the divisors before the largest tensors: one pass over those less.
        divisor = self._chain("*", divisors, order)
        largest = max(len(v.indices) for v in factors)
        small = [v for v in factors if len(v.indices) < largest]
        large = [v for v in factors if len(v.indices) == largest]
        if small and len(divisor.indices) < largest:
            scale = self._chain("/", [self._chain("*", small, order), divisor], order)
            result = self._chain("*", [scale, *large], order)
        else:
            result = self._chain("/", [self._chain("*", factors, order), divisor], order)
        return replace(result, kind=kind)

    def _chain(self, op: str, values: Sequence[Value], order: Sequence[Index]) -> Value:
        result = self.frame.fit(values[0], order)
        for value in values[1:]:
            value = self.frame.fit(value, order)
            both = result.scalar and value.scalar
            axes = broadcast(result.axes, value.axes)
            result = Value(Binary(op, result.code, value.code), axes, result.kind, both)
        return result

    def _power(self, base: Expr, exponent: Fraction, order: Sequence[Index]) -> tuple[Value, bool]:
        """base ** |exponent|, and whether it divides."""
        value = self.lower(base, order)
        divides = exponent < 0
        size = abs(exponent)
        if divides or exponent.denominator != 1:
            value = self.as_float(value)
        if size == 1:
            return value, divides
        if value.scalar:
            power = _number(size).code
            if size == Fraction(1, 2):
                return replace(value, code=Function("math.sqrt", (value.code,))), divides
            return replace(value, code=Binary("**", value.code, power)), divides
        if size == 2:
            return replace(value, code=Method(value.code, "square")), divides
        if size == Fraction(1, 2) and divides:
            return replace(value, code=Method(value.code, "rsqrt")), False
        if size == Fraction(1, 2):
            return replace(value, code=Method(value.code, "sqrt")), False
        signed = literal(float(exponent)) if exponent.denominator != 1 else literal(int(exponent))
        return replace(value, code=Binary("**", value.code, signed)), False

    def _sum(
        self, binders: Sequence[Index], body: Expr, order: Sequence[Index], name: str = "sum"
    ) -> Value:
        """Sum over binders of a product."""
        args = body.args if isinstance(body, Mul) else (body,)
        if any(isinstance(a, Delta) for a in args):
            return self._scatter(Reduce("sum", tuple(binders), body), order, None)[0]
        used = [i for i in order if i in free_indices(body)]
        inner = _with_binders(used, binders, body)
        masks = [a for a in args if isinstance(a, Iverson)]
        rest = [a for a in args if not isinstance(a, Iverson)]
        operands = [self._operand(a) for a in rest]
        if name == "sum" and len(operands) > 1 and self._is_contraction(operands, inner):
            operands = self._mask_operands(operands, masks, inner)
            value = contract(self.frame, operands, binders, inner)
            return value
        if not rest:
            whole = self._mul(masks, inner)
            if whole.kind == "bool" and not whole.scalar:
                whole = replace(whole, kind="int")
        else:
            whole = self._mul(args, inner)
        whole = self.frame.fit(whole, inner)
        if whole.scalar or any(i not in whole.axes for i in binders):
            whole = self.frame.expand(whole, inner, self.like)
        if whole.kind == "float" or name == "mean":
            whole = self.as_float(whole)
        which = [n for n, i in enumerate(whole.axes) if i in binders]
        keep = _keeps(inner, binders, used, order)
        return self.frame.reduce(whole, name, which, keep, whole.kind)

    def _operand(self, a: Expr) -> Value:
        return self.as_float(self.lower(a, layout(a)))

    @staticmethod
    def _is_contraction(operands: Sequence[Value], order: Sequence[Index]) -> bool:
        """Whether some operand lacks an index of another: no elementwise product of equals."""
        tensors = [v for v in operands if not v.scalar]
        sets = {frozenset(v.indices) for v in tensors}
        return len(sets) > 1 and len(tensors) == len(operands)

    def _mask_operands(
        self, operands: list[Value], masks: Sequence[Iverson], order: Sequence[Index]
    ) -> list[Value]:
        """Each mask applied to every operand that has its indices, or to a product that has."""
        for mask in masks:
            needed = free_indices(mask)
            covering = [v for v in operands if needed <= frozenset(v.indices)]
            if not covering:
                whole = operands[0]
                for v in operands[1:]:
                    if needed <= frozenset(whole.indices):
                        break
                    whole = times(self.frame, whole, v, order)
                    operands = [x for x in operands if x is not v]
                missing = [i for i in order if i in needed and i not in whole.indices]
                if missing:
                    inside = [i for i in order if i in needed or i in whole.indices]
                    whole = self.frame.expand(whole, inside, self.like)
                operands = [whole, *operands[1:]]
                covering = [whole]
            masked = []
            for v in operands:
                if any(v is c for c in covering):
                    inside = [i for i in order if i in v.indices]
                    test = self.condition(mask.condition, inside)
                    v = self._where(test, v, Value(literal(0), scalar=True), inside)
                masked.append(v)
            operands = masked
        return operands

    # ---------------------------------------------------------------- scatters

    def _scatter(self, e: Expr, order: Sequence[Index], base: Code | None) -> tuple[Value, bool]:
        """A term with deltas that no sum removed: its value, placed at the deltas' positions.

        Also whether it was added into ``base``, which has all axes of ``order``.
        """
        coef, binders, factors = _as_term(e)
        deltas = [f for f in factors if isinstance(f, Delta)]
        rest = [f for f in factors if not isinstance(f, Delta)]
        targets: list[tuple[Index, Expr]] = []
        tests: list[Expr] = []
        while deltas:
            delta = _outermost(deltas)
            deltas.remove(delta)
            axis, position = delta.axis, delta.position
            if not isinstance(axis, Index) and isinstance(position, Index):
                axis, position = position, axis
            if self._is_target(axis, position, binders, targets):
                assert isinstance(axis, Index)
                # delta(i, e) f(i) = delta(i, e) f(e)
                rest = [substitute(f, {axis: position}) for f in rest]
                deltas = [Delta(d.axis, substitute(d.position, {axis: position})) for d in deltas]
                targets.append((axis, position))
            else:
                tests.append(Iverson(Rel("==", axis, position)))
        rest = [*tests, *rest]
        inside = Mul(tuple(rest)) if rest else Num(Fraction(1))
        loose = [i for i in binders if all(i not in free_indices(p) for _, p in targets)]
        summed = [i for i in binders if i not in loose]
        content = Reduce("sum", tuple(loose), inside) if loose else inside
        if coef != 1:
            content = Mul((Num(coef), *(rest if not loose else (content,))))
        around = [i for i in order if all(i is not a for a, _ in targets)]
        inner = _with_binders(around, summed, Mul((content, *(p for _, p in targets))))
        source = self.as_float(self.lower(content, inner))
        if source.scalar:
            used = [i for i in inner if any(i in free_indices(p) for _, p in targets)]
            source = self.frame.expand(source, used, self.like)
        source = self.frame.squeeze(source, ())
        if len(targets) == 1:
            ((axis, position),) = targets
            if isinstance(position, Index) and position not in summed:
                return self._diagonal(source, axis, position), False
            window = _window(position)
            if window is not None and window[0] in summed:
                return self._padded(source, axis, *window), False
            if isinstance(position, Num):
                around = [i for i in order if i is axis or i in source.indices]
                return select_at(self.frame, source, axis, position, around, self.like), False
            if any(isinstance(x, Access) for x in _walk(position)):
                index = self.lower(factor(position), layout(position))
                if base is not None and not self._covers(source, index, axis, summed, order):
                    base = None
                if not index.scalar:
                    value = add_at(self.frame, source, axis, index, summed, order, base, self.like)
                    return value, base is not None
        return self._put(source, targets, summed, order), False

    @staticmethod
    def _is_target(
        axis: Expr,
        position: Expr,
        binders: Sequence[Index],
        targets: Sequence[tuple[Index, Expr]],
    ) -> bool:
        """Whether the term is placed along this axis; if not, the delta is a comparison."""
        if not isinstance(axis, Index) or axis in binders or axis in free_indices(position):
            return False
        if isinstance(position, Index) and position not in binders:
            if position.extent != axis.extent:
                return False
        taken = [a for a, _ in targets]
        read = frozenset().union(*(free_indices(p) for _, p in targets), frozenset())
        return axis not in taken and axis not in read and not free_indices(position) & set(taken)

    def _padded(self, source: Value, axis: Index, index: Index, start: Expr) -> Value:
        """f placed at start, start + 1, ... of a longer axis of zeros."""
        if index not in source.indices:
            source = self.frame.expand(source, [*source.indices, index], self.like)
        n = source.axes.index(index)
        axes = tuple(axis if i is index else i for i in source.axes)
        sizes = Shape(tuple(Name(index_key(i)) for i in axes if i is not None))
        zeros = Method(self.like, "new_zeros", (sizes,))
        first = self.lower(factor(start), ()).code
        size: Code = Dim(index.extent)
        end = size if first is literal(0) else Binary("+", first, size)
        place = self.frame.position(axes, n)
        code = Method(zeros, "slice_scatter", (source.code, place, first, end))
        return Value(code, axes)

    def _covers(
        self,
        source: Value,
        index: Value,
        axis: Index,
        summed: Sequence[Index],
        order: Sequence[Index],
    ) -> bool:
        have = {axis, *source.indices, *index.indices} - set(summed)
        return have == set(order)

    def _put(
        self,
        source: Value,
        targets: Sequence[tuple[Index, Expr]],
        summed: Sequence[Index],
        order: Sequence[Index],
    ) -> Value:
        placed: list[tuple[Index, Value]] = []
        for axis, position in targets:
            placed.append((axis, self.lower(factor(position), layout(position))))
        free = [i for i in order if any(i in v.indices for _, v in placed) and i not in summed]
        placed += [(i, self._positions(i)) for i in free]
        scalars = [n for n, (_, v) in enumerate(placed) if v.scalar]
        for n in scalars:
            axis, v = placed[n]
            device = Keyword("device", Attribute(self.like, "device"))
            placed[n] = (axis, Value(Function("torch.tensor", (v.code, device)), (), "int"))
        return put_at(self.frame, source, placed, summed, order, self.like)

    def _diagonal(self, source: Value, axis: Index, position: Index) -> Value:
        """delta(i, j) f(j): f on the diagonal of its last axis and a new one."""
        if position not in source.indices:
            source = self.frame.expand(source, [*source.indices, position], self.like)
        others = [i for i in source.indices if i is not position]
        source = self.frame.permute(source, [*others, position])
        code = Method(source.code, "diag_embed")
        return Value(code, (*others, position, axis))

    # ---------------------------------------------------------------- functions and conditions

    def _call(self, e: Call, order: Sequence[Index]) -> Value:
        args = [self.lower(a, order) for a in e.args]
        if e.function == "floordiv":
            return replace(self._chain("//", args, order), kind="int")
        if e.function != "detach":
            args = [self.as_float(a) for a in args]
        args = [self.frame.fit(a, order) for a in args]
        function = FUNCTIONS[e.function]
        code: Code
        if all(a.scalar for a in args) and e.function in _OF_NUMBERS:
            code = Function(f"math.{e.function}", tuple(a.code for a in args))
            return Value(code, scalar=True)
        if e.function == "polygamma":
            n, x = args
            return replace(x, code=Function("torch.polygamma", (n.code, x.code)))
        numbers = e.function == "clamp" and all(a.scalar for a in args[1:])
        if all(a.scalar for a in args) or (len(args) > 1 and not numbers):
            args = [self._as_tensor(a) for a in args]
        axes: tuple[Index | None, ...] = ()
        for a in args:
            axes = broadcast(axes, a.axes)
        if function.torch_method is not None:
            rest = tuple(a.code for a in args[1:])
            code = Method(args[0].code, function.torch_method, rest)
        else:
            code = Function(f"torch.{function.torch}", tuple(a.code for a in args))
        return Value(code, axes, args[0].kind if e.function == "detach" else "float")

    def _as_tensor(self, value: Value) -> Value:
        if not value.scalar:
            return value
        return Value(Method(self.like, "new_full", (Tuple(()), value.code)))

    def _normal(
        self,
        kind: str,
        index: Index,
        body: Expr,
        condition: Expr | None,
        order: Sequence[Index],
    ) -> Value:
        value = self.frame.fit(self.as_float(self.lower(body, order)), order)
        if condition is not None:
            # A finite bound keeps rows without any member free of nan; the caller masks them.
            bound = Attribute(Function("torch.finfo", (Attribute(self.like, "dtype"),)), "min")
            test = self.condition(condition, order)
            value = self._where(test, value, Value(bound, scalar=True), order)
        place = self.frame.position(value.axes, value.axes.index(index))
        return replace(value, code=Function(f"torch.{kind}", (value.code, place)))

    def _where(self, test: Value, then: Value, other: Value, order: Sequence[Index]) -> Value:
        kind = _common_kind([then, other])
        test, then, other = (self.frame.fit(v, order) for v in (test, then, other))
        if test.scalar:
            code: Code = Conditional(test.code, then.code, other.code)
            axes = broadcast(then.axes, other.axes)
            both = then.scalar and other.scalar
            if not both and then.axes != other.axes:
                then = self.frame.expand(then, [i for i in axes if i], self.like)
                other = self.frame.expand(other, [i for i in axes if i], self.like)
                code = Conditional(test.code, then.code, other.code)
            return Value(code, axes, kind, both)
        if then.scalar and other.scalar:
            if kind == "float":
                then = self._as_tensor(then)
        axes = broadcast(test.axes, broadcast(then.axes, other.axes))
        code = Function("torch.where", (test.code, then.code, other.code))
        return Value(code, axes, kind)

    def _conjunction(self, masks: Sequence[Iverson], order: Sequence[Index]) -> Value:
        conditions = tuple(m.condition for m in masks)
        return self.condition(conditions[0] if len(conditions) == 1 else And(conditions), order)

    def condition(self, e: Expr, order: Sequence[Index]) -> Value:
        """A condition as a bool tensor, or as a Python bool where it reads no tensor."""
        free = free_indices(e)
        order = [i for i in order if i in free]
        match e:
            case Rel(op, left, right):
                if op in ("!=", "==") and isinstance(left, Expr):
                    left, right = _variable_first(factor(left), factor(right))
                a = self.frame.fit(self.lower(factor(left), order), order)
                b = self.frame.fit(self.lower(factor(right), order), order)
                if a.scalar and not b.scalar:
                    mirrored = {"<": ">", "<=": ">=", "==": "==", "!=": "!="}[op]
                    return Value(Binary(mirrored, b.code, a.code), b.axes, "bool")
                code = Binary(op, a.code, b.code)
                both = a.scalar and b.scalar
                return Value(code, broadcast(a.axes, b.axes), "bool", both)
            case Not(arg):
                inner = self.condition(arg, order)
                op = "not" if inner.scalar else "~"
                return replace(inner, code=Unary(op, inner.code))
            case And(args) | Or(args):
                return self._logical("&" if isinstance(e, And) else "|", args, order)
            case Access():
                return self.frame.fit(self._access(e), order)
            case Iverson(condition):
                return self.condition(condition, order)
        raise LoweringError(f"no torch code for the condition {e!r}")

    def _logical(self, op: str, args: Sequence[Expr], order: Sequence[Index]) -> Value:
        values = [self.frame.fit(self.condition(a, order), order) for a in args]
        if not values:
            return Value(Literal("True" if op == "&" else "False"), (), "bool", True)
        word = {"&": "and", "|": "or"}[op]
        result = values[0]
        for value in values[1:]:
            both = result.scalar and value.scalar
            code = Binary(word if both else op, result.code, value.code)
            result = Value(code, broadcast(result.axes, value.axes), "bool", both)
        return result


def _outermost(deltas: Sequence[Delta]) -> Delta:
    """A delta whose position reads no axis that another delta places."""
    for d in deltas:
        axes = [x.axis for x in deltas if x is not d]
        if not any(i in axes for i in free_indices(d.position)):
            return d
    return deltas[0]


def _apart(binders: Sequence[Index], taken: Sequence[Index]) -> tuple[Index, ...]:
    """The binders, renamed where an index around them has the name."""
    used = list(taken)
    result = []
    for b in binders:
        new = fresh(b, used)
        used.append(new)
        result.append(new)
    return tuple(result)


def _renaming(old: Sequence[Index], new: Sequence[Index]) -> dict[Index, Expr]:
    return dict(zip(old, new, strict=True))


def _variable_first(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    return (right, left) if isinstance(left, Num | Param) else (left, right)


def _walk(e: Expr) -> list[Expr]:
    found = [e]
    for part in e.parts():
        found += _walk(part)
    return found


def _window(position: Expr) -> tuple[Index, Expr] | None:
    """(i, start) where the position is start + i, start without any index or tensor."""
    if isinstance(position, Index):
        return position, Num(Fraction(0))
    if not isinstance(position, Poly):
        return None
    inside = free_indices(position)
    if len(inside) != 1:
        return None
    (i,) = inside
    rest = add(position, scale(atom(i), -1))
    if free_indices(rest) or any(isinstance(x, Access | Iverson) for x in _walk(rest)):
        return None
    return i, rest


def _number(value: Fraction) -> Value:
    if value.denominator == 1:
        return Value(literal(int(value)), kind="int", scalar=True)
    return Value(literal(float(value)), scalar=True)


def _common_kind(values: Sequence[Value]) -> Kind:
    kinds = {v.kind for v in values}
    if "float" in kinds:
        return "float"
    return "int" if "int" in kinds else "bool"


def _with_binders(
    around: Sequence[Index], binders: Sequence[Index], body: Expr
) -> tuple[Index, ...]:
    """``around`` with the binders put where the body's largest access has them."""
    result = list(around)
    natural = layout(body)
    known = [i for i in natural if i in binders]
    for b in [*known, *(i for i in binders if i not in known)]:
        at = len(result)
        if b in natural:
            n = natural.index(b)
            before = [i for i in natural[:n] if i in result]
            after = [i for i in natural[n + 1 :] if i in result]
            if before:
                at = result.index(before[-1]) + 1
            elif after:
                at = result.index(after[0])
        result.insert(at, b)
    return tuple(result)


def _keeps(
    inner: Sequence[Index],
    binders: Sequence[Index],
    used: Sequence[Index],
    order: Sequence[Index],
) -> bool:
    """Whether keeping the summed axes makes the result fit ``order`` as it is."""

    def gaps(whole: Sequence[Index], extra: Sequence[Index]) -> list[int]:
        counts = [0]
        for i in whole:
            if i in extra:
                counts[-1] += 1
            else:
                counts.append(0)
        return counts

    unused = [i for i in order if i not in used]
    if any(i.group for i in unused) or any(i.group for i in binders):
        return False
    have, want = gaps(inner, list(binders)), gaps(order, unused)
    if len(have) != len(want) or not any(want[1:]):
        return False
    return have[1:] == want[1:] and have[0] <= want[0]


def _masks(e: Expr) -> list[Iverson]:
    args = e.args if isinstance(e, Mul) else (e,)
    return [a for a in args if isinstance(a, Iverson)]


def _unmasked(e: Expr) -> Expr:
    args = e.args if isinstance(e, Mul) else (e,)
    rest = tuple(a for a in args if not isinstance(a, Iverson))
    if not rest:
        return Num(Fraction(1))
    return rest[0] if len(rest) == 1 else Mul(rest)


def _signed(e: Expr) -> tuple[int, Expr]:
    """The sign of an addend and the addend without it."""
    if isinstance(e, Num) and e.value < 0:
        return -1, Num(-e.value)
    if isinstance(e, Mul) and isinstance(e.args[0], Num) and e.args[0].value < 0:
        coef = -e.args[0].value
        rest = e.args[1:]
        if coef != 1:
            return -1, Mul((Num(coef), *rest))
        return -1, rest[0] if len(rest) == 1 else Mul(rest)
    return 1, e


def _is_scattered(e: Expr) -> bool:
    """Whether the addend has a delta that its sums leave."""
    _, _, factors = _as_term(e)
    return any(isinstance(f, Delta) for f in factors)


def _as_term(e: Expr) -> tuple[Fraction, tuple[Index, ...], tuple[Expr, ...]]:
    """(coefficient, binders, factors) where e is one product, at most one of them a sum."""
    coef = Fraction(1)
    binders: tuple[Index, ...] = ()
    factors: list[Expr] = []
    for a in e.args if isinstance(e, Mul) else (e,):
        if isinstance(a, Num):
            coef *= a.value
        elif isinstance(a, Reduce) and a.kind == "sum":
            inside = a.body.args if isinstance(a.body, Mul) else (a.body,)
            if any(isinstance(f, Delta) for f in inside):
                binders += a.indices
                factors += inside
            else:
                factors.append(a)
        else:
            factors.append(a)
    return coef, binders, tuple(factors)


def _take_mean(args: Sequence[Expr]) -> tuple[tuple[Expr, ...], Expr | None]:
    """Sum_k f * 1/size(k) among the factors: the sum is a mean, the size is used up."""
    for a in args:
        if not (isinstance(a, Reduce) and a.kind == "sum"):
            continue
        inside = a.body.args if isinstance(a.body, Mul) else (a.body,)
        if len(inside) > 1 or isinstance(inside[0], Delta | Iverson):
            continue
        sizes: list[Expr] = [Pow(Size(i.extent), Num(Fraction(-1))) for i in a.indices]
        if len(set(sizes)) == len(sizes) and all(s in args for s in sizes):
            return tuple(x for x in args if x not in sizes), a
    return tuple(args), None

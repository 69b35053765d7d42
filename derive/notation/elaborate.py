"""Translate the syntax tree to algebra: resolve names and expand derived heads such as softmax.

Each index has its letter in place of its extent at this stage. This module records each access,
each comparison and each given size; `derive.notation.sizes` solves for the sizes from these.
"""

from __future__ import annotations

from itertools import count

from derive.algebra import expr as ex
from derive.algebra.functions import POWERS
from derive.algebra.reductions import CONDITIONS, REDUCTIONS
from derive.algebra.reference_values import constant_value
from derive.algebra.substitution import fresh
from derive.notation import advice, syntax
from derive.notation.advice import ALIASES, CONSTANTS, KEEPING, SCALAR, arity, nearest, plural
from derive.notation.resource_limits import JOINED
from derive.notation.shapes import axis_of
from derive.notation.smart_constructors import (
    LARGEST,
    check_number,
    clamped,
    desugar_concat,
    desugar_softmax,
    flat,
    infinity,
    power,
    product,
    taken,
    total,
    whole,
)
from derive.notation.symbols import Declared, Letter, no_function, no_reduction
from derive.notation.syntax import (
    AccessSite,
    Env,
    Raw,
    SourcePlace,
    enter,
    fail,
    in_either,
    letter_of,
    show,
)

_Named = syntax.NameSyntax | syntax.Item


class Bodies:
    """Translates the bodies of one operation in order, and records the sources of sizes."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.readings: list[AccessSite] = []
        self.comparisons: list[tuple[ex.Expr, ex.Expr]] = []
        self.definitions: list[tuple[str, ex.Expr, SourcePlace | None]] = []
        self.truths = {
            name
            for name, tensor in declared.tensors.items()
            if tensor.kind == "bool" or (tensor.kind is None and name in declared.as_condition)
        }
        self._defined: set[str] = set()
        self._equation = syntax.EquationSyntax(
            declared.written.name, (), syntax.NumberSyntax(ex.num(0).value)
        )
        self._item: Raw | None = None
        self._count = count(1)

    def equation(self, equation: syntax.EquationSyntax) -> tuple[tuple[ex.Expr, ...], ex.Expr]:
        """Return the axes and the body of the next equation."""
        self._equation = equation
        env: dict[str, ex.Index] = {}
        axes = tuple(self._axis(axis, env) for axis in equation.axes)
        if self._is_condition(equation.body):
            body = self.condition(equation.body, env, False)
            self.truths.add(equation.name)
        else:
            body = self.value(equation.body, env, False)
        self._defined.add(equation.name)
        return axes, body

    def sizes(self) -> None:
        """Record the sizes that parameters fix."""
        for letter, parameter in self.declared.fixed.items():
            assert parameter.value is not None
            size = whole(self.value(parameter.value, {}, False))
            if size is None or (isinstance(size, ex.Num) and size.value < 0):
                fail(
                    parameter.at,
                    "parameter-value",
                    f"size({letter}) must be an integer, or an expression of sizes and integer "
                    f"parameters with + - * and floor(a/b), not {show(parameter.value)}",
                )
            if any(
                isinstance(part, ex.Num) and abs(part.value) > LARGEST for part in ex.walk(size)
            ):
                message = f"size({letter})={show(parameter.value)} is above the limit of {LARGEST}"
                fail(parameter.at, "parameter-value", message)
            self.definitions.append((letter, size, parameter.at))

    def _axis(self, axis: Raw, env: dict[str, ex.Index]) -> ex.Expr:
        for part in axis.args if isinstance(axis, syntax.CompositeSyntax) else (axis,):
            own = axis_of(part)
            if part is not axis and (own is None or isinstance(part, syntax.Star)):
                message = f"{show(part)} on the left: a part must be an index or 0"
                fail(part.at, "not-an-index", message)
            if isinstance(own, ex.Index):
                if own.name in env:
                    name = self._equation.name
                    message = f"index {own.name} appears twice on the left of {name}"
                    fail(part.at, "repeated-index", message)
                env[own.name] = own
        made = axis_of(axis)
        if made is None:
            is_number = isinstance(axis, syntax.NumberSyntax)
            how = f"; {self.declared.how.components()}" if is_number else ""
            fail(
                axis.at or self._equation.at,
                "not-an-index",
                f"axis {show(axis)} of {self._equation.name}: an axis on the left must be an "
                f"index, a group *p, a composite (a b) or 0{how}",
            )
        return made

    # conditions

    def _is_condition(self, e: Raw) -> bool:
        match e:
            case syntax.Compare() | syntax.Both() | syntax.Either() | syntax.Negation():
                return True
            case syntax.Bind(kind):
                return kind in CONDITIONS
            case syntax.Item(name) | syntax.NameSyntax(name):
                return name in self.truths
        return isinstance(e, syntax.ApplySyntax) and e.function in ("true", "false")

    def condition(self, e: Raw, env: Env, guarded: bool) -> ex.Expr:
        """Translate e in a condition context."""
        match e:
            case syntax.Compare(first, rest):
                written = (first, *(side for _, side in rest))
                sides = [infinity(side) or self.value(side, env, guarded) for side in written]
                parts = [
                    self._relation(op, a, b)
                    for (op, _), a, b in zip(rest, sides, sides[1:], strict=False)
                ]
                return parts[0] if len(parts) == 1 else ex.And(tuple(parts))
            case syntax.Both(args) | syntax.Either(args):
                # A later condition is evaluated only if the earlier ones leave the result open.
                parts = [self.condition(a, env, guarded or n > 0) for n, a in enumerate(args)]
                node = ex.And if isinstance(e, syntax.Both) else ex.Or
                return node(tuple(flat(parts, node)))
            case syntax.Negation(arg):
                return ex.Not(self.condition(arg, env, guarded))
            case syntax.Bind(kind) if kind in CONDITIONS:
                return self._reduction(e, env, guarded)
            case syntax.Item(name) | syntax.NameSyntax(name) if name in self.truths:
                return self._access(e, env, guarded)
            case syntax.ApplySyntax("true", ()):
                return ex.And(())
            case syntax.ApplySyntax("false", ()):
                return ex.Or(())
        if not (isinstance(e, syntax.Item) and e.name in self.declared.tensors):
            self.value(e, env, guarded)  # an error inside e is the better message
        message = f"{show(e)} is a number, not a condition; compare it, {show(e)} != 0"
        fail(e.at, "number-or-condition", message)

    def _relation(self, op: str, left: ex.Expr, right: ex.Expr) -> ex.Expr:
        """Return left op right; a bool tensor compared with 0 or 1 is itself or its negation."""
        if isinstance(left, ex.Iverson) and isinstance(right, ex.Num) and right.value in (0, 1):
            if op in ("==", "!="):
                holds = (op == "==") == (right.value == 1)
                return left.condition if holds else ex.Not(left.condition)
        self.comparisons.append((left, right))
        return ex.Rel(op, left, right)

    # values

    def value(self, e: Raw, env: Env, guarded: bool) -> ex.Expr:
        """Translate e in a number context."""
        try:
            made = self._value(e, env, guarded)
        except ZeroDivisionError:
            fail(e.at, "not-finite", f"division by zero in {show(e)}")
        except OverflowError as error:
            fail(e.at, "not-finite", f"{show(e)}: {error}")
        check_number(made, e)
        return made

    def _value(self, e: Raw, env: Env, guarded: bool) -> ex.Expr:
        match e:
            case syntax.NumberSyntax(value):
                return ex.num(value)
            case syntax.NameSyntax() | syntax.Item():
                return self._named(e, env, guarded)
            case syntax.Sum(terms):
                signed = [(minus, self.value(term, env, guarded)) for minus, term in terms]
                return total(product((ex.num(-1), t)) if minus else t for minus, t in signed)
            case syntax.Product() | syntax.Negative():
                return self._product(e, env, guarded)
            case syntax.Power(base, exponent):
                return power(self.value(base, env, guarded), self.value(exponent, env, guarded))
            case syntax.Bracket(condition):
                return ex.Iverson(self.condition(condition, env, guarded))
            case syntax.ApplySyntax():
                return self._apply(e, env, guarded)
            case syntax.Bind():
                return self._bind(e, env, guarded)
            case syntax.Compare() | syntax.Both() | syntax.Either() | syntax.Negation():
                fail(e.at, "number-or-condition", advice.no_number(show(e), self._item is not None))
        fail(
            e.at,
            "not-an-index",
            f"{show(e)} is not allowed here; a group or a composite must be a whole axis position",
        )

    def _named(self, e: _Named, env: Env, guarded: bool) -> ex.Expr:
        name = e.name
        d = self.declared
        if isinstance(e, syntax.NameSyntax):
            if name == "inf":
                fail(e.at, "not-finite", advice.INFINITE)
            if name in CONSTANTS:
                return ex.Const(name)
            if name in d.letters:
                index = self._index(e, env)
                if index.group:
                    message = f"group *{name} is not a number; it can only be a whole axis position"
                    fail(e.at, "not-an-index", message)
                return index
            if name in d.parameters:
                return self._parameter(e)
        elif name in (*REDUCTIONS, *KEEPING) and name not in (*d.tensors, *d.equations):
            fail(e.at, "wrong-arguments", f"{name} needs an argument: {show(e)}(...)")
        elif name in d.parameters or name in CONSTANTS:
            what = "constant" if name in CONSTANTS else "parameter"
            fail(e.at, "axis-count", f"{name} is a {what} and has no axes")
        access = self._access(e, env, guarded)
        return ex.Iverson(access) if name in self.truths else access

    def _parameter(self, e: syntax.NameSyntax) -> ex.Expr:
        parameter = self.declared.parameters[e.name]
        if parameter.sized is not None:
            return ex.Size(parameter.sized)
        value = parameter.value
        if isinstance(value, syntax.ApplySyntax) and value.function in ("axis", "keep"):
            message = f"parameter {e.name} is not a number and cannot appear in an expression"
            fail(e.at, "parameter-value", message)
        if parameter.options:
            message = f"parameter {e.name} is a choice and cannot appear in an expression"
            fail(e.at, "parameter-value", message)
        return ex.Param(e.name)

    def _index(self, e: syntax.NameSyntax | syntax.Star, env: Env) -> ex.Index:
        if e.name in env:
            return env[e.name]
        group = self.declared.letters[e.name].group
        star = "*" if group else ""
        inside = f" of {show(self._item)}" if self._item is not None else ""
        left = self._equation.name
        size = f"; its number of values is size({e.name})" if self._item is None else ""
        fail(
            e.at,
            "unbound-index",
            f"index {star}{e.name}{inside} is neither summed over nor on the left; sum over it, "
            f"sum[{star}{e.name}](...), or add it to {left}{size}",
        )

    def _access(self, e: _Named, env: Env, guarded: bool) -> ex.Expr:
        d = self.declared
        name = e.name
        if name in d.equations and name not in self._defined:
            if name == self._equation.name:
                message = f"{name} is used in its own definition; {advice.RECURRENCE}"
                fail(e.at, "used-before-defined", message)
            later = d.equations[name].at
            where = f", on line {later.line}" if later is not None and later.line else ""
            message = f"{name} is used before it is defined{where}; move its equation up"
            fail(e.at, "used-before-defined", message)
        if name not in d.equations and name not in d.tensors:
            if name in d.letters and isinstance(e, syntax.Item):
                fail(e.at, "axis-count", f"{name} is an index and has no axes")
            what = "name" if isinstance(e, syntax.NameSyntax) else "tensor"
            advised = nearest(name, d.known()) or f"; declare it {d.how.axes}, or define it above"
            fail(e.at, "unknown-name", f"unknown {what} {name}{advised}")
        outer, self._item = self._item, e
        written = e.positions if isinstance(e, syntax.Item) else ()
        positions = tuple(self._position(p, env, guarded) for p in written)
        self._item = outer
        self.readings.append(AccessSite(name, positions, guarded, self._equation.name, e.at))
        return ex.Access(name, positions)

    def _position(self, e: Raw, env: Env, guarded: bool) -> ex.Expr:
        match e:
            case syntax.Star():
                return self._index(e, env)
            case syntax.CompositeSyntax(args):
                return ex.Composite(tuple(self._position(a, env, guarded) for a in args))
            case syntax.NameSyntax(name) if name in self.declared.letters:
                index = self._index(e, env)
                if index.group:
                    fail(e.at, "two-roles", f"{name} is a group of axes; write *{name}")
                return index
        return self.value(e, env, guarded)

    # products, whose brackets guard

    def _product(self, e: Raw, env: Env, guarded: bool) -> ex.Expr:
        factors = list(syntax.factors(e))
        brackets = [not inverse and self._is_bracket(f) for inverse, f in factors]
        result: list[ex.Expr] = []
        for n, (inverse, factor) in enumerate(factors):
            others = brackets[:n] if brackets[n] else brackets
            value = self.value(factor, env, guarded or any(others))
            if inverse and constant_value(value) == 0:
                raise ZeroDivisionError
            result.append(power(value, ex.num(-1)) if inverse else value)
        return product(result)

    def _is_bracket(self, e: Raw) -> bool:
        return isinstance(e, syntax.Bracket) or (
            isinstance(e, syntax.Bind | syntax.Item | syntax.NameSyntax) and self._is_condition(e)
        )

    # functions

    def _apply(self, e: syntax.ApplySyntax, env: Env, guarded: bool) -> ex.Expr:
        name, args = e.function, e.args
        if name == "size":
            return self._size(e, env)
        if name == "where":
            _check_count(e, 3)
            condition, start = self.condition(args[0], env, guarded), len(self.readings)
            then, middle = self.value(args[1], env, guarded), len(self.readings)
            other = self.value(args[2], env, guarded)
            either = in_either(self.readings[start:middle], self.readings[middle:])
            self.readings[start:] = either
            return ex.Where(condition, then, other)
        if name not in SCALAR:
            values = tuple(self.value(a, env, guarded) for a in args if name in ("max", "min"))
            return clamped(name, values) or no_function(e, self.declared)
        _check_count(e, arity(name))
        bounds = [infinity(a) if name == "clamp" and n else None for n, a in enumerate(args)]
        pairs = zip(bounds, args, strict=True)
        values = tuple(bound or self.value(a, env, guarded) for bound, a in pairs)
        if name in POWERS:
            return power(values[0], ex.num(POWERS[name]))
        return ex.Call(ALIASES.get(name, name), values)

    def _size(self, e: syntax.ApplySyntax, env: Env) -> ex.Expr:
        _check_count(e, 1)
        match e.args[0]:
            case syntax.NameSyntax(name) | syntax.Star(name) if name in self.declared.letters:
                return ex.Size(letter_of(name, env))
        fail(e.at, "not-an-index", f"{show(e)}: the argument of size must be an index, size(k)")

    # heads with indices

    def _bind(self, e: syntax.Bind, env: Env, guarded: bool) -> ex.Expr:
        e = taken(e)
        if e.kind in KEEPING:
            return self._keeping(e, env, guarded)
        if e.kind == "concat":
            return self._concat(e, env, guarded)
        if e.kind in REDUCTIONS:
            reduced = self._reduction(e, env, guarded)
            return ex.Iverson(reduced) if e.kind in CONDITIONS else reduced
        no_reduction(e, self.declared)

    def _reduction(self, e: syntax.Bind, env: Env, guarded: bool) -> ex.Expr:
        inner = dict(env)
        bound = []
        for written in _bound(e):
            letter = self.declared.letters[written.name]
            index = ex.Index(letter.name, letter_of(letter.name, env), letter.group)
            index = fresh(index, inner.values())
            enter(inner, letter.name, index)
            bound.append(index)
        condition = None
        if e.condition is not None:
            condition = self.condition(e.condition, inner, guarded)
            guarded = True
        translate = self.condition if e.kind in CONDITIONS else self.value
        body = translate(e.args[0], inner, guarded)
        return ex.Reduce(e.kind, tuple(bound), body, condition)

    def _keeping(self, e: syntax.Bind, env: Env, guarded: bool) -> ex.Expr:
        outer = [self._kept(e, index, env) for index in _bound(e)]
        condition = None
        if e.condition is not None:
            condition = self.condition(e.condition, env, guarded)
        x = self.value(e.args[0], env, guarded or condition is not None)
        return desugar_softmax(x, outer, condition, env.values(), log=e.kind == "log_softmax")

    def _kept(self, e: syntax.Bind, index: syntax.NameSyntax | syntax.Star, env: Env) -> ex.Index:
        if index.name not in env:
            fail(
                index.at,
                "unbound-index",
                f"{e.kind}[{show(index)}] keeps its index, and {index.name} is neither summed "
                f"over nor on the left; add it to {self._equation.name}",
            )
        return env[index.name]

    def _concat(self, e: syntax.Bind, env: Env, guarded: bool) -> ex.Expr:
        _check_joined(e)
        joined = _bound(e, arguments=False)[0]
        k = self._kept(e, joined, env)
        pieces: list[tuple[ex.Index, ex.Expr]] = []
        for n, arg in enumerate(e.args, start=1):
            name = f"{joined.name}#{next(self._count)}"
            self.declared.letters[name] = Letter(name, False, arg.at, own=False)
            own = ex.Index(name, name)
            scope = dict(env)
            enter(scope, joined.name, own)
            piece = self.value(arg, scope, guarded)
            if not any(i is own for i in ex.walk(piece)):
                fail(
                    arg.at,
                    "wrong-arguments",
                    f"argument {n} of concat[{joined.name}] does not have index "
                    f"{joined.name}, so its size is unknown",
                )
            pieces.append((own, piece))
        self.definitions.append((joined.name, total(ex.Size(i.extent) for i, _ in pieces), e.at))
        return desugar_concat(k, pieces, e.at)


def _check_count(e: syntax.ApplySyntax, n: int) -> None:
    """Refuse a call that does not have n arguments."""
    if len(e.args) != n:
        message = f"{e.function} takes {plural(n, 'argument')}, not {len(e.args)}"
        fail(e.at, "wrong-arguments", message)


def _bound(e: syntax.Bind, arguments: bool = True) -> tuple[syntax.NameSyntax | syntax.Star, ...]:
    """Return the indices that a head binds, each once."""
    if arguments and len(e.args) != 1:
        fail(e.at, "wrong-arguments", f"{e.kind}[...] takes 1 argument, not {len(e.args)}")
    if not e.indices:
        fail(e.at, "wrong-arguments", f"{e.kind}[] has no index")
    found: list[syntax.NameSyntax | syntax.Star] = []
    for index in e.indices:
        if not isinstance(index, syntax.NameSyntax | syntax.Star):
            message = f"{e.kind} reduces over indices and groups, not over {show(index)}"
            fail(index.at, "not-an-index", message)
        if any(index.name == other.name for other in found):
            fail(index.at, "repeated-index", f"index {index.name} appears twice in {e.kind}[...]")
        found.append(index)
    return tuple(found)


def _check_joined(e: syntax.Bind) -> None:
    """Refuse a concat that does not join some arguments along one index."""
    is_index = len(e.indices) == 1 and isinstance(e.indices[0], syntax.NameSyntax)
    if e.condition is not None or not is_index:
        fail(e.at, "wrong-arguments", "concat joins along one index: concat[k](a[k], b[k])")
    if not e.args:
        fail(e.at, "wrong-arguments", "concat[...] needs at least one argument")
    if len(e.args) > JOINED:
        fail(
            e.at,
            "wrong-arguments",
            f"concat joins at most {JOINED} arguments, not {len(e.args)}: join some of them "
            "in a separate equation",
        )

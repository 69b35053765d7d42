"""Follow one method statement by statement: the value of each name, and events for rules."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from derive.linting import operations as ops
from derive.linting.calls import Calls
from derive.linting.values import (
    NONE,
    NUMBER,
    UNKNOWN,
    AliasLevel,
    Token,
    TrackedValue,
    alias,
    constant,
    deep_known,
    deep_reads,
    join_values,
    new_value,
    token_value,
)

# ----------------------------------------------------------------------------------------- evaluate
# Evaluate an expression in a method.

ABOUT = {"shape", "dtype", "device", "ndim", "layout", "is_cuda", "names", "itemsize", "nbytes"}
"""Attributes of a tensor that do not depend on its values."""


@dataclass
class Evaluator(Calls):
    """Evaluates expressions other than calls."""

    def value(self, node: ast.expr) -> TrackedValue:
        match node:
            case ast.Constant(None):
                return NONE
            case ast.Constant() | ast.JoinedStr():
                return NUMBER
            case ast.Name(name):
                found = self.env.get(name, UNKNOWN)
                if name == self.ctx:
                    self.escapes = True
                if found.unbound:
                    self.record("unbound", node, found)
                return found
            case ast.Tuple(elts) | ast.List(elts):
                return self.tuple_of(elts, isinstance(node, ast.List))
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call():
                return self.through(self.call(node))
            case ast.BinOp(left, _, right):
                return self.through(self.binary(node, self.value(left), self.value(right)))
            case ast.UnaryOp(operator, operand):
                return self.unary(node, operator, self.value(operand))
            case ast.Compare():
                return self.comparison(node)
            case ast.BoolOp(_, values):
                return reduce(join_values, map(self.value, values))
            case ast.IfExp(test, body, orelse):
                return self.either(test, body, orelse)
            case ast.NamedExpr(ast.Name(name), value):
                self.env[name] = self.value(value)
                return self.env[name]
            case ast.Starred(inner):
                return self.value(inner)
            case ast.Slice(lower, upper, step):
                ends = [self.value(e) for e in (lower, upper, step) if e]
                return new_value(node, ends, flat=True, tensor=False)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id == self.ctx:
                self.escapes = True
        return replace(UNKNOWN, reads=self.mentioned(node))

    def unary(self, node: ast.AST, operator: ast.unaryop, one: TrackedValue) -> TrackedValue:
        if isinstance(operator, ast.Not):
            return replace(NUMBER, reads=deep_reads(one), known=deep_known(one))
        flat = isinstance(operator, ast.Invert)
        return self.through(new_value(node, [one], flat=flat, tensor=one.tensor))

    def comparison(self, node: ast.Compare) -> TrackedValue:
        several = [self.value(node.left), *map(self.value, node.comparators)]
        single = ast.Is | ast.IsNot | ast.In | ast.NotIn
        plain = any(isinstance(operator, single) for operator in node.ops)
        return new_value(node, several, True, not plain and any(v.tensor for v in several))

    def either(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> TrackedValue:
        self.steering |= deep_reads(self.value(test))
        before, self.env = self.env, _where_holds(self.env, ast.unparse(test))
        first = self.value(body)
        self.env = before
        return join_values(first, self.value(orelse))

    def tuple_of(self, elts: list[ast.expr], listed: bool = False) -> TrackedValue:
        items: list[TrackedValue] = []
        for element in elts:
            found = self.value(element)
            if isinstance(element, ast.Starred):
                if found.items is None:
                    rest = [self.value(e) for e in elts[elts.index(element) + 1 :]]
                    several = [*items, found, *rest]
                    return replace(new_value(element, several, tensor=False), known=False)
                items += found.items
            else:
                items.append(found)
        return TrackedValue(items=tuple(items), listed=listed)

    def binary(self, node: ast.BinOp, a: TrackedValue, b: TrackedValue) -> TrackedValue:
        operator = node.op
        if isinstance(operator, ast.Add) and a.items is not None:
            return self.added(node, a, b)
        if isinstance(operator, ast.Mult) and a.items is not None:  # (None,) * n
            count = constant(node.right)
            if isinstance(count, int):
                return TrackedValue(items=a.items * count, listed=a.listed)
            return replace(new_value(node, [a], tensor=False), known=False)
        flat = isinstance(operator, ast.FloorDiv | ast.BitAnd | ast.BitOr | ast.BitXor)
        tensor = a.tensor or b.tensor
        zero = tensor and _is_zero_result(operator, a, b)
        return replace(new_value(node, [a, b], flat, tensor), void=zero)

    def added(self, node: ast.AST, a: TrackedValue, b: TrackedValue) -> TrackedValue:
        """``a + b`` of tuples."""
        if a.items is not None and b.items is not None:
            return TrackedValue(items=a.items + b.items, listed=a.listed)
        return replace(new_value(node, [a, b], tensor=False), known=False)

    def element(self, value: TrackedValue) -> TrackedValue:
        """Return a value for any element of what is unpacked or looped over."""
        if value.items:
            return reduce(join_values, value.items)
        level = max(value.level, AliasLevel.VIEW)
        return TrackedValue(None, value.roots, level, value.slopes, value.reads, known=value.known)

    # ------------------------------------------------- attributes, subscripts

    def attribute(self, node: ast.Attribute) -> TrackedValue:
        if isinstance(node.value, ast.Name) and node.value.id == self.ctx:
            return self.on_ctx(node.attr)
        base = self.value(node.value)
        name = node.attr
        if name == "requires_grad":
            self.record("requires_grad", node, base)
        if name in ABOUT or name in {"requires_grad", "is_leaf", "grad_fn"}:
            return NUMBER
        if base.items is not None and name in {"values", "indices"}:
            return base.items[0 if name == "values" else 1]
        if not (base.tensor or base.roots):
            return replace(UNKNOWN, reads=base.reads)
        if name == "data":
            return self.cut(node, ".data", alias(base, AliasLevel.VIEW, node))
        if name in ops.VIEW:
            return alias(base, AliasLevel.VIEW, node)
        return replace(UNKNOWN, reads=base.reads)

    def on_ctx(self, name: str) -> TrackedValue:
        if name in {"saved_tensors", "saved_variables"}:
            return SAVED if self.saved is None else TrackedValue(items=_saved(len(self.saved)))
        if name == "needs_input_grad":
            return NUMBER
        found = self.kept.get(name)
        if found is None:
            return UNKNOWN
        if found.none or not found.tensor:
            return replace(
                found, slopes=frozenset(), roots=frozenset(), reads=frozenset(), unbound=frozenset()
            )
        return token_value(Token("kept", name))

    def subscript(self, node: ast.Subscript) -> TrackedValue:
        base, index = self.value(node.value), self.value(node.slice)
        if base.items is not None:
            return _tuple_element(base, node.slice) or self.element(base)
        if base.roots == SAVED.roots:
            number = constant(node.slice)
            if isinstance(number, int) and number >= 0:
                return token_value(Token("saved", number))
            return UNKNOWN
        if not base.tensor:
            together = new_value(node, [base, index], tensor=False)
            return replace(together, slopes=base.slopes, roots=base.roots, level=AliasLevel.CAST)
        if _is_basic_index(node.slice):
            return replace(alias(base, AliasLevel.VIEW, node), reads=base.reads | deep_reads(index))
        return replace(new_value(node, [base, index]), slopes=base.slopes)


SAVED = TrackedValue(roots=frozenset([Token("saved", -1)]))
"""``ctx.saved_tensors`` with an unknown number of tensors."""


def _saved(count: int) -> tuple[TrackedValue, ...]:
    return tuple(token_value(Token("saved", n)) for n in range(count))


def _tuple_element(base: TrackedValue, index: ast.expr) -> TrackedValue | None:
    """Return an element or a slice of a tuple; None if the index is unknown."""
    items = base.items or ()
    number = constant(index)
    if isinstance(number, int) and -len(items) <= number < len(items):
        return items[number]
    if isinstance(index, ast.Slice) and index.step is None:
        start, stop = (None if e is None else constant(e) for e in (index.lower, index.upper))
        if isinstance(start, int | None) and isinstance(stop, int | None):
            if (index.lower is None) == (start is None) and (index.upper is None) == (stop is None):
                return replace(base, items=items[start:stop])
    return None


def _is_basic_index(index: ast.expr) -> bool:
    """True if an index makes a view: numbers, slices, None and the ellipsis."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        isinstance(p, ast.Slice | ast.Constant) or isinstance(constant(p), int) for p in parts
    )


def _is_zero_result(operator: ast.operator, a: TrackedValue, b: TrackedValue) -> bool:
    if isinstance(operator, ast.Mult):
        return (a.tensor and a.void) or (b.tensor and b.void)
    return isinstance(operator, ast.Add | ast.Sub) and a.void and b.void


# --------------------------------------------------------------------------------------------- flow

Env = dict[str, TrackedValue]


@dataclass
class Flow(Evaluator):
    """The state of a method. Loops run twice, and events are recorded the second time only."""

    def run(self, body: Sequence[ast.stmt]) -> bool:
        """Run statements in order; False if no path continues after them."""
        return all(self.statement(statement) for statement in body)

    def statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Assign(targets, value):
                found = self.value(value)
                for target in targets:
                    self.assign(target, found)
            case ast.AnnAssign(target, _, value) if value is not None:
                self.assign(target, self.value(value))
            case ast.AugAssign(target, _, value):
                self.augment(node, target, self.value(value))
            case ast.Expr(value):
                self.value(value)
            case ast.Return(value):
                self.record("return", node, NONE if value is None else self.value(value))
                return False
            case ast.Raise():
                return False
            case ast.If(test, body, orelse):
                return self.choose(test, body, orelse)
            case ast.For(target, iterable, body, orelse):
                return self.loop(body, orelse, target, self.value(iterable))
            case ast.While(test, body, orelse):
                self.test(test)
                return self.loop(body, orelse)
            case ast.With(items, body):
                return self.enter(items, body)
            case ast.Try(body, handlers, orelse, finalbody):
                return self.attempt(body, handlers, orelse, finalbody)
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                self.env[node.name] = replace(UNKNOWN, reads=self.mentioned(node))
            case ast.Delete(targets):
                for target in targets:
                    if isinstance(target, ast.Name):
                        self.env.pop(target.id, None)
            case ast.Assert(test):
                self.value(test)
            case ast.Match():
                self.give_up(node)
        return True

    # ------------------------------------------------------------- branches

    def choose(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> bool:
        """Run both branches of an If, and join their states."""
        self.test(test)
        condition = ast.unparse(test)
        start = dict(self.env)
        self.env = _where_holds(start, condition)
        first = self.run(body)
        after, self.env = self.env, start
        second = self.run(orelse)
        if first and second:
            self.env = meet(after, self.env, condition)
        elif first:
            self.env = after
        return first or second

    def loop(
        self,
        body: list[ast.stmt],
        orelse: list[ast.stmt],
        target: ast.expr | None = None,
        items: TrackedValue = UNKNOWN,
    ) -> bool:
        start = dict(self.env)
        for quiet in (1, -1):
            self.silent += quiet
            if target is not None:
                self.assign(target, self.element(items))
            self.run(body)
            self.env = meet(start, self.env, "")
        return self.run(orelse)

    def enter(self, items: list[ast.withitem], body: list[ast.stmt]) -> bool:
        """Run a with statement, whose grad mode applies within it."""
        before = self.no_grad
        for item in items:
            found = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, found)
            mode = self.grad_mode(item.context_expr)
            if mode is not None:
                self.no_grad = None if mode else item.context_expr
        goes_on = self.run(body)
        self.no_grad = before
        return goes_on

    def attempt(
        self,
        body: list[ast.stmt],
        handlers: list[ast.ExceptHandler],
        orelse: list[ast.stmt],
        final: list[ast.stmt],
    ) -> bool:
        start = dict(self.env)
        ends = []
        if self.run(body) and self.run(orelse):
            ends.append(self.env)
        between = meet(start, self.env, "")
        for handler in handlers:
            self.env = dict(between)
            if handler.name:
                self.env[handler.name] = UNKNOWN
            if self.run(handler.body):
                ends.append(self.env)
        self.env = ends[0] if ends else between
        for other in ends[1:]:
            self.env = meet(self.env, other, "")
        return self.run(final) and bool(ends)

    def test(self, node: ast.expr) -> None:
        """Evaluate a condition; what it reads steers what is computed."""
        self.steering |= deep_reads(self.value(node))

    def give_up(self, node: ast.AST) -> None:
        """Make every name in a statement unknown, because the statement is not followed."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                self.env[part.id] = replace(UNKNOWN, reads=self.mentioned(node))
        self.record("lost", node, UNKNOWN)

    # ----------------------------------------------------------- assignments

    def assign(self, target: ast.expr, value: TrackedValue) -> None:
        match target:
            case ast.Name(name):
                self.env[name] = replace(value, unbound=frozenset())
            case ast.Tuple(targets) | ast.List(targets):
                self.unpack(targets, value)
            case ast.Attribute(ast.Name(name), attribute) if name == self.ctx:
                self.record("keep", target, value)
                before = self.kept.get(attribute, value)
                self.kept[attribute] = join_values(before, value)
            case ast.Subscript(base):
                self.changed(target, self.value(base), [value, self.value(target.slice)])
            case ast.Attribute(base, "data"):
                self.changed(target, self.value(base), [value])
            case ast.Starred(inner):
                self.assign(inner, replace(UNKNOWN, reads=deep_reads(value)))

    def unpack(self, targets: Sequence[ast.expr], value: TrackedValue) -> None:
        starred = [n for n, t in enumerate(targets) if isinstance(t, ast.Starred)]
        items = value.items or ()
        if value.items is None and value.roots == SAVED.roots and not starred:
            # The names give the number of saved tensors.
            items = _saved(len(targets))
        if starred:
            items = items[: starred[0]]
        elif len(items) != len(targets):
            items = ()
        for n, target in enumerate(targets):
            self.assign(target, items[n] if n < len(items) else self.element(value))

    def augment(self, node: ast.AugAssign, target: ast.expr, value: TrackedValue) -> None:
        """``x += y``: in place where x is a tensor."""
        if isinstance(target, ast.Name):
            before = self.env.get(target.id, UNKNOWN)
            if before.items is not None:
                self.env[target.id] = self.added(node, before, value)
            elif before.tensor:
                self.changed(node, before, [value])
            else:
                self.env[target.id] = new_value(node, [before, value], tensor=value.tensor)
        elif isinstance(target, ast.Subscript):
            self.changed(node, self.value(target.value), [value])
        elif isinstance(target, ast.Attribute):
            before = self.value(target)
            if before.tensor:
                self.changed(node, before, [value])


def _where_holds(env: Env, condition: str) -> Env:
    """Return the state under a condition, so that a name that is set if it holds has a value."""
    return {
        name: replace(v, unbound=v.unbound - {condition}) if condition in v.unbound else v
        for name, v in env.items()
    }


def meet(a: Env, b: Env, condition: str) -> Env:
    """Join the states of two paths; a name that only one path sets may be unbound."""
    together: Env = {}
    for name in {**a, **b}:
        if name in a and name in b:
            together[name] = join_values(a[name], b[name])
        else:
            one = a.get(name) or b[name]
            together[name] = replace(one, unbound=one.unbound | {condition})
    return together

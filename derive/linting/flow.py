"""Follow one method statement by statement: the value of each name, and events for rules."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from derive.linting.evaluate import Evaluator
from derive.linting.values import (
    NONE,
    UNKNOWN,
    TrackedValue,
    deep_reads,
    join_values,
    new_value,
)

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
                found = self.value(value) if value is not None else NONE
                self.record("return", node, found)
                return False
            case ast.Raise() | ast.Continue() | ast.Break():
                return not isinstance(node, ast.Raise)
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
        self.env = {
            name: replace(v, unbound=v.unbound - {condition}) if condition in v.unbound else v
            for name, v in start.items()
        }
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
        self.silent += 1
        for quiet in (True, False):
            if not quiet:
                self.silent -= 1
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
        saved = self.saved_items(value, len(targets), bool(starred))
        items = saved if saved is not None else value.items
        for n, target in enumerate(targets):
            if items is not None and not starred and len(items) == len(targets):
                self.assign(target, items[n])
            elif items is not None and starred and n < starred[0] and n < len(items):
                self.assign(target, items[n])
            else:
                self.assign(target, self.element(value))

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

"""The state at one point of a method, and the events up to there."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from derive.linting.names import ModuleAliases
from derive.linting.values import Token, Tokens, TrackedValue, deep_reads, deep_slopes


class Event(NamedTuple):
    """Something that a rule reads: a return, a save, an in-place change."""

    kind: str
    node: ast.AST
    value: TrackedValue
    others: tuple[TrackedValue, ...] = ()


class Cut(NamedTuple):
    """A place where values leave the graph, and the tensors that they depend on."""

    node: ast.AST
    what: str
    slopes: Tokens


@dataclass
class State:
    """The names of one method, and the events so far."""

    names: ModuleAliases
    ctx: str
    env: dict[str, TrackedValue]
    launchers: frozenset[str] = frozenset()
    guards: frozenset[str] = frozenset()
    tensors: set[int] = field(default_factory=set)
    graph: bool = True
    kept: dict[str, TrackedValue] = field(default_factory=dict)
    saved: tuple[TrackedValue, ...] | None = None
    events: list[Event] = field(default_factory=list)
    cuts: dict[Token, Cut] = field(default_factory=dict)
    steering: Tokens = frozenset()
    escapes: bool = False
    own_graph: bool = False
    silent: int = 0
    no_grad: ast.AST | None = None

    def record(
        self, kind: str, node: ast.AST, value: TrackedValue, others: Iterable[TrackedValue] = ()
    ) -> None:
        if not self.silent:
            self.events.append(Event(kind, node, value, tuple(others)))

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def value(self, node: ast.expr) -> TrackedValue:
        """The value of an expression."""
        raise NotImplementedError

    def through(self, value: TrackedValue) -> TrackedValue:
        """Return the value, without derivatives if grad mode is off."""
        if self.no_grad is None or not self.graph or not value.slopes:
            return value
        return self.cut(self.no_grad, "torch.no_grad()", value)

    def cut(self, node: ast.AST, what: str, value: TrackedValue) -> TrackedValue:
        """Return the value without its derivatives, and a token for where they were lost."""
        slopes = deep_slopes(value)
        lost = frozenset(t for t in slopes if t.kind != "cut")
        if not lost:
            return value
        if not self.graph:
            return replace(value, slopes=frozenset())
        token = Token("cut", (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
        before = self.cuts.get(token)
        self.cuts[token] = Cut(node, what, lost | (before.slopes if before else frozenset()))
        kept = frozenset(t for t in slopes if t.kind == "cut") | {token}
        return replace(value, slopes=kept, reads=value.reads | {token})

    def mentioned(self, node: ast.AST) -> Tokens:
        """Return all tokens that the names in a piece of code read."""
        names = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        return frozenset().union(*(deep_reads(self.env[n]) for n in names if n in self.env))

    def used_as_tensor(self, value: TrackedValue) -> None:
        """Record an input that is used as only tensors are."""
        token = value.identity
        if token is not None and token.kind == "input" and isinstance(token.key, int):
            self.tensors.add(token.key)


def constant(node: ast.expr) -> object:
    """The value of a literal, else None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = constant(node.operand)
        return -inner if isinstance(inner, int) else None
    return node.value if isinstance(node, ast.Constant) else None

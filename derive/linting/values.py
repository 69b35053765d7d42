"""Abstract values in a method: the tensors that a value shares memory with and depends on."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from derive.linting.functions import ModuleAliases

Tokens = frozenset["Token"]


class Token(NamedTuple):
    """A tensor by its origin: ``input 0``, ``cotangent 1``, ``saved 2``, ``made line:column``.

    ``cut`` is a place where values leave the graph.
    """

    kind: str
    key: int | str | tuple[int, int]


class AliasLevel(IntEnum):
    """How a value relates to the tensors that it shares memory with."""

    ITSELF = 0
    VIEW = 1
    CONTIGUOUS = 2
    """The tensor or a view of it if it is contiguous, else a copy."""
    CAST = 3
    """The tensor if dtype and device fit, else a copy; or any other thing that may share memory."""


@dataclass(frozen=True)
class TrackedValue:
    """A value; all sets grow where branches meet.

    identity: the one tensor object that it certainly is
    roots: the tensors that it shares memory with, or may; ``level`` says how
    slopes: the tensors that it depends on by differentiable operations of torch
    reads: the tensors that it depends on in any way
    tensor: whether it is certainly a tensor (or None)
    known: whether ``reads`` is complete
    items: the elements of a tuple
    none, void: certainly None; certainly None or zeros
    unbound: the conditions without which the name has no value
    """

    identity: Token | None = None
    roots: Tokens = frozenset()
    level: int = AliasLevel.ITSELF
    slopes: Tokens = frozenset()
    reads: Tokens = frozenset()
    tensor: bool = False
    known: bool = True
    items: tuple[TrackedValue, ...] | None = None
    listed: bool = False
    none: bool = False
    void: bool = False
    unbound: frozenset[str] = field(default=frozenset())

    def kinds(self) -> set[str]:
        return {token.kind for token in self.roots}


UNKNOWN = TrackedValue(known=False)
NUMBER = TrackedValue()
NONE = TrackedValue(none=True, void=True)


def token_value(token: Token, tensor: bool = True) -> TrackedValue:
    """Return the tensor that a token stands for."""
    alone = frozenset([token])
    return TrackedValue(token, alone, AliasLevel.ITSELF, alone, alone, tensor)


def new_value(
    node: ast.AST, parts: Iterable[TrackedValue], flat: bool = False, tensor: bool = True
) -> TrackedValue:
    """Return a new tensor that an operation computes from others."""
    parts = list(parts)
    own = Token("made", node_position(node)) if tensor else None
    roots: Tokens = frozenset([own] if own else [])
    slopes: Tokens = frozenset().union(*(p.slopes for p in parts if not flat))
    known = all(map(deep_known, parts))
    return TrackedValue(own, roots, AliasLevel.ITSELF, slopes, reads_of(parts), tensor, known)


def node_position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def deep_reads(value: TrackedValue) -> Tokens:
    """Return the reads of a value and of its elements."""
    return value.reads.union(*(deep_reads(item) for item in value.items or ()))


def reads_of(values: Iterable[TrackedValue]) -> Tokens:
    return frozenset().union(*map(deep_reads, values))


def deep_known(value: TrackedValue) -> bool:
    return value.known and all(deep_known(item) for item in value.items or ())


def deep_slopes(value: TrackedValue) -> Tokens:
    return value.slopes.union(*(deep_slopes(item) for item in value.items or ()))


def deep_roots(value: TrackedValue) -> Tokens:
    return value.roots.union(*(deep_roots(item) for item in value.items or ()))


def alias(value: TrackedValue, level: int, node: ast.AST | None = None) -> TrackedValue:
    """Return a tensor that shares the memory of another; a view is an object of its own."""
    own = None if node is None or level != AliasLevel.VIEW else Token("made", node_position(node))
    level = max(level, value.level)
    return replace(value, identity=own, level=level, items=None, unbound=frozenset())


def join_values(a: TrackedValue, b: TrackedValue) -> TrackedValue:
    """Return what is known of a value that may be either one."""
    items = None
    if a.items is not None and b.items is not None and len(a.items) == len(b.items):
        items = tuple(map(join_values, a.items, b.items))
    lost = [v for v in (a, b) if items is None and v.items is not None]
    return TrackedValue(
        a.identity if a.identity == b.identity or b.none else b.identity if a.none else None,
        (_rooted(a) | _rooted(b)).union(*map(deep_roots, lost)),
        AliasLevel.CAST if lost else max(a.level, b.level),
        (a.slopes | b.slopes).union(*map(deep_slopes, lost)),
        (a.reads | b.reads).union(*map(deep_reads, lost)),
        (a.tensor or a.none) and (b.tensor or b.none) and not (a.none and b.none),
        a.known and b.known and all(map(deep_known, lost)),
        items,
        a.listed and b.listed,
        a.none and b.none,
        a.void and b.void,
        a.unbound | b.unbound,
    )


def _rooted(value: TrackedValue) -> Tokens:
    """Return the roots; a value without roots, unless it is None, has the root ``other``."""
    return value.roots or (frozenset() if value.none else frozenset([Token("other", 0)]))


# -------------------------------------------------------------------------------------------- state
# The state at one point of a method, and the events up to there.


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
        token = Token("cut", node_position(node))
        before = self.cuts.get(token)
        self.cuts[token] = Cut(node, what, lost | (before.slopes if before else frozenset()))
        kept = frozenset(t for t in slopes if t.kind == "cut") | {token}
        return replace(value, slopes=kept, reads=value.reads | {token})

    def mentioned(self, node: ast.AST) -> Tokens:
        """Return all tokens that the names in a piece of code read."""
        names = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        return reads_of(self.env[n] for n in names if n in self.env)

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

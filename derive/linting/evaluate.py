"""The value of an expression in a method, by the tables of `operations`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from derive.linting import operations as ops
from derive.linting.names import Names
from derive.linting.values import (
    NONE,
    NUMBER,
    UNKNOWN,
    Level,
    Token,
    Tokens,
    Value,
    alias,
    deep_known,
    deep_reads,
    deep_roots,
    deep_slopes,
    join,
    made,
    of,
)

ABOUT = {"shape", "dtype", "device", "ndim", "layout", "is_cuda", "names", "itemsize", "nbytes"}
"""Attributes of a tensor other than its values."""
SWITCHES = {"no_grad": False, "inference_mode": False, "enable_grad": True}


class Event(NamedTuple):
    """Something that a rule reads: a return, a save, a change in place."""

    kind: str
    node: ast.AST
    value: Value
    others: tuple[Value, ...] = ()


class Cut(NamedTuple):
    """A place where values leave the graph, and the tensors whose values these are."""

    node: ast.AST
    what: str
    slopes: Tokens


@dataclass
class Evaluator:
    """The names of one method, and what happened so far."""

    names: Names
    ctx: str
    env: dict[str, Value]
    launchers: frozenset[str] = frozenset()
    graph: bool = True
    kept: dict[str, Value] = field(default_factory=dict)
    saved: tuple[Value, ...] | None = None
    events: list[Event] = field(default_factory=list)
    cuts: dict[Token, Cut] = field(default_factory=dict)
    steering: Tokens = frozenset()
    escapes: bool = False
    own_graph: bool = False
    silent: int = 0
    no_grad: ast.AST | None = None

    def record(self, kind: str, node: ast.AST, value: Value, others: Iterable[Value] = ()) -> None:
        if not self.silent:
            self.events.append(Event(kind, node, value, tuple(others)))

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    # ------------------------------------------------------------ expressions

    def value(self, node: ast.expr) -> Value:
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
            case ast.BinOp(left, operator, right):
                return self.through(
                    self.binary(node, operator, self.value(left), self.value(right))
                )
            case ast.UnaryOp(operator, operand):
                one = self.value(operand)
                if isinstance(operator, ast.Not):
                    return replace(NUMBER, reads=deep_reads(one), known=deep_known(one))
                flat = isinstance(operator, ast.Invert)
                return self.through(made(node, [one], flat=flat, tensor=one.tensor))
            case ast.Compare(left, _, comparators):
                several = [self.value(left), *map(self.value, comparators)]
                return made(node, several, True, any(v.tensor for v in several))
            case ast.BoolOp(_, values):
                several = list(map(self.value, values))
                together = several[0]
                for one in several[1:]:
                    together = join(together, one)
                return together
            case ast.IfExp(test, body, orelse):
                return self.either(test, body, orelse)
            case ast.NamedExpr(ast.Name(name), value):
                self.env[name] = self.value(value)
                return self.env[name]
            case ast.Starred(inner):
                return self.value(inner)
            case ast.Slice(lower, upper, step):
                return made(node, [self.value(e) for e in (lower, upper, step) if e], True, False)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id == self.ctx:
                self.escapes = True
        return replace(UNKNOWN, reads=self.mentioned(node))

    def through(self, value: Value) -> Value:
        """The value; without a graph where grad mode is off."""
        if self.no_grad is None or not self.graph or not value.slopes:
            return value
        return self.cut(self.no_grad, "torch.no_grad()", value)

    def cut(self, node: ast.AST, what: str, value: Value) -> Value:
        """The value without its derivatives, and a token for where they were lost."""
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
        """All that the names in a piece of code read."""
        names = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        return frozenset().union(*(deep_reads(self.env[n]) for n in names if n in self.env))

    def either(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Value:
        self.steering |= deep_reads(self.value(test))
        condition, before = ast.unparse(test), self.env
        self.env = {
            name: replace(v, unbound=v.unbound - {condition}) if condition in v.unbound else v
            for name, v in before.items()
        }
        first = self.value(body)
        self.env = before
        return join(first, self.value(orelse))

    def tuple_of(self, elts: list[ast.expr], listed: bool = False) -> Value:
        items: list[Value] = []
        for element in elts:
            found = self.value(element)
            if isinstance(element, ast.Starred):
                if found.items is None:
                    rest = [self.value(e) for e in elts[elts.index(element) + 1 :]]
                    several = [*items, found, *rest]
                    return replace(made(element, several, tensor=False), known=False)
                items += found.items
            else:
                items.append(found)
        return Value(items=tuple(items), listed=listed)

    def binary(self, node: ast.AST, operator: ast.operator, a: Value, b: Value) -> Value:
        if isinstance(operator, ast.Add) and a.items is not None:
            return self.added(node, a, b)
        if isinstance(operator, ast.Mult) and a.items is not None:
            return self.repeated(node, a)
        flat = isinstance(operator, ast.FloorDiv | ast.BitAnd | ast.BitOr | ast.BitXor)
        tensor = a.tensor or b.tensor
        return replace(made(node, [a, b], flat, tensor), void=tensor and _nothing(operator, a, b))

    def added(self, node: ast.AST, a: Value, b: Value) -> Value:
        """``a + b`` of tuples."""
        if a.items is not None and b.items is not None:
            return Value(items=a.items + b.items, listed=a.listed)
        return replace(made(node, [a, b], tensor=False), known=False)

    def repeated(self, node: ast.AST, a: Value) -> Value:
        """``(None,) * n`` of a tuple."""
        count = node.right.value if _is_count(node) else None  # type: ignore[attr-defined]
        if a.items is not None and count is not None:
            return Value(items=a.items * count, listed=a.listed)
        return replace(made(node, [a], tensor=False), known=False)

    def element(self, value: Value) -> Value:
        """Any element of a value that is unpacked or looped over."""
        if value.items:
            together = value.items[0]
            for one in value.items[1:]:
                together = join(together, one)
            return together
        return Value(
            value.roots, max(value.level, Level.VIEW), value.slopes, value.reads, False, value.known
        )

    def saved_items(self, value: Value, count: int, starred: bool) -> tuple[Value, ...] | None:
        """The saved tensors, where their tuple is unpacked; their number is that of the names."""
        if value.items is not None or value.roots != SAVED.roots:
            return None
        return tuple(of(Token("saved", n)) for n in range(count if not starred else 0)) or None

    # ------------------------------------------------- attributes, subscripts

    def attribute(self, node: ast.Attribute) -> Value:
        if isinstance(node.value, ast.Name) and node.value.id == self.ctx:
            return self.on_ctx(node.attr)
        base = self.value(node.value)
        name = node.attr
        if name == "requires_grad":
            self.record("requires_grad", node, base)
        if name in ABOUT or name in {"requires_grad", "is_leaf", "grad_fn"}:
            return replace(NUMBER, reads=deep_reads(base), known=deep_known(base))
        if base.items is not None and name in {"values", "indices"}:
            return base.items[0 if name == "values" else 1]
        if not (base.tensor or base.roots):
            return replace(UNKNOWN, reads=base.reads)
        if name == "data":
            return self.cut(node, ".data", alias(base, Level.ITSELF))
        if name in ops.VIEW:
            return alias(base, Level.VIEW)
        return replace(UNKNOWN, reads=base.reads)

    def on_ctx(self, name: str) -> Value:
        if name in {"saved_tensors", "saved_variables"}:
            if self.saved is not None:
                return Value(items=tuple(of(Token("saved", n)) for n in range(len(self.saved))))
            return SAVED
        if name == "needs_input_grad":
            return NUMBER
        found = self.kept.get(name)
        if found is None:
            return UNKNOWN
        if found.none or not found.tensor:
            return replace(
                found, slopes=frozenset(), roots=frozenset(), reads=frozenset(), unbound=frozenset()
            )
        return of(Token("kept", name))

    def subscript(self, node: ast.Subscript) -> Value:
        base, index = self.value(node.value), self.value(node.slice)
        if base.items is not None:
            return _picked(base, node.slice) or self.element(base)
        if base.roots == SAVED.roots:
            number = _constant(node.slice)
            return (
                of(Token("saved", number)) if isinstance(number, int) and number >= 0 else UNKNOWN
            )
        if not base.tensor:
            together = made(node, [base, index], tensor=False)
            return replace(together, slopes=base.slopes, roots=base.roots, level=Level.CAST)
        if _basic(node.slice):
            return replace(alias(base, Level.VIEW), reads=base.reads | deep_reads(index))
        return replace(made(node, [base, index]), slopes=base.slopes)

    # ------------------------------------------------------------------ calls

    def call(self, node: ast.Call) -> Value:
        func = node.func
        if isinstance(func, ast.Attribute):
            if isinstance(func.value, ast.Name) and func.value.id == self.ctx:
                return self.call_on_ctx(node, func.attr)
        dotted = self.names.dotted(func) if not self.shadowed(func) else ""
        if dotted.startswith("torch.") or dotted == "torch":
            return self.call_torch(node, dotted)
        if isinstance(func, ast.Attribute) and not dotted:
            return self.call_method(node, func)
        arguments = self.arguments(node)
        if isinstance(func, ast.Name) and not self.shadowed(func) and not dotted:
            if func.id in {"float", "complex"} and len(arguments) == 1 and arguments[0].tensor:
                return self.cut(node, f"{func.id}()", replace(arguments[0], tensor=False))
            if func.id in {"len", "isinstance", "int", "bool", "range", "type", "hasattr", "str"}:
                return made(node, arguments, flat=True, tensor=False)
            if func.id in {"tuple", "list"} and len(arguments) == 1 and arguments[0].items:
                return replace(arguments[0], listed=func.id == "list")
        self.launch(node)
        return self.unknown(node, arguments)

    def shadowed(self, func: ast.expr) -> bool:
        """Whether the name at the head is a variable of the method."""
        while isinstance(func, ast.Attribute):
            func = func.value
        return isinstance(func, ast.Name) and func.id in self.env

    def arguments(self, node: ast.Call) -> list[Value]:
        return [self.value(a) for a in (*node.args, *(k.value for k in node.keywords))]

    def unknown(self, node: ast.AST, arguments: list[Value]) -> Value:
        """The result of a call that may read and write all that it gets."""
        reads = frozenset().union(*map(deep_reads, arguments))
        touched = frozenset().union(*map(deep_roots, arguments))
        for name, value in self.env.items():
            if deep_roots(value) & touched:
                self.env[name] = _touched(value, reads)
        return replace(UNKNOWN, reads=reads)

    def launch(self, node: ast.Call) -> None:
        """``kernel[grid](..)`` of Triton, or a function of this file that does so."""
        func = node.func
        name = func.id if isinstance(func, ast.Name) else ""
        if is_launch(node) or (name in self.launchers and name not in self.env):
            self.record("launch", node, UNKNOWN)

    def call_on_ctx(self, node: ast.Call, name: str) -> Value:
        together = self.tuple_of(list(node.args))
        items = together.items
        if name in {"save_for_backward", "mark_dirty", "mark_non_differentiable"}:
            self.record(name, node, together if items is None else Value(items=items), items or ())
            return NONE
        if name in {"set_materialize_grads", "save_for_forward"}:
            return NONE
        self.escapes = True
        return UNKNOWN

    def call_torch(self, node: ast.Call, dotted: str) -> Value:
        name = dotted.rpartition(".")[2]
        switch = SWITCHES.get(name)
        if switch is not None:
            self.own_graph |= switch
            return NUMBER
        arguments = self.arguments(node)
        if dotted.startswith("torch.distributed."):
            if name in ops.COLLECTIVES and arguments:
                self.changed(node, arguments[0], [])
                return UNKNOWN
            return self.unknown(node, arguments)
        if dotted == "torch.autograd.grad":
            if not any(k.arg in {"create_graph", None} for k in node.keywords) and arguments:
                outside = replace(UNKNOWN, slopes=deep_slopes(arguments[-1]))
                together = made(node, [*arguments, outside], tensor=False)
                return replace(self.cut(node, "torch.autograd.grad()", together), known=False)
            return self.unknown(node, arguments)
        if name in {"from_numpy", "as_tensor", "tensor", "asarray", "from_dlpack"}:
            together = made(node, arguments)
            lost = frozenset(t for t in together.reads if t.kind == "cut")
            return replace(together, slopes=lost)
        if name in {"Size", "finfo", "iinfo", "is_tensor", "numel", "is_grad_enabled"}:
            return made(node, arguments, flat=True, tensor=False)
        return self.operation(node, name, arguments, method=False)

    def call_method(self, node: ast.Call, func: ast.Attribute) -> Value:
        base = self.value(func.value)
        arguments = self.arguments(node)
        name = func.attr
        if not base.tensor:
            if base.items is not None and base.listed and name in {"append", "extend", "insert"}:
                self.forget(base, arguments)
                return NONE
            self.launch(node)
            return self.unknown(node, [base, *arguments])
        if name == "view":
            self.record("view", node, base)
        if name in ops.NUMBER or name in {"is_contiguous", "numel"}:
            self.record("asked", node, base)
            return replace(NUMBER, reads=base.reads, known=base.known)
        if name in ops.VALUE:
            return self.cut(
                node, f".{ops.VALUE[name]}", replace(base, tensor=False, level=Level.CAST)
            )
        return self.operation(node, name, [base, *arguments], method=True)

    def forget(self, base: Value, arguments: list[Value]) -> None:
        """A list that grows: its names hold something unknown."""
        for name, value in self.env.items():
            if value is base:
                reads = deep_reads(base).union(*map(deep_reads, arguments))
                self.env[name] = replace(UNKNOWN, reads=reads)

    def operation(self, node: ast.Call, name: str, arguments: list[Value], method: bool) -> Value:
        """A function of torch, or a method of a tensor."""
        first = arguments[0] if arguments else NUMBER
        out = next((k.value for k in node.keywords if k.arg == "out"), None)
        if out is not None:
            return self.changed(node, self.value(out), arguments, fresh=True)
        if any(k.arg == "inplace" and _constant(k.value) is True for k in node.keywords):
            return self.changed(node, first, arguments[1:])
        if ops.in_place(name):
            return self.changed(node, first, arguments[1:], name in {"zero_", "fill_", "copy_"})
        if name in {"detach", "clone"}:
            if name == "detach":
                return self.cut(node, ".detach()", alias(first, Level.ITSELF))
            return made(node, arguments)
        if name in ops.PAIRS and _is_pair(name, node, arguments, method):
            best = made(node, arguments)
            return Value(items=(best, made(node, arguments, flat=True)))
        if name in ops.FLAT:
            return replace(made(node, arguments, flat=True), void=name in ops.NOTHING)
        if name in ops.PIECES:
            return alias(replace(first, tensor=True), Level.VIEW)
        if name in ops.VIEW:
            return self.shared(first, arguments, Level.VIEW)
        if name in ops.CONTIGUOUS:
            return self.shared(first, arguments, Level.CONTIGUOUS)
        if name in ops.CAST and method:
            if _to_integer(node):
                return made(node, arguments, flat=True)
            return self.shared(first, arguments, Level.CAST)
        if name == "where" and len(node.args) == 3:
            _, *branches = arguments
            return replace(
                made(node, branches), reads=frozenset().union(*map(deep_reads, arguments))
            )
        if name in ops.SMOOTH or name in ops.PAIRS:
            together = made(node, arguments)
            return replace(together, void=_scaled(name) and first.void)
        return self.unknown(node, arguments)

    def shared(self, first: Value, arguments: list[Value], level: int) -> Value:
        reads = frozenset().union(*map(deep_reads, arguments))
        return replace(alias(first, level), reads=reads, tensor=True)

    def changed(self, node: ast.AST, base: Value, parts: list[Value], fresh: bool = False) -> Value:
        """A tensor changed in place, under each name that shares its memory."""
        self.record("changed", node, base, parts)
        together = made(node, parts, tensor=False)

        def after(value: Value) -> Value:
            if value.items is not None:
                return replace(value, items=tuple(map(after, value.items)))
            if not value.roots & base.roots:
                return value
            slopes = together.slopes if fresh and value == base else value.slopes | together.slopes
            return replace(
                value,
                slopes=slopes,
                reads=value.reads | together.reads,
                known=value.known and together.known,
                void=value.void and all(p.void for p in parts) and bool(parts),
            )

        if base.roots:
            self.env = {name: after(value) for name, value in self.env.items()}
        return after(base)

    def grad_mode(self, node: ast.expr) -> bool | None:
        """What a with statement sets grad mode to."""
        if isinstance(node, ast.Call):
            dotted = self.names.dotted(node.func)
            name = dotted.rpartition(".")[2]
            if dotted.startswith("torch.") and name in SWITCHES:
                return SWITCHES[name]
            if dotted.startswith("torch.") and name == "set_grad_enabled" and node.args:
                self.own_graph |= _constant(node.args[0]) is not False
                return _constant(node.args[0]) is not False
        return None


SAVED = Value(frozenset([Token("saved", -1)]), known=True)
"""``ctx.saved_tensors`` of which the number is not known."""


def is_launch(node: ast.Call) -> bool:
    """``kernel[grid](..)``: a grid is a tuple, a lambda or a name with grid in it."""
    if not isinstance(node.func, ast.Subscript):
        return False
    index = node.func.slice
    named = isinstance(index, ast.Name) and "grid" in index.id.lower()
    return named or isinstance(index, ast.Tuple | ast.Lambda)


def _touched(value: Value, reads: Tokens) -> Value:
    items = value.items and tuple(_touched(item, reads) for item in value.items)
    return replace(value, reads=value.reads | reads, known=False, void=value.none, items=items)


def _constant(node: ast.expr) -> object:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constant(node.operand)
        return -inner if isinstance(inner, int) else None
    return node.value if isinstance(node, ast.Constant) else None


def _is_count(node: ast.AST) -> bool:
    right = node.right if isinstance(node, ast.BinOp) else None
    return isinstance(right, ast.Constant) and isinstance(right.value, int)


def _picked(base: Value, index: ast.expr) -> Value | None:
    """An element of a tuple, or a part of it."""
    items = base.items or ()
    number = _constant(index)
    if isinstance(number, int) and -len(items) <= number < len(items):
        return items[number]
    if isinstance(index, ast.Slice) and index.step is None:
        ends = [None if e is None else _constant(e) for e in (index.lower, index.upper)]
        given = [
            e is None or isinstance(n, int)
            for e, n in zip((index.lower, index.upper), ends, strict=True)
        ]
        if all(given):
            return replace(base, items=items[ends[0] : ends[1]])  # type: ignore[misc]
    return None


def _basic(index: ast.expr) -> bool:
    """Whether an index makes a view: numbers, slices, None and the ellipsis."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        isinstance(p, ast.Slice) or isinstance(_constant(p), int) or isinstance(p, ast.Constant)
        for p in parts
    )


def _nothing(operator: ast.operator, a: Value, b: Value) -> bool:
    if isinstance(operator, ast.Mult):
        return (a.tensor and a.void) or (b.tensor and b.void)
    return isinstance(operator, ast.Add | ast.Sub) and a.void and b.void


def _scaled(name: str) -> bool:
    return name in {"mul", "neg", "sum", "clone", "div", "masked_fill"}


def _is_pair(name: str, node: ast.Call, arguments: list[Value], method: bool) -> bool:
    """Whether an extremum is (values, positions): along an axis, or one of sort and topk."""
    if name not in {"max", "min", "median", "nanmedian"}:
        return True
    if any(k.arg in {"dim", "keepdim", "axis"} for k in node.keywords):
        return True
    given = node.args[0 if method else 1 :]
    return bool(given) and isinstance(_constant(given[0]), int)


def _to_integer(node: ast.Call) -> bool:
    """Whether a cast names an integer or bool dtype."""
    parts = [*node.args, *(k.value for k in node.keywords)]
    names = {p.attr if isinstance(p, ast.Attribute) else getattr(p, "id", "") for p in parts}
    return bool(
        names & {"bool", "int", "long", "int8", "int16", "int32", "int64", "uint8", "short"}
    )

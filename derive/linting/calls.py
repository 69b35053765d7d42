"""Evaluate a call in a method, by the tables of `operations`."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from derive.linting import operations as ops
from derive.linting.values import (
    NONE,
    NUMBER,
    UNKNOWN,
    AliasLevel,
    State,
    Tokens,
    TrackedValue,
    alias,
    constant,
    deep_roots,
    deep_slopes,
    new_value,
    reads_of,
)

SWITCHES = {"no_grad": False, "inference_mode": False, "enable_grad": True}


@dataclass
class Calls(State):
    """Calls of torch, of methods and of ctx; any other call may read and write its arguments."""

    def call(self, node: ast.Call) -> TrackedValue:
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
                return new_value(node, arguments, flat=True, tensor=False)
            if func.id in {"tuple", "list"} and len(arguments) == 1 and arguments[0].items:
                return replace(arguments[0], listed=func.id == "list")
        self.launch(node, reads_of(arguments))
        return self.unknown(node, arguments)

    def shadowed(self, func: ast.expr) -> bool:
        """True if the leftmost name is a variable of the method."""
        while isinstance(func, ast.Attribute):
            func = func.value
        return isinstance(func, ast.Name) and func.id in self.env

    def arguments(self, node: ast.Call) -> list[TrackedValue]:
        return [self.value(a) for a in (*node.args, *(k.value for k in node.keywords))]

    def unknown(self, node: ast.AST, arguments: list[TrackedValue]) -> TrackedValue:
        """Return the result of a call that may read and write all its arguments."""
        reads = reads_of(arguments)
        touched = frozenset().union(*map(deep_roots, arguments))
        alike = (name for name, value in self.env.items() if deep_roots(value) & touched)
        self.env |= {name: _touched(self.env[name], reads) for name in alike}
        return replace(UNKNOWN, reads=reads)

    def launch(self, node: ast.Call, reads: Tokens) -> None:
        """Record a Triton launch ``kernel[grid](..)``, or a call of a launch or guard helper."""
        func = node.func
        name = func.id if isinstance(func, ast.Name) else ""
        if is_launch(node) or (name in self.launchers and name not in self.env):
            self.record("launch", node, replace(UNKNOWN, reads=reads))
        if name in self.guards and name not in self.env:
            self.record("guard", node, UNKNOWN)

    def call_on_ctx(self, node: ast.Call, name: str) -> TrackedValue:
        together = self.value(ast.Tuple(list(node.args), ast.Load()))
        items = together.items
        if name in {"save_for_backward", "mark_dirty", "mark_non_differentiable"}:
            for item in items or ():
                self.used_as_tensor(item)
            whole = together if items is None else TrackedValue(items=items)
            self.record(name, node, whole, items or ())
        elif name not in {"set_materialize_grads", "save_for_forward"}:
            self.escapes = True
            return UNKNOWN
        return NONE

    def call_torch(self, node: ast.Call, dotted: str) -> TrackedValue:
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
                together = new_value(node, [*arguments, outside], tensor=False)
                return replace(self.cut(node, "torch.autograd.grad()", together), known=False)
            return self.unknown(node, arguments)
        if name in {"from_numpy", "as_tensor", "tensor", "asarray", "from_dlpack"}:
            together = new_value(node, arguments)
            lost = frozenset(t for t in together.reads if t.kind == "cut")
            return replace(together, slopes=lost)
        if name == "is_grad_enabled":
            self.record("guard", node, UNKNOWN)
        if name in {"Size", "finfo", "iinfo", "is_tensor", "numel", "is_grad_enabled"}:
            return new_value(node, arguments, flat=True, tensor=False)
        return self.operation(node, name, arguments, method=False)

    def call_method(self, node: ast.Call, func: ast.Attribute) -> TrackedValue:
        base = self.value(func.value)
        arguments = self.arguments(node)
        name = func.attr
        if not base.tensor:
            if base.items is not None and base.listed and name in {"append", "extend", "insert"}:
                self.forget(base, arguments)
                return NONE
            if name in ops.TENSOR_METHODS:
                self.used_as_tensor(base)
            return self.unknown(node, [base, *arguments])
        if name == "view":
            self.record("view", node, base)
        if name in ops.NUMBER or name in {"is_contiguous", "numel"}:
            if name in {"is_contiguous", "stride"}:
                self.record("layout", node, base)
            return NUMBER
        if name in ops.VALUE:
            number = replace(base, tensor=False, level=AliasLevel.CAST)
            return self.cut(node, f".{name}()", number)
        return self.operation(node, name, [base, *arguments], method=True)

    def forget(self, base: TrackedValue, arguments: list[TrackedValue]) -> None:
        """Make the names of a list unknown, because the list grows."""
        unknown = replace(UNKNOWN, reads=reads_of([base, *arguments]))
        self.env |= {name: unknown for name, value in self.env.items() if value is base}

    def operation(
        self, node: ast.Call, name: str, arguments: list[TrackedValue], method: bool
    ) -> TrackedValue:
        """Return the result of a function of torch or a method of a tensor."""
        first = arguments[0] if arguments else NUMBER
        if name in ops.SMOOTH:
            self.used_as_tensor(first)
        out = next((k.value for k in node.keywords if k.arg == "out"), None)
        if out is not None:
            return self.changed(node, self.value(out), arguments, fresh=True)
        if any(k.arg == "inplace" and constant(k.value) is True for k in node.keywords):
            return self.changed(node, first, arguments[1:])
        if ops.in_place(name):
            return self.changed(node, first, arguments[1:], name in {"zero_", "fill_", "copy_"})
        if name == "detach":
            return self.cut(node, ".detach()", alias(first, AliasLevel.VIEW, node))
        if name == "clone":
            return new_value(node, arguments)
        if name in ops.PAIRS and _is_pair(name, node, arguments, method):
            best = new_value(node, arguments)
            return TrackedValue(items=(best, new_value(node, arguments, flat=True)))
        if name in ops.BLANK:
            return replace(new_value(node, []), void=name in ops.NOTHING)
        if name in ops.FLAT:
            return new_value(node, arguments, flat=True)
        if name in ops.PIECES:
            return alias(replace(first, tensor=True), AliasLevel.VIEW, node)
        if name in ops.VIEW:
            return self.shared(first, arguments, AliasLevel.VIEW, node)
        if name in ops.CONTIGUOUS:
            return self.shared(first, arguments, AliasLevel.CONTIGUOUS)
        if name in ops.CAST and method:
            if _to_integer(node):
                return new_value(node, arguments, flat=True)
            return self.shared(first, arguments, AliasLevel.CAST)
        if name == "where" and len(node.args) == 3:
            return replace(new_value(node, arguments[1:]), reads=reads_of(arguments))
        if name in ops.SMOOTH or name in ops.PAIRS:
            keeps_zeros = name in {"mul", "neg", "sum", "clone", "div", "masked_fill"}
            return replace(new_value(node, arguments), void=keeps_zeros and first.void)
        return self.unknown(node, arguments)

    def shared(
        self,
        first: TrackedValue,
        arguments: list[TrackedValue],
        level: int,
        node: ast.AST | None = None,
    ) -> TrackedValue:
        return replace(alias(first, level, node), reads=reads_of(arguments), tensor=True)

    def changed(
        self, node: ast.AST, base: TrackedValue, parts: list[TrackedValue], fresh: bool = False
    ) -> TrackedValue:
        """Record an in-place change, and update every name that shares the tensor's memory."""
        self.record("changed", node, base, parts)
        together = new_value(node, parts, tensor=False)
        zero = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "zero_"

        def after(value: TrackedValue) -> TrackedValue:
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
                void=zero or (value.void and bool(parts) and all(p.void for p in parts)),
            )

        if base.roots:
            self.env = {name: after(value) for name, value in self.env.items()}
        return after(base)

    def grad_mode(self, node: ast.expr) -> bool | None:
        """Return the grad mode that a with statement sets, None if it sets none."""
        if isinstance(node, ast.Call):
            dotted = self.names.dotted(node.func)
            name = dotted.rpartition(".")[2]
            if dotted.startswith("torch.") and name in SWITCHES:
                return SWITCHES[name]
            if dotted.startswith("torch.") and name == "set_grad_enabled" and node.args:
                self.own_graph |= constant(node.args[0]) is not False
                return constant(node.args[0]) is not False
        return None


def is_launch(node: ast.Call) -> bool:
    """True for ``kernel[grid](..)``: the grid is a tuple, a lambda or a name with grid in it."""
    if not isinstance(node.func, ast.Subscript):
        return False
    index = node.func.slice
    named = isinstance(index, ast.Name) and "grid" in index.id.lower()
    return named or isinstance(index, ast.Tuple | ast.Lambda)


def _touched(value: TrackedValue, reads: Tokens) -> TrackedValue:
    items = value.items and tuple(_touched(item, reads) for item in value.items)
    return replace(value, reads=value.reads | reads, known=False, void=value.none, items=items)


def _is_pair(name: str, node: ast.Call, arguments: list[TrackedValue], method: bool) -> bool:
    """True if an extremum returns (values, positions): along an axis, or by sort or topk."""
    if name not in {"max", "min", "median", "nanmedian"}:
        return True
    if any(k.arg in {"dim", "keepdim", "axis"} for k in node.keywords):
        return True
    given = node.args[0 if method else 1 :]
    return bool(given) and isinstance(constant(given[0]), int)


def _to_integer(node: ast.Call) -> bool:
    """True if a cast names an integer or bool dtype."""
    parts = [*node.args, *(k.value for k in node.keywords)]
    names = {p.attr if isinstance(p, ast.Attribute) else getattr(p, "id", "") for p in parts}
    return not names.isdisjoint("bool int long int8 int16 int32 int64 uint8 short".split())

"""A Function as rules see it: what forward keeps and returns, and what backward does with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from derive.linting import operations as ops
from derive.linting.evaluate import Event, is_launch
from derive.linting.flow import Flow
from derive.linting.functions import Function
from derive.linting.names import Names
from derive.linting.values import UNKNOWN, Level, Token, Value, deep_roots, join, of


@dataclass(frozen=True)
class Reading:
    """forward (and setup_context) and backward of one Function, followed statement by statement.

    ``keeping`` is the flow that has ctx: that of setup_context where there is one.
    """

    function: Function
    forward: Flow
    keeping: Flow
    backward: Flow

    @cached_property
    def outputs(self) -> list[tuple[Value, ...] | None]:
        """The outputs at each return of forward; None where their number is not known."""
        return [_several(event.value) for event in self.forward.of_kind("return")]

    @cached_property
    def gradients(self) -> list[tuple[Value, ...] | None]:
        """The gradients at each return of backward; None where their number is not known."""
        return [_several(event.value) for event in self.backward.of_kind("return")]

    @cached_property
    def differentiable(self) -> frozenset[int]:
        """The inputs for which some return has a gradient; none where the layout is not known."""
        if not self.gradients or None in self.gradients:
            return frozenset()
        several = [g for g in self.gradients if g is not None]
        return frozenset(n for g in several for n, value in enumerate(g) if not value.none)

    @property
    def saved(self) -> tuple[Value, ...]:
        """The values given to save_for_backward, where they are known."""
        return self.backward.saved or ()

    @cached_property
    def returned(self) -> list[Value]:
        """Every gradient that some return has, where that is more than None or zeros."""
        found = []
        for event in self.backward.of_kind("return"):
            items = _several(event.value)
            found += [v for v in items or (event.value,) if not v.void]
        return found

    @cached_property
    def results(self) -> list[Value]:
        """Every value that some return of forward has."""
        events = self.forward.of_kind("return")
        return [v for e in events for v in (_several(e.value) or (e.value,))]

    def smooth(self, value: Value) -> bool:
        """Whether a value of forward depends on an input that has a gradient."""
        return any(t.kind == "input" and t.key in self.differentiable for t in value.slopes) or any(
            t.kind == "output" for t in value.slopes
        )

    def kind(self, value: Value) -> str:
        """``input``, ``output`` or ``intermediate``; empty where that is not sure."""
        if not value.tensor or not value.roots or "other" in value.kinds():
            return ""
        if value.kinds() <= {"input", "output"}:
            if len(value.roots) == 1 and value.level == Level.ITSELF:
                return value.kinds().pop()
            return "intermediate" if value.level == Level.VIEW else ""
        if value.kinds() != {"made"}:
            return ""
        if not value.known and any(not v.roots and not v.known for v in self.results):
            return ""
        alike = [v for v in self.results if deep_roots(v) & value.roots]
        if not alike:
            return "intermediate"
        if value.level == Level.ITSELF and any(v.level == Level.ITSELF for v in alike):
            return "output"
        if max(value.level, *(v.level for v in alike)) == Level.VIEW:
            return "intermediate"
        return ""

    def kept_value(self, token: Token) -> Value | None:
        """The value of forward behind ``saved`` or ``kept``."""
        if token.kind == "saved" and isinstance(token.key, int):
            return self.saved[token.key] if 0 <= token.key < len(self.saved) else None
        if token.kind == "kept" and isinstance(token.key, str):
            return self.backward.kept.get(token.key)
        return None

    def is_save(self, statement: ast.stmt) -> bool:
        """Whether a statement is a call of save_for_backward."""
        return isinstance(statement, ast.Expr) and any(
            statement.value is event.node for event in self.keeping.of_kind("save_for_backward")
        )

    def in_test(self, node: ast.AST) -> bool:
        """Whether an expression of backward is, or is part of, a condition."""
        return any(
            node is part
            for one in ast.walk(self.function.backward.node)
            if isinstance(one, ast.If | ast.IfExp | ast.While)
            for part in ast.walk(one.test)
        )

    def through_data(self, node: ast.AST) -> bool:
        """Whether a change in place goes by ``.data``, around autograd on purpose."""
        return any(isinstance(n, ast.Attribute) and n.attr == "data" for n in ast.walk(node))

    def input_name(self, value: Value) -> str:
        """The parameter of forward that a value is."""
        for token in value.roots:
            if token.kind == "input" and isinstance(token.key, int):
                return self.function.inputs[token.key]
        return ""


def read(function: Function, names: Names, launchers: frozenset[str]) -> Reading:
    forward = Flow(names, "" if function.setup else function.forward.ctx, {}, graph=False)
    tensors = _tensors(function, names)
    inputs = {
        name: of(Token("input", n), name in tensors) for n, name in enumerate(function.inputs)
    }
    forward.env |= inputs
    if function.forward.star:
        forward.env[function.forward.star] = UNKNOWN
    forward.run(function.forward.node.body)
    keeping = forward
    if function.setup:
        keeping = Flow(names, function.setup.ctx, {}, graph=False)
        _, *taken = function.setup.parameters
        given = UNKNOWN if function.forward.star else Value(items=tuple(inputs.values()))
        for name, value in zip(taken, (given, _outputs(forward)), strict=False):
            keeping.env[name] = value
        keeping.run(function.setup.node.body)
    backward = Flow(names, function.backward.ctx, {}, launchers)
    backward.kept = keeping.kept
    backward.saved = _saved(keeping)
    for n, name in enumerate(function.cotangents):
        backward.env[name] = of(Token("cotangent", n))
    if function.backward.star:
        backward.env[function.backward.star] = _starred(function, forward)
    backward.run(function.backward.node.body)
    return Reading(function, forward, keeping, backward)


def _tensors(function: Function, names: Names) -> set[str]:
    """The inputs that forward uses as tensors."""
    found = set()
    arguments = function.forward.node.args
    for argument in (*arguments.posonlyargs, *arguments.args):
        if argument.annotation is not None and "Tensor" in ast.unparse(argument.annotation):
            found.add(argument.arg)
    for node in _nodes(function):
        if not isinstance(node, ast.Call):
            continue
        func = node.func
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            if func.attr in ops.TENSOR_METHODS:
                found.add(func.value.id)
            if func.attr == "save_for_backward":
                found |= {a.id for a in node.args if isinstance(a, ast.Name)}
        dotted = names.dotted(func)
        if dotted.startswith("torch.") and dotted.rpartition(".")[2] in ops.SMOOTH and node.args:
            if isinstance(node.args[0], ast.Name):
                found.add(node.args[0].id)
    return found & set(function.inputs)


def _nodes(function: Function) -> Iterator[ast.AST]:
    yield from ast.walk(function.forward.node)
    if function.setup:
        yield from ast.walk(function.setup.node)


def _several(value: Value) -> tuple[Value, ...] | None:
    """The elements of what is returned; a tensor or None is one."""
    if value.items is not None:
        return value.items
    return (value,) if value.tensor or value.none else None


def _outputs(forward: Flow) -> Value:
    """``output`` of setup_context."""
    several = [_several(event.value) for event in forward.of_kind("return")]
    if not several or several[0] is None or len({len(s or ()) for s in several}) != 1:
        return UNKNOWN
    items = tuple(of(Token("output", n), v.tensor) for n, v in enumerate(several[0]))
    value = forward.of_kind("return")[0].value
    return items[0] if value.items is None else Value(items=items)


def _saved(keeping: Flow) -> tuple[Value, ...] | None:
    """What save_for_backward gets, where one call has it all."""
    calls = keeping.of_kind("save_for_backward")
    if keeping.escapes or keeping.of_kind("lost") or not calls:
        return None
    items = [call.value.items for call in calls]
    if any(i is None for i in items) or len({len(i or ()) for i in items}) != 1:
        return None
    together = items[0] or ()
    for other in items[1:]:
        together = tuple(map(join, together, other or ()))
    return together


def _starred(function: Function, forward: Flow) -> Value:
    """The cotangents of ``*grads``."""
    several = {len(s) if s is not None else None for s in map(_several, _returns(forward))}
    (count,) = several if len(several) == 1 else (None,)
    first = len(function.cotangents)
    if count is not None and count >= first:
        return Value(items=tuple(of(Token("cotangent", n)) for n in range(first, count)))
    one = of(Token("cotangent", -1), tensor=False)
    return one


def _returns(forward: Flow) -> list[Value]:
    return [event.value for event in forward.of_kind("return")]


def launchers_of(tree: ast.Module) -> frozenset[str]:
    """The functions of a file that launch a kernel, in any number of steps."""
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    calls = {
        name: [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        for name, node in functions.items()
    }
    found = {name for name, several in calls.items() if any(map(is_launch, several))}
    while True:
        more = {
            name
            for name, several in calls.items()
            if name not in found
            and any(isinstance(c.func, ast.Name) and c.func.id in found for c in several)
        }
        if not more:
            return frozenset(found)
        found |= more


def first(events: list[Event]) -> Event | None:
    """The event that stands first in the file."""
    return min(events, key=lambda e: (e.node.lineno, e.node.col_offset), default=None)  # type: ignore[attr-defined]

"""A Function as rules see it: what forward saves and returns, and what backward does with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from derive.linting.calls import is_launch
from derive.linting.flow import Flow
from derive.linting.functions import FunctionClass, ModuleAliases
from derive.linting.values import UNKNOWN, Token, TrackedValue, deep_roots, join_values, token_value


@dataclass(frozen=True)
class FunctionReading:
    """forward (and setup_context) and backward of one Function, followed statement by statement.

    ``keeping`` is the flow that has ctx: that of setup_context where there is one.
    """

    function: FunctionClass
    forward: Flow
    keeping: Flow
    backward: Flow

    @cached_property
    def outputs(self) -> list[tuple[TrackedValue, ...] | None]:
        """The outputs at each return of forward; None if their number is unknown."""
        return _returns(self.forward)

    @cached_property
    def gradients(self) -> list[tuple[TrackedValue, ...] | None]:
        """The gradients at each return of backward; None if their number is unknown."""
        return _returns(self.backward)

    @cached_property
    def differentiable(self) -> frozenset[int]:
        """The inputs that get a gradient at some return; empty if the layout is unknown."""
        if None in self.gradients:
            return frozenset()
        return frozenset(n for g in self.gradients for n, v in enumerate(g or ()) if not v.none)

    @property
    def saved(self) -> tuple[TrackedValue, ...]:
        """The values given to save_for_backward, as far as they are known."""
        return self.backward.saved or ()

    @cached_property
    def returned(self) -> list[TrackedValue]:
        """The gradients at all returns of backward, except None and zeros."""
        events = zip(self.backward.of_kind("return"), self.gradients, strict=True)
        several = ((event.value,) if items is None else items for event, items in events)
        return [v for items in several for v in items if not v.void]

    @cached_property
    def results(self) -> list[TrackedValue]:
        """The values at all returns of forward."""
        events = zip(self.forward.of_kind("return"), self.outputs, strict=True)
        return [v for event, items in events for v in (items or (event.value,))]

    def smooth(self, value: TrackedValue) -> bool:
        """True if a value of forward depends on an input that has a gradient."""
        return any(
            t.kind == "output" or (t.kind == "input" and t.key in self.differentiable)
            for t in value.slopes
        )

    def kind(self, value: TrackedValue) -> str:
        """Return ``input``, ``output`` or ``intermediate``; '' if it is uncertain."""
        if not value.tensor or not value.roots or "other" in value.kinds():
            return ""
        own = value.identity
        if own is not None and own.kind in {"input", "output"}:
            return own.kind
        if own is not None and any(own == result.identity for result in self.results):
            return "output"
        if value.kinds() <= {"input", "output"}:
            return "intermediate" if own is not None else ""
        if value.kinds() != {"made"}:
            return ""
        if not value.known and any(not v.roots and not v.known for v in self.results):
            return ""
        alike = [v for v in self.results if deep_roots(v) & value.roots]
        unsure = own is None or any(v.identity is None for v in alike)
        return "" if alike and unsure else "intermediate"

    def kept_value(self, token: Token) -> TrackedValue | None:
        """Return the value in forward of a token ``saved`` or ``kept``."""
        match token:
            case Token("saved", int(n)) if 0 <= n < len(self.saved):
                return self.saved[n]
            case Token("kept", str(name)):
                return self.backward.kept.get(name)
        return None

    def in_test(self, node: ast.AST) -> bool:
        """True if an expression of backward is a condition, or part of one."""
        return any(
            node is part
            for one in ast.walk(self.function.backward.node)
            if isinstance(one, ast.If | ast.IfExp | ast.While)
            for part in ast.walk(one.test)
        )

    def input_name(self, value: TrackedValue) -> str:
        """Return the name of the input that a value is or shares memory with; '' if none."""
        numbers = (t.key for t in value.roots if t.kind == "input" and isinstance(t.key, int))
        return next((self.function.inputs[n] for n in numbers), "")


def read_function(
    function: FunctionClass, names: ModuleAliases, helpers: Helpers
) -> FunctionReading:
    """Follow the methods, and repeat while they show more inputs to be tensors."""
    tensors = _annotated(function)
    while True:
        known = frozenset(tensors)
        forward, keeping = _forward_flow(function, names, known)
        reading = FunctionReading(
            function, forward, keeping, _backward_flow(function, names, helpers, forward, keeping)
        )
        tensors |= forward.tensors | keeping.tensors
        if all(g is not None and len(g) == len(function.inputs) for g in reading.gradients):
            tensors |= reading.differentiable
        if tensors <= known:
            return reading


def _backward_flow(
    function: FunctionClass, names: ModuleAliases, helpers: Helpers, forward: Flow, keeping: Flow
) -> Flow:
    backward = Flow(names, function.backward.ctx, {}, helpers.launchers, helpers.guards)
    backward.kept = keeping.kept
    backward.saved = _saved_values(keeping)
    for n, name in enumerate(function.cotangents):
        backward.env[name] = token_value(Token("cotangent", n))
    if function.backward.star:
        backward.env[function.backward.star] = _starred(function, forward)
    backward.run(function.backward.node.body)
    return backward


def _forward_flow(
    function: FunctionClass, names: ModuleAliases, tensors: frozenset[int]
) -> tuple[Flow, Flow]:
    """The flow of forward, and that of setup_context where there is one."""
    ctx = "" if function.setup else function.forward.ctx
    forward = Flow(names, ctx, {}, graph=False)
    for n, name in enumerate(function.inputs):
        forward.env[name] = token_value(Token("input", n), n in tensors)
    inputs = tuple(forward.env.values())
    if function.forward.star:
        forward.env[function.forward.star] = UNKNOWN
    forward.run(function.forward.node.body)
    if not function.setup:
        return forward, forward
    keeping = Flow(names, function.setup.ctx, {}, graph=False)
    _, *taken = function.setup.parameters
    given = UNKNOWN if function.forward.star else TrackedValue(items=inputs)
    for name, value in zip(taken, (given, _setup_outputs(forward)), strict=False):
        keeping.env[name] = value
    keeping.run(function.setup.node.body)
    return forward, keeping


_TENSOR = re.compile(r"['\"]?(Optional\[)?(torch\.)?\w*Tensor\]?( \| None)?['\"]?")


def _annotated(function: FunctionClass) -> set[int]:
    """Return the inputs that are annotated as tensors, or as tensors or None."""
    arguments = function.forward.node.args
    several = [*arguments.posonlyargs, *arguments.args][-len(function.inputs) :]
    return {
        n
        for n, a in enumerate(several)
        if a.annotation is not None
        and _TENSOR.fullmatch(ast.unparse(a.annotation).replace("typing.", ""))
    }


def _returned_items(value: TrackedValue) -> tuple[TrackedValue, ...] | None:
    """Return the elements of a returned value; a tensor or None is a single element."""
    if value.items is not None:
        return value.items
    return (value,) if value.tensor or value.none else None


def _returns(flow: Flow) -> list[tuple[TrackedValue, ...] | None]:
    return [_returned_items(event.value) for event in flow.of_kind("return")]


def _setup_outputs(forward: Flow) -> TrackedValue:
    """Return the argument ``output`` of setup_context."""
    several = _returns(forward)
    if not several or several[0] is None or len({len(s or ()) for s in several}) != 1:
        return UNKNOWN
    items = tuple(token_value(Token("output", n), v.tensor) for n, v in enumerate(several[0]))
    value = forward.of_kind("return")[0].value
    return items[0] if value.items is None else TrackedValue(items=items)


def _saved_values(keeping: Flow) -> tuple[TrackedValue, ...] | None:
    """Return the values given to save_for_backward; None if they are unknown."""
    calls = keeping.of_kind("save_for_backward")
    if keeping.escapes or keeping.of_kind("lost") or not calls:
        return None
    items = [call.value.items for call in calls]
    if any(i is None for i in items) or len({len(i or ()) for i in items}) != 1:
        return None
    together = items[0] or ()
    for other in items[1:]:
        together = tuple(map(join_values, together, other or ()))
    return together


def _starred(function: FunctionClass, forward: Flow) -> TrackedValue:
    """Return the cotangents in ``*grads``."""
    several = {None if s is None else len(s) for s in _returns(forward)}
    (count,) = several if len(several) == 1 else (None,)
    first = len(function.cotangents)
    if count is not None and count >= first:
        tokens = (Token("cotangent", n) for n in range(first, count))
        return TrackedValue(items=tuple(map(token_value, tokens)))
    return token_value(Token("cotangent", -1), tensor=False)


@dataclass(frozen=True)
class Helpers:
    """Functions of a file that launch a kernel, and those that check whether grad mode is on."""

    launchers: frozenset[str]
    guards: frozenset[str]


def helpers_of(tree: ast.Module) -> Helpers:
    def having(test: Callable[[ast.Call], bool]) -> set[str]:
        return {name for name, several in calls.items() if any(map(test, several))}

    calls = {
        node.name: [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    guards = having(lambda c: ast.unparse(c.func).endswith("is_grad_enabled"))
    launchers = having(is_launch)

    def calls_one(call: ast.Call) -> bool:
        return isinstance(call.func, ast.Name) and call.func.id in launchers

    while more := having(calls_one) - launchers:
        launchers |= more
    return Helpers(frozenset(launchers), frozenset(guards))


# ------------------------------------------------------------------------------------------ finding
# A finding: a place in a file, the code of a rule and a sentence.


class Finding(NamedTuple):
    """The report of a rule; lines and columns count from 1."""

    line: int
    column: int
    code: str
    message: str
    function: str = ""


class At(NamedTuple):
    """A node that a rule reports, with the message."""

    node: ast.AST
    message: str


def listed(names: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``, in backquotes."""
    quoted = [f"`{name}`" for name in dict.fromkeys(names)]
    return " and ".join(", ".join(quoted).rsplit(", ", 1))

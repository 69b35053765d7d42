"""Writes into a part of a tensor in place, and their effect on all views of its memory.

    q[:, 0] = a        is q[n,c] = where(c == 0, a[n], q[n,c])
    q[:, 2:4] += d     is q[n,c] = where(c >= 2 and c < 4, q[n,c] + d[n,c-2], q[n,c])

A view is a chain of nodes over its base tensor. A write gives the part another value. The value is
put into the node below, and so on down to the base. Then every other view is read again.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sympy
import torch
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from derive.errors import DeriveError
from derive.tracing.choices import conjunction, merged_where, without_dead_branches
from derive.tracing.context import OPERATIONS, Computed, Context
from derive.tracing.graph import SELECTIONS, Graph, held_tensor, is_write, name_of, storage_of
from derive.tracing.refusals import unread
from derive.tracing.sizes import SymbolicSizes
from derive.tracing.values import (
    Atom,
    Position,
    TracedNode,
    TracedParameter,
    TracedValue,
    apply,
    substituted,
)

_ARGUMENT = (
    "the function changes an argument, parameter or buffer in place; change a copy, x.clone(), "
    "or make the change outside"
)
_NOT_READ = (
    "the function writes into a part of a tensor in place; use torch.where, torch.cat or a sum"
)
_OVER = ("copy_", "fill_", "zero_")
"""Operations that do not read the values that they overwrite."""


class Memory:
    """Nodes of a graph by the memory that they share."""

    def __init__(self, graph: Any, sizes: SymbolicSizes) -> None:
        self.sizes = sizes
        self.order = {node: n for n, node in enumerate(graph.nodes)}
        self._groups: dict[int, list[Any]] = {}
        for node in self.order:
            if (held := storage_of(node)) is not None:
                self._groups.setdefault(held, []).append(node)

    def group(self, node: Any) -> list[Any]:
        """Return all nodes that share memory with a node."""
        return self._groups.get(storage_of(node) or 0, [])

    def check(self, node: Any) -> None:
        """Check that a node writes into a tensor that the function made."""
        if is_write(node) and self.chain(node.args[0])[-1].op != "call_function":
            raise DeriveError(_ARGUMENT, kind="torch-state")

    def is_view_without_graph(self, node: Any) -> bool:
        """True if the node is a view made under no_grad.

        Its value keeps its gradient, so that a write into it keeps the gradient of its base.
        """
        while is_write(node):
            node = node.args[0]
        if node.op != "call_function" or not node.meta.get("held"):
            return False
        if self._before(node) is not None:
            return True
        parts = _storage_of_parts(node)
        return parts is not None and parts in map(storage_of, node.all_input_nodes)

    def has_gradient(self, node: Any) -> bool:
        """False if the value of a node, before writes, is computed under no_grad."""
        while is_write(node) or self.is_view_without_graph(node):
            node = node.args[0]
        return node.op != "call_function" or not node.meta.get("held")

    def is_idle(self, node: Any) -> bool:
        """True if a copy writes a part onto itself, as Python does after q[0] += 1."""
        if name_of(node.target) != "copy_" or storage_of(node.args[1]) != storage_of(node):
            return False
        here, there = (x.meta["val"] for x in node.args[:2])

        def said(x: Any) -> list[Any]:
            return [self.sizes.of(n) for n in (x.storage_offset(), *x.shape, *x.stride())]

        return said(here) == said(there)

    def chain(self, node: Any) -> list[Any]:
        """Return a node, the node that it is a view of, and so on to the base."""
        found = [node]
        while (before := self._before(found[-1])) is not None:
            found.append(before)
        return found

    def _before(self, node: Any) -> Any:
        if node.op != "call_function":
            return None
        source = node.args[0] if node.target is operator.getitem else node
        held = storage_of(node)
        return next((x for x in source.all_input_nodes if storage_of(x) == held), None)

    def read_later(self, group: list[Any], node: Any) -> list[Any]:
        """Return the nodes of a group that are read after a node, with their bases."""
        found = {
            x
            for other in group
            if any(self.order[u] > self.order[node] for u in other.users)
            for x in self.chain(other)
        }
        return [x for x in group if x in found]

    def reads_of(self, group: list[Any], node: Any) -> int:
        """Return how often written memory is read before the next write."""
        count, own = 0, set(group)
        for later, n in self.order.items():
            reads = sum(x in own for x in later.all_input_nodes)
            if n <= self.order[node] or not reads:
                continue
            if is_write(later) and later.args[0] in own:
                if self.is_idle(later):
                    continue
                return count + reads + (name_of(later.target) not in _OVER)
            count += (
                0 if later in own or _storage_of_parts(later) in map(storage_of, group) else reads
            )
        return count


def put_into(
    context: Context,
    old: TracedValue,
    value: TracedValue,
    nodes: tuple[Any, Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> TracedValue:
    """Return ``old`` with a value in the place of a view of it.

    ``nodes`` are the view and the node of ``old``; ``args`` and ``named``, the view's arguments.
    """
    child, parent = nodes
    name = name_of(child.target)
    if old.kind != value.kind:
        if value.kind == "float":
            raise unread("a write of floats into an integer tensor is not supported")
        value = replace(value, kind=old.kind)
    if is_write(child) or name in ("alias", "contiguous", "to", "view_as", "_to_copy"):
        return value
    if child.target is operator.getitem:
        return _put_one_of_many(context, child, old, value)
    rank = len(old.axes)
    match name:
        case "select":
            dim = args[1] % rank
            size = old.shape[dim]
            at = sympy.sympify(args[2])
            return _at(context, old, dim, size + at if context.sizes.hint(at) < 0 else at, value)
        case "slice" | "narrow":
            dim = (args[1] if len(args) > 1 else 0) % rank
            first = sympy.sympify(args[2] if len(args) > 2 and args[2] is not None else 0)
            first = old.shape[dim] + first if context.sizes.hint(first) < 0 else first
            step = args[4] if len(args) > 4 else named.get("step", 1)
            return _among(context, old, dim, context.sizes.plain(first), step, value)
        case "permute":
            order = [d % rank for d in args[1]]
            return replace(value, axes=tuple(value.axes[order.index(n)] for n in range(rank)))
        case "transpose" | "swapaxes" | "swapdims" | "t" | "numpy_T" | "mT":
            made: TracedValue = OPERATIONS[name](context, value, *args[1:], **named)
            return made
        case "view" | "reshape" | "unsqueeze" | "squeeze" | "flatten" | "unflatten":
            return context.regrouped(value, context.shape(parent))
        case "diagonal":
            return _on_diagonal(context, old, value, *args[1:], **named)
    raise unread(_NOT_READ)


def _put_one_of_many(
    context: Context, child: Any, old: TracedValue, value: TracedValue
) -> TracedValue:
    """Put a value in the place of one of the results of chunk, split or unbind."""
    source, which = child.args
    name = name_of(source.target)
    at = 1 if name == "unbind" else 2
    dim = source.kwargs.get("dim", source.args[at] if len(source.args) > at else 0)
    dim = dim % len(old.axes)
    if name == "unbind":
        return _at(context, old, dim, sympy.Integer(which), value)
    if name not in ("chunk", "split", "split_with_sizes", "tensor_split"):
        raise unread(_NOT_READ)
    dim = (dim if name != "split" or len(source.args) > 2 or source.kwargs else 0) % len(old.axes)
    first = sum(context.sizes.of(x.shape[dim]) for x in source.meta["val"][:which])
    return _among(context, old, dim, context.sizes.plain(sympy.sympify(first)), 1, value)


def _at(context: Context, old: TracedValue, dim: int, at: Any, value: TracedValue) -> TracedValue:
    wide = value.with_unit_axis(dim)
    if not old.axes[dim]:
        return wide
    new = Atom.new(old.shape[dim])
    return _where(context, old, dim, (new,), apply("==", Position(new), at), wide)


def _among(
    context: Context, old: TracedValue, dim: int, first: Any, step: Any, value: TracedValue
) -> TracedValue:
    whole, length = old.shape[dim], value.shape[dim]
    sizes = context.sizes
    if sizes.equal(whole, length) and step == 1:
        return value
    if step != 1 and _are_equal_parts(context, whole, length, first, step):
        # x[:, 1::2] is one column of x viewed as rows of 2.
        row, column = Atom.new(length), Atom.new(step)
        wide = value.with_axis(dim, (*value.axes[dim], Atom.new(step)))
        test = apply("==", Position(column), first)
        return _where(context, old, dim, (row, column), test, wide)
    if length == 1:
        return _at(context, old, dim, first, value.without_axis(dim))
    value, atom = context.single(value, dim)
    new = Atom.new(whole)
    at: TracedNode = Position(new)
    tests = []
    if first == 0 and step == 1 and not sizes.equal(whole, length):
        # A bare index would imply that the axis of the part has its size.
        at = at + TracedParameter(context.start())
    if first != 0:
        at = at - first
        tests.append(Position(new) >= first)
    if step != 1:
        tests.append(apply("==", at % step, 0))
        at = at // step
    elif not sizes.equal(whole, first + length):
        tests.append(Position(new) < sizes.plain(first + length))
    inside = conjunction(tests)
    assert inside is not None
    moved = value.with_axis(dim, (new,)).at({atom: at})
    return _where(context, old, dim, (new,), inside, moved)


def _are_equal_parts(context: Context, whole: Any, length: Any, first: Any, step: Any) -> bool:
    """True if an axis is ``length`` rows of ``step`` positions."""
    sizes = context.sizes
    if sizes.hint(length) * step != sizes.hint(whole) or not first.is_Integer or first >= step:
        return False
    pair = (whole, sympy.sympify(step))
    return not whole.free_symbols or pair in sizes.divided or sizes.equal(length * step, whole)


def _on_diagonal(
    context: Context,
    old: TracedValue,
    value: TracedValue,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
) -> TracedValue:
    """where(row + offset == column, value[row], old)."""
    rank = len(old.axes)
    dim1, dim2 = dim1 % rank, dim2 % rank
    if not old.axes[dim1] or not old.axes[dim2]:
        raise unread(_NOT_READ)
    value, atom = context.single(value, rank - 2)
    row, column = (Atom.new(old.shape[d]) for d in (dim1, dim2))
    place, own = (dim1, row) if offset >= 0 else (dim2, column)
    known = {dim1: (), dim2: (), place: (own,)}
    rest = iter(value.axes[:-1])
    axes = tuple(known[n] if n in known else next(rest) for n in range(rank))
    moved = replace(value, axes=axes, node=substituted(value.node, {atom: Position(own)}))
    edge: TracedNode = Position(row)
    if offset:
        edge = edge + offset
    around = tuple({dim1: (row,), dim2: (column,)}.get(n, ()) for n in range(rank))
    test = TracedValue(around, apply("==", edge, Position(column)), "bool")
    return _chosen(context, test, moved, context.with_one_index(old, dim1, dim2))


def _where(
    context: Context, old: TracedValue, dim: int, axis: Any, test: TracedNode, value: TracedValue
) -> TracedValue:
    around = tuple(axis if n == dim else () for n in range(len(old.axes)))
    if len(axis) == 1:
        old = context.with_one_index(old, dim)
    return _chosen(context, TracedValue(around, test, "bool"), value, old)


def _chosen(
    context: Context, test: TracedValue, value: TracedValue, old: TracedValue
) -> TracedValue:
    merged = partial(merged_where, context.sizes)
    made = context.elementwise(merged, test, value, old, kind=old.kind)
    return replace(made, node=without_dead_branches(made.node, context.sizes))


def merge_masks(traced: Graph) -> None:
    """Let all selections by masks that are computed alike be by the first, where one has a name."""
    graph = traced.graph
    numbers, written = dict[Any, Any](), Counter[int | None]()
    known, masks = dict[Any, Any](), dict[Any, Any]()
    for node in graph.nodes:
        key: Any = node
        if is_write(node):
            written[storage_of(node)] += 1
        elif node.op == "call_function":
            args = map_arg((node.args, node.kwargs), lambda n: numbers[n])
            random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            versions = (written[storage_of(n)] for n in node.all_input_nodes)
            key = node if random else (node.target, str(args), *versions)
        numbers[node] = known.setdefault(key, node)
        if getattr(node.meta.get("val"), "dtype", None) == torch.bool:
            masks[node] = numbers[node]
    if any(written[storage_of(n)] for n in masks):
        return
    places = ((masks[n], traced.places.get(n.name), n.users) for n in masks)
    named = {
        first for first, place, users in places if (place and place.variable) or len(users) > 1
    }
    for node in graph.nodes:
        if name_of(node.target).removesuffix("_") in SELECTIONS:
            node.args = map_arg(node.args, lambda n: masks[n] if masks.get(n) in named else n)


def fold_constants(traced: Graph) -> None:
    """Compute what is made of tensors of numbers alone, and has no more elements than these.

    What the graph writes into, also through a view, is not of numbers alone.
    """
    graph, module = traced.graph, traced.graph.owning_module
    written = {storage_of(n.args[0]) for n in graph.nodes if is_write(n)}
    held: dict[Any, Any] = {}
    for node in [*graph.nodes]:
        if node.op == "get_attr":
            x = held_tensor(node)
            if isinstance(x, torch.Tensor) and not hasattr(x, "fake_mode") and not x.requires_grad:
                held[node] = x
        elif node.op == "call_function" and storage_of(node) not in written:
            read = node.all_input_nodes
            known = bool(read) or name_of(node.target) in _TRIANGLES
            random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            if known and not random and not is_write(node) and held.keys() >= {*read}:
                args, named = map_arg(node.args, held.get), map_arg(node.kwargs, held.get)
                made = node.target(*args, **named)
                most = max((x.numel() for n in read for x in tree_leaves(held[n])), default=_FEW)
                if all(x.numel() <= most for x in tree_leaves(made)):
                    held[node] = made
    for node, made in held.items():
        if node.op != "get_attr" and isinstance(made, torch.Tensor):
            with graph.inserting_before(node):
                module.register_buffer(f"_folded_{node.name}", made.detach().clone())
                new = graph.get_attr(f"_folded_{node.name}")
            new.meta = {"val": node.meta.get("val")}
            node.replace_all_uses_with(new)
    for node in reversed([*held]):
        if not node.users:
            graph.erase_node(node)


_TRIANGLES = ("triu_indices", "tril_indices")
_FEW = 64
"""The elements of positions that are computed of numbers."""


def _storage_of_parts(node: Any) -> int | None:
    made = node.meta.get("val")
    if isinstance(made, tuple | list) and made and hasattr(made[0], "untyped_storage"):
        return int(made[0].untyped_storage()._cdata)
    return None


# -------------------------------------------------------------------- computed inputs


@dataclass(frozen=True)
class ComputedInputs:
    """Inputs without gradient that torch computes in each call, by a part of the traced graph."""

    names: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """The tensors that they are computed from."""
    module: Any = None
    unread: DeriveError | None = None
    """Why the first of them has no reading."""

    def added(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the tensors of a call, and those that are computed from them."""
        if self.module is None:
            return tensors
        with torch.no_grad():
            found = self.module(*(tensors[n] for n in self.arguments))
        found = [t.long() if t.dtype is torch.int32 else t for t in found]
        return {**tensors, **dict(zip(self.names, found, strict=True))}

    def said(self) -> Any:
        """Return the code of the computation, and its constants."""
        held = {} if self.module is None else dict(self.module.named_buffers())
        return getattr(self.module, "code", ""), {n: t.tolist() for n, t in held.items()}


def computed_inputs(graph: Graph, results: Mapping[str, Computed]) -> ComputedInputs:
    """Return the computation of these results, with the writes that it depends on."""
    if not results:
        return ComputedInputs()
    wanted, read = {r.node for r in results.values()}, set[int | None]()
    for node in reversed(graph.graph.nodes):
        if node in wanted or (is_write(node) and storage_of(node) in read):
            wanted |= {node, *node.all_input_nodes}
            read |= {*map(storage_of, node.all_input_nodes)} - {None}
    made, copies, outputs = torch.fx.Graph(), dict[Any, Any](), dict[str, Any]()
    for node in graph.graph.nodes:
        if node not in wanted and name_of(node.target) not in ("_enter_autocast", "_exit_autocast"):
            continue
        own = copies[node] = made.node_copy(node, copies.__getitem__)
        own.meta = {}
        for name, r in results.items():
            if r.node is node:
                if r.part is not None:
                    own = made.call_function(operator.getitem, (own, r.part))
                # A later write may change the result itself.
                outputs[name] = made.call_method("clone", (own,))
    made.output(tuple(outputs[name] for name in results))
    pairs = zip(graph.inputs, graph.graph.nodes, strict=False)
    arguments = tuple(name for name, holder in pairs if holder in wanted)
    module = torch.fx.GraphModule(graph.graph.owning_module, made)
    return ComputedInputs(tuple(results), arguments, module, next(iter(results.values())).unread)

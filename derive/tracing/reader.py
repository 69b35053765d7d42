"""Read the nodes of a graph as values, one after another; named values are equations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing import masks, ragged
from derive.tracing.axes import Axes, with_finite_branch
from derive.tracing.constants import written_out
from derive.tracing.graph import UNREAD, Graph, SourceStatement, unused
from derive.tracing.infinite_branches import Outward, infinite_choice, leaves_out
from derive.tracing.registry import OPERATIONS, takes_elements
from derive.tracing.sizes import SymbolicSizes
from derive.tracing.unsupported import COMPLEX, NO_READING, advice, is_complex, is_refused
from derive.tracing.value_names import fresh_name, is_simple, value_key
from derive.tracing.values import (
    Axis,
    Joined,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedValue,
    apply,
    joined,
    position_map,
    substituted,
    walk,
    without_gradient,
)
from derive.tracing.writes import Writes, is_write, name_of


@dataclass(frozen=True)
class TracedEquation:
    """name[axes] = body, with the statement that it comes from."""

    name: str
    axes: tuple[Axis, ...]
    body: TracedNode
    kind: str = "float"
    place: SourceStatement | None = None


class Reader(Axes):
    """The equations so far, and the value of each node."""

    def __init__(self, graph: Graph, inputs: dict[str, TracedValue], taken: set[str]) -> None:
        self.graph = graph
        self.sizes = SymbolicSizes(graph.shapes)
        self.inputs = inputs
        self.taken = taken
        self.equations: list[TracedEquation] = []
        self.known: dict[Any, Any] = {}
        self.node: Any = None
        self.place: SourceStatement | None = None
        self._said: dict[tuple[Any, ...], str] = {}
        self._is_whole = bool(inputs)
        """True for the user's function, False for the decomposition of an operation."""
        self.starts: list[str] = []
        self.lengths: dict[Any, list[ragged.Length]] = {}
        """The pieces of an axis, by torch's symbol for its size."""
        self.piece = 0
        self.writes = Writes(self)
        self.outward = Outward()

    # ---------------------------------------------------------------- nodes

    def read(self) -> Any:
        """Return the outputs of the graph, tensors as values."""
        given = iter(self.inputs.values())
        last, skipped = self._last_of_statements(), unused(self.graph.graph)
        for node in self.graph.graph.nodes:
            if node in skipped:
                continue
            self.node, self.place = node, self.graph.places.get(node.name, self.place)
            if node.op == "placeholder":
                self.known[node] = next(given)
            elif node.op == "get_attr":
                self.known[node] = self._constant(node)
            elif node.op == "call_function":
                made = self._called(node)
                name = self.place.variable if node in last and self.place else None
                self.known[node] = made = self._kept(node, made, name)
                self._put(node, made)
            elif node.op == "output":
                return self.given(node.args[0])
        raise DeriveError("the function returns nothing")

    def _last_of_statements(self) -> set[Any]:
        """The last node of each statement."""
        found: dict[tuple[str, int, str | None], Any] = {}
        for node in self.graph.graph.nodes:
            place = self.graph.places.get(node.name)
            if place is not None and node.op == "call_function":
                found[place.file, place.line, place.variable] = node
        return set(found.values())

    def _put(self, node: Any, made: Any) -> None:
        """Apply a node's write to all values that share memory with its result."""
        try:
            self.writes.written(node, made)
        except DeriveError as error:
            raise self.error(str(error)) from error

    def again(self, node: Any, *instead: TracedValue) -> Any:
        """Evaluate a node again, of its arguments' current values or of another first one."""
        args, kwargs = self.given(node.args), self.given(node.kwargs)
        if node.target is operator.getitem:
            return args[0][args[1]]
        return OPERATIONS[name_of(node.target)](self, *instead, *args[len(instead) :], **kwargs)

    def given(self, x: Any) -> Any:
        """Return the arguments of a node, with nodes replaced by their values."""
        import torch.fx

        if isinstance(x, torch.fx.Node):
            known = self.known[x]
            if self.writes.is_view_without_graph(x) and not self.node.meta.get("held"):
                return without_gradient(known)
            return known
        if isinstance(x, tuple | list):
            return (
                type(x)(self.given(e) for e in x)
                if isinstance(x, list)
                else tuple(self.given(e) for e in x)
            )
        if isinstance(x, dict):
            return {k: self.given(e) for k, e in x.items()}
        if isinstance(x, slice):
            return slice(*(self.given(e) for e in (x.start, x.stop, x.step)))
        return x

    def _called(self, node: Any) -> Any:
        args, kwargs = self.given(node.args), self.given(node.kwargs)
        target = node.target
        if target is operator.getitem:
            return args[0][args[1]]
        name = name_of(target)
        if name in ("_set_grad_enabled", "_enter_autocast", "_exit_autocast"):
            # Nodes under no_grad are marked; autocast only casts between floating-point dtypes.
            return None
        if name in ("size", "sym_size") and isinstance(node.meta.get("val"), tuple | list):
            return [self.sizes.of(n) for n in node.meta["val"]]
        if hasattr(node.meta.get("val"), "node"):
            # A size, or a number computed from sizes.
            return self.sizes.of(node.meta["val"])
        f = OPERATIONS.get(name)
        args, kwargs = self._with_numbers(node, args, kwargs)
        try:
            self.writes.allowed(node, self._is_whole)
            if is_complex(node.meta.get("val")):
                raise DeriveError(COMPLEX)
            if f is None:
                return self._taken_apart(node)
            if ragged.has_pieces(self, node, _flat_arguments([args, kwargs])):
                return ragged.by_pieces(self, f, node, args, kwargs)
            if not takes_elements(f) and any(
                masks.of_mask(x) for x in _flat_arguments([args, kwargs])
            ):
                raise DeriveError(masks.MANY)
            made = f(self, *args, **kwargs)
            self._check(node, made)
            if node.meta.get("held") and is_write(node) and isinstance(made, TracedValue):
                made = self._straight_through(args[0], without_gradient(made))
            elif node.meta.get("held") and not self.writes.is_view_without_graph(node):
                made = without_gradient(made)
        except DeriveError as error:
            raise self.error(str(error)) from error
        except Exception as error:
            raise self.error(f"{name} with these arguments is not supported: {error}") from error
        return made

    def _with_numbers(
        self, node: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the arguments, with numbers made of sizes as expressions valid for all sizes."""
        schema = getattr(node.target, "_schema", None)
        kinds = {a.name: str(a.type) for a in schema.arguments} if schema is not None else {}
        if "Tensor" not in kinds.values() and "fill_value" not in kinds:
            # As in arange, the number is the size of an axis.
            return args, kwargs

        def of(known: Any, own: Any, kind: str | None) -> Any:
            value = getattr(own, "meta", {}).get("val")
            is_number = kind in ("number", "Tensor") and hasattr(value, "node")
            return self.sizes.number(value, *self._sizes_of_axes()) if is_number else known

        positional = (
            of(*each) for each in zip_longest(args, node.args, [*kinds.values()][: len(args)])
        )
        return tuple(positional), {
            k: of(x, node.kwargs[k], kinds.get(k)) for k, x in kwargs.items()
        }

    def _sizes_of_axes(self) -> tuple[list[sympy.Expr], list[sympy.Expr]]:
        """Return (the sizes of parts of composite axes, the sizes of other axes)."""
        values = [(e.axes, e.body) for e in self.equations]
        values += [(v.axes, v.node) for v in self.known.values() if isinstance(v, TracedValue)]
        axes = [[a.size for a in axis] for own, _ in values for axis in own]
        joints = (x for _, node in values for x in walk(node) if isinstance(x, Joined))
        axes += [list(x.sizes) for x in joints]
        parts = [n for sizes in axes if len(sizes) > 1 for n in sizes]
        return parts, [n for sizes in axes if len(sizes) == 1 for n in sizes]

    def _straight_through(self, old: TracedValue, new: TracedValue) -> TracedValue:
        """Return a value written under no_grad, with the gradient of the old one.

        It is old + detach(new - old).
        """
        match new.node:
            case TracedApply("detach", (value,)) | (TracedNumber() as value):
                pass
            case _:
                return new
        if new.kind != "float" or isinstance(old.node, TracedNumber) or value == old.node:
            return new
        old = self.simple(old)

        def f(a: TracedNode, b: TracedNode) -> TracedNode:
            return apply("+", a, TracedApply("detach", (apply("-", b, a),)))

        return self.elementwise(f, old, replace(new, node=value))

    @property
    def called(self) -> str:
        """Name of the current operation."""
        return name_of(self.node.target)

    def error(self, text: str) -> DeriveError:
        """Return an error that names the current statement."""
        if self.place is None or text.startswith(UNREAD):
            return DeriveError(text)
        return DeriveError(f"{UNREAD} ({self.place}): {text}")

    def _check(self, node: Any, made: Any) -> None:
        """Check that the axes have the sizes that torch has."""
        value = node.meta.get("val")
        if isinstance(made, TracedValue) and hasattr(value, "shape") and not masks.of_mask(made):
            want = [self.sizes.of(n) for n in value.shape]
            have = [sympy.prod([a.size for a in axis]) for axis in made.axes]
            same = len(want) == len(have) and all(
                self.sizes.hint(a) == self.sizes.hint(b) for a, b in zip(want, have, strict=True)
            )
            if not same:
                raise DeriveError(
                    f"{name_of(node.target)}: the spec has the axes {have}, and torch has {want}"
                )

    def _taken_apart(self, node: Any) -> Any:
        """Read an operation without a reading of its own by torch's decomposition of it."""
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        name = name_of(node.target)
        import torch.fx
        from torch.utils._pytree import tree_flatten, tree_unflatten

        flat, spec = tree_flatten((node.args, node.kwargs))
        places = [n for n, x in enumerate(flat) if isinstance(x, torch.fx.Node)]
        fakes = [flat[n].meta.get("val") for n in places]

        def call(*given: Any) -> Any:
            every = list(flat)
            for n, x in zip(places, given, strict=True):
                every[n] = x
            args, kwargs = tree_unflatten(every, spec)
            return node.target(*args, **kwargs)

        if is_refused(name):
            raise DeriveError(f"{name} is not supported: {advice(name)}")
        try:
            mode = next(f.fake_mode for f in fakes if hasattr(f, "fake_mode"))
            table = _decompositions()
            with mode:
                module = make_fx(call, tracing_mode="real", decomposition_table=table)(*fakes)
        except Exception as error:
            raise DeriveError(f"{name} is not supported: {advice(name) or error}") from error
        inner = [n for n in module.graph.nodes if n.op == "call_function"]
        if any(name_of(n.target) == name for n in inner):
            raise DeriveError(f"{name} is not supported: {advice(name) or NO_READING}")
        graph = replace(self.graph, graph=module.graph, places={})
        reader = Reader(graph, {}, self.taken)
        reader.equations, reader.place, reader._said = self.equations, self.place, self._said
        reader.sizes, reader.starts = self.sizes, self.starts
        reader.outward = self.outward
        reader.inputs = {str(n): self.known[flat[n]] for n in places}
        return reader.read()

    def _constant(self, node: Any) -> Any:
        ragged = getattr(node.graph.owning_module, node.target, None)
        if ragged is not None and not hasattr(ragged, "fake_mode"):
            return written_out(ragged, node.target)
        raise DeriveError(
            f"the function uses a tensor that is not an argument ({node.target}); pass it as an "
            "argument, or make it a parameter or buffer of a module"
        )

    # ---------------------------------------------------------------- names

    def _kept(self, node: Any, made: Any, name: str | None) -> Any:
        """Return the value, named if it is a variable or used more than once."""
        if isinstance(made, ragged.Pieces):
            return ragged.Pieces(tuple(self._kept(node, v, name) for v in made.values))
        if not isinstance(made, TracedValue):
            return made
        if leaves_out(made.node):
            return self._kept_within(node, made, name)
        if is_simple(ragged.without_mask(made).node):
            return made
        if masks.of_mask(made) is not None:
            return made
        often = len([u for u in node.users if u.op != "output"]) > 1
        if name is None and not often:
            return made
        return self.named(made, name or self._stem(node))

    def _kept_within(self, node: Any, made: TracedValue, name: str | None) -> TracedValue:
        """Name the finite branch of a choice, as an infinite one cannot be named."""
        left = infinite_choice(made.node)
        if left is None:
            return made
        inside = {x.atom for x in walk(left.rest) if isinstance(x, Position)}
        axes = tuple(axis if inside & set(axis) else () for axis in made.axes)
        rest = TracedValue(axes, left.rest, made.kind)
        kept = self._kept(node, rest, name)
        if kept is rest:
            return made
        own = kept.renamed(dict(zip(kept.atoms, rest.atoms, strict=True)))
        infinite = made.node.parts()[1 if left.holds else 2]
        return replace(made, node=left.with_branches(infinite, own.node))

    def _stem(self, node: Any) -> str:
        name = name_of(node.target).strip("_")
        return name.partition(".")[0] or "part"

    def named(self, value: TracedValue, stem: str) -> TracedValue:
        """Return the value as a read of its equation, which is added at the first call."""
        if ragged.has_mask(value):
            return ragged.named_under_mask(self, value, stem)
        if masks.of_mask(value) is not None:
            raise DeriveError(masks.MANY)
        if (left := infinite_choice(value.node)) is not None:
            rest = self.named(replace(value, node=left.rest), stem)
            there = position_map(dict(zip(value.atoms, rest.atoms, strict=True)))
            return replace(
                rest, node=with_finite_branch(left, substituted(left.condition, there), rest.node)
            )
        said = value_key(value)
        name = self._said.get(said) or self.fresh(stem)
        if said not in self._said:
            self._said[said] = name
            self._stated(name, value)
        kept = tuple(axis for axis in value.axes if axis)
        read = TracedRead(name, tuple(map(joined, kept)))
        return TracedValue(value.axes, read, value.kind).fresh()

    def again_named(self, value: TracedValue, stem: str) -> TracedValue:
        """Return the value as a read of one more equation for it."""
        name = self.fresh(stem)
        self._stated(name, value)
        return replace(value, node=TracedRead(name, tuple(map(joined, filter(None, value.axes)))))

    def _stated(self, name: str, value: TracedValue) -> None:
        self.equations.append(TracedEquation(name, value.axes, value.node, value.kind, self.place))

    def fresh(self, stem: str) -> str:
        """Return an unused name."""
        return fresh_name(stem, self.taken)

    def simple(self, value: TracedValue) -> TracedValue:
        """Return the value, named if it is more than a read, for use in several places."""
        if is_simple(value.node) or masks.of_mask(value) is not None:
            return value
        return self.named(value, "h")

    # ---------------------------------------------------------------- axes

    def value(self, x: Any) -> TracedValue:
        """Return a number as a value, and a value as it is."""
        if isinstance(x, TracedValue):
            return x
        whole = x.is_integer if isinstance(x, sympy.Expr) else isinstance(x, int)
        kind = "bool" if isinstance(x, bool) else "int" if whole else "float"
        if isinstance(x, sympy.Expr) and x.is_Integer:
            x = int(x)
        if isinstance(x, sympy.Expr) and not self.sizes.are_known(x):
            raise DeriveError(
                "the function computes with a number extracted from a tensor (item(), float(), "
                "tolist()); keep it as a tensor"
            )
        return TracedValue((), TracedNumber(x), kind)

    def shape(self, node: Any = None) -> list[sympy.Expr]:
        """Return the sizes of a node's result."""
        made = (node or self.node).meta["val"]
        return [self._piece_of(n) or self.sizes.of(n) for n in made.shape]

    def counted_shape(self) -> list[sympy.Expr]:
        """Return the sizes of the current node's result, rounded down for all sizes."""
        shape = self.node.meta["val"].shape
        return [self._piece_of(n) or self.sizes.counted(n) for n in shape]

    def _piece_of(self, size: Any) -> sympy.Expr | None:
        """Return the size of the current piece; None if the axis has no pieces."""
        lengths = self.lengths.get(getattr(getattr(size, "node", None), "expr", None))
        return lengths[self.piece][0] if lengths else None

    def start(self) -> str:
        """Return the parameter, 0 as given, that offsets reads of a part of a longer axis."""
        if not self.starts:
            self.starts.append(self.fresh("start"))
        return self.starts[0]

    def elementwise(
        self, f: Callable[..., TracedNode], *args: Any, kind: str | None = None
    ) -> TracedValue:
        """Return f of the elements of aligned values."""
        values = self.aligned(*map(self.value, args))
        node = masks.elementwise(f, values)
        if any(leaves_out(v.node) for v in values):
            node = self.outward(node)
        kinds = {v.kind for v in values}
        found = kind or next((k for k in ("float", "int", "bool") if k in kinds), "float")
        return TracedValue(self.axes_of(values), node, found)


def _flat_arguments(x: Any) -> list[Any]:
    if isinstance(x, tuple | list):
        return [e for part in x for e in _flat_arguments(part)]
    if isinstance(x, dict):
        return _flat_arguments(list(x.values()))
    return [x]


def _decompositions() -> dict[Any, Any]:
    """Return torch's decompositions of operations that have no reading."""
    from torch._decomp import decomposition_table

    return {k: v for k, v in decomposition_table.items() if name_of(k) not in OPERATIONS}

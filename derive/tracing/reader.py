"""Read the nodes of a graph as values, one after another; named values are equations."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import Any

import sympy
import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from derive.errors import DeriveError
from derive.tracing import values as tv
from derive.tracing.choices import infinite_choice, leaves_out
from derive.tracing.context import OPERATIONS, Computed, Context, symbol_of
from derive.tracing.graph import UNREAD, Graph, held_tensor, is_write, name_of, unused
from derive.tracing.indexing import Pieces, by_pieces, gather, has_pieces, of_piece
from derive.tracing.names import is_short, is_simple, written_out
from derive.tracing.refusals import SizesUnread, extracted, many, unread
from derive.tracing.sorting import sorting_of
from derive.tracing.writes import Memory, fold_constants, merge_masks, put_into

# -------------------------------------------------------------------------------------- unsupported
# Advice for operations that index notation cannot express.

_ORDER = (
    "the order of elements depends on the values; pass the positions as an integer argument, "
    "x.gather(dim, positions)"
)
_RANDOM = (
    "it draws random numbers; call the module in eval mode, or pass the drawn mask or noise as "
    "an argument"
)
_COUNT = (
    "the number of elements depends on the values; pass the positions as an integer argument, or "
    "use a mask, torch.where(mask, x, 0)"
)
_BINS = (
    "the number of elements depends on the values; count with "
    "torch.nn.functional.one_hot(x, bins).sum(0), where bins is the number of different values"
)
COMPLEX = "complex tensors are not supported; write the real and the imaginary part as two tensors"
_TRIANGLE = (
    "their number is no size of an axis; take all pairs, and select with a mask, "
    "x[torch.ones_like(x).triu(1) > 0]"
)
_FOURIER = (
    "a Fourier transform is not an index expression; compute it outside and pass its result as "
    "an argument, or multiply by the cosine and sine matrices"
)
_MATRIX = (
    "a matrix decomposition or linear solve is not an index expression; compute it outside and "
    "pass its result as an argument"
)
_RECURRENT = "write its steps as a loop over torch.nn.LSTMCell or torch.nn.GRUCell"
_BAGS = (
    "bags of one size are read, from integers with two axes; write others as "
    "zeros.index_add(0, bag, weight[input]), with the bag of each element as an argument"
)
_POOLED = (
    "the positions of a max_pool are read as an integer argument alone; with them, a max_unpool is "
    "zeros.scatter_add(2, positions.flatten(2), x.flatten(2))"
)
NO_READING = (
    "it has no equivalent in index notation; use arithmetic, reductions, matrix products, gather "
    "or where, or compute it outside and pass its result as an argument"
)

_NAMES = {
    _ORDER: (
        "topk sort argsort msort kthvalue median nanmedian mode quantile searchsorted bucketize "
        "cummax cummin"
    ),
    _RANDOM: (
        "rand randn randint randperm rand_like randn_like randint_like normal normal_ uniform_ "
        "bernoulli bernoulli_ multinomial exponential_ geometric_ log_normal_ poisson rrelu "
        "rrelu_with_noise alpha_dropout"
    ),
    _COUNT: ("masked_scatter unique_dim _unique _unique2 unique_consecutive"),
    _BINS: "bincount histc",
    _TRIANGLE: "triu_indices tril_indices combinations",
    _RECURRENT: "lstm gru",
    _BAGS: "_embedding_bag _embedding_bag_forward_only",
    _POOLED: "max_unpool2d max_unpool3d",
    COMPLEX: "complex polar view_as_complex view_as_real real imag angle",
    _MATRIX: (
        "inverse cholesky cholesky_solve cholesky_inverse svd _linalg_svd qr lu_solve lstsq det "
        "slogdet logdet pinverse matrix_exp triangular_solve _linalg_det _linalg_slogdet "
        "_linalg_solve_ex _linalg_eigh"
    ),
}
_ADVICE = {name: text for text, names in _NAMES.items() for name in names.split()}
_FAMILIES = {"fft_": _FOURIER, "_fft_": _FOURIER, "linalg_": _MATRIX}


def advice(name: str) -> str | None:
    """Return what to do instead of an operation; None if nothing is known."""
    found = _ADVICE.get(name)
    families = (text for start, text in _FAMILIES.items() if name.startswith(start))
    return found or next(families, None)


def is_complex(made: Any) -> bool:
    """True if the result of a node is complex."""
    return bool(getattr(getattr(made, "dtype", None), "is_complex", False))


# ------------------------------------------------------------------------------------------- reader


class Reader:
    """The value of each node of one graph; their equations are in the context."""

    def __init__(self, context: Context, graph: Graph, whole: bool = True) -> None:
        """``whole`` is true for the user's function, false for a decomposed operation."""
        self.context = context
        self.graph = graph
        self.known: dict[Any, Any] = {}
        if whole:
            fold_constants(graph)
            merge_masks(graph)
        self.memory = Memory(graph.graph, context.sizes)
        self._is_whole = whole

    # ---------------------------------------------------------------- nodes

    def read(self, inputs: Iterable[tv.TracedValue]) -> Any:
        """Return the outputs of the graph, tensors as values."""
        context, given = self.context, iter(inputs)
        skipped = unused(self.graph.graph)
        last = self._last_of_statements(skipped)
        for node in self.graph.graph.nodes:
            if node in skipped:
                continue
            context.node, context.place = node, self.graph.places.get(node.name, context.place)
            if node.op == "placeholder":
                self.known[node] = next(given)
            elif node.op == "get_attr":
                self.known[node] = _constant(node)
            elif node.op == "call_function":
                made = self._called(node)
                name = context.place.variable if node in last and context.place else None
                # A sum that a loop adds to is one expression.
                is_step = isinstance(made, tv.TracedValue) and is_short(made.node)
                is_named = bool(name) and (last[node] or not is_step)
                self.known[node] = made = self._kept(node, made, name, is_named)
                try:
                    self._write(node, made)
                except DeriveError as error:
                    raise self._error(error) from error
            elif node.op == "output":
                for x in node.all_input_nodes if self._is_whole else ():
                    if isinstance(self.known[x], Pieces):
                        context.place = self.graph.places.get(x.name)
                        raise self._error(many())
                return self._given(node.args[0])
        raise DeriveError("the function returns nothing", kind="torch-result")

    def _last_of_statements(self, skipped: set[Any]) -> dict[Any, bool]:
        """The last node of each run of a statement that is read; true in the last run."""
        found: dict[tuple[str, int, str | None], dict[int, Any]] = {}
        for node in self.graph.graph.nodes:
            place = self.graph.places.get(node.name)
            if place is not None and node.op == "call_function" and node not in skipped:
                runs = found.setdefault((place.file, place.line, place.variable), {})
                runs[place.turn] = node
        return {node: turn == max(runs) for runs in found.values() for turn, node in runs.items()}

    def _given(self, x: Any) -> Any:
        """Return the arguments of a node, with nodes replaced by their values."""
        import torch.fx

        if isinstance(x, torch.fx.Node):
            known = self.known[x]
            if self.memory.is_view_without_graph(x) and not self.context.node.meta.get("held"):
                return tv.without_gradient(known)
            return known
        if isinstance(x, tuple | list):
            # Those of torch.fx are subclasses of both.
            return (list if isinstance(x, list) else tuple)(map(self._given, x))
        if isinstance(x, dict):
            return {k: self._given(e) for k, e in x.items()}
        if isinstance(x, slice):
            return slice(*(self._given(e) for e in (x.start, x.stop, x.step)))
        return x

    def _called(self, node: Any) -> Any:
        args, kwargs = self._given(node.args), self._given(node.kwargs)
        target = node.target
        if target is operator.getitem:
            return args[0][args[1]]
        name = name_of(target)
        if name in ("_set_grad_enabled", "_enter_autocast", "_exit_autocast"):
            # Nodes under no_grad are marked; autocast only casts between floating-point dtypes.
            return None
        if name in ("size", "sym_size") and isinstance(node.meta.get("val"), tuple | list):
            return [self.context.sizes.of(n) for n in node.meta["val"]]
        if name == "item" and not isinstance(args[0], Pieces):
            made = replace(args[0], axes=())
            self.context.counts[symbol_of(node.meta["val"])] = tv.without_gradient(made)
        if hasattr(node.meta.get("val"), "node"):
            # A size, or a number computed from sizes.
            return self.context.size(node.meta["val"])
        f = OPERATIONS.get(name) or sorting_of(name)
        args, kwargs = self._with_numbers(node, args, kwargs)
        try:
            if self._is_whole:
                self.memory.check(node)
            if is_complex(node.meta.get("val")):
                raise unread(COMPLEX)
            if unknown := [x for x in node.all_input_nodes if self.known[x] is None]:
                is_pooled = "pool" in name_of(unknown[0].args[0].target)
                raise unread(f"{name} is not supported: {_POOLED}") if is_pooled else many()
            if f is None:
                return self._taken_apart(node)
            flat = tree_leaves([args, kwargs])
            if has_pieces(self.context, node, flat):
                return by_pieces(self.context, f, node, args, kwargs)
            made = f(self.context, *args, **kwargs)
            self._check(node, made)
            if node.meta.get("held") and is_write(node) and isinstance(made, tv.TracedValue):
                made = tv.without_gradient(made)
                if self.memory.has_gradient(node):
                    made = self._straight_through(args[0], made)
            elif node.meta.get("held") and not self.memory.is_view_without_graph(node):
                made = tv.without_gradient(made)
        except DeriveError as error:
            made = self._at_positions(node, args, kwargs, self._error(error))
            made = tv.without_gradient(made) if node.meta.get("held") else made
        except RecursionError:
            what = "this line is nested too deeply in others for Python's recursion limit, as in a"
            raise self._error(unread(f"{what} long loop; read one step of it")) from None
        except Exception as error:
            flat = tree_leaves([args, kwargs])
            if any(isinstance(x, sympy.Expr) and not self.context.sizes.are_known(x) for x in flat):
                raise self._error(extracted()) from error
            if has_pieces(self.context, node, flat):
                raise self._error(many()) from error
            bare = any(isinstance(x, tv.TracedValue) and not x.axes for x in flat)
            what = "of a tensor without axes" if bare else "with these arguments"
            refused = unread(f"{name} {what} is not supported: {error}")
            raise self._error(refused) from error
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
            value: Any = getattr(own, "meta", {}).get("val")
            is_number = kind in ("number", "Tensor") and hasattr(value, "node")
            if not is_number or self.context.is_held(value.node.expr):
                return known
            return self.context.sizes.number(value, *self._sizes_of_axes())

        positional = (
            of(*each) for each in zip_longest(args, node.args, [*kinds.values()][: len(args)])
        )
        return tuple(positional), {
            k: of(x, node.kwargs[k], kinds.get(k)) for k, x in kwargs.items()
        }

    def _sizes_of_axes(self) -> tuple[list[sympy.Expr], list[sympy.Expr]]:
        """Return (the sizes of parts of composite axes, the sizes of other axes)."""
        values = [(e.axes, e.body) for e in self.context.equations]
        values += [(v.axes, v.node) for v in self.known.values() if isinstance(v, tv.TracedValue)]
        axes = [[a.size for a in axis] for own, _ in values for axis in own]
        joints = (x for _, node in values for x in tv.walk(node) if isinstance(x, tv.Joined))
        axes += [list(x.sizes) for x in joints]
        parts = [n for sizes in axes if len(sizes) > 1 for n in sizes]
        return parts, [n for sizes in axes if len(sizes) == 1 for n in sizes]

    def _straight_through(self, old: tv.TracedValue, new: tv.TracedValue) -> tv.TracedValue:
        """Return a value written under no_grad, with the gradient of the old one.

        It is old + detach(new - old).
        """
        match new.node:
            case tv.TracedApply("detach", (value,)) | (tv.TracedNumber() as value):
                pass
            case _:
                return new
        if new.kind != "float" or isinstance(old.node, tv.TracedNumber) or value == old.node:
            return new
        old = self.context.simple(old)

        def f(a: tv.TracedNode, b: tv.TracedNode) -> tv.TracedNode:
            return a + tv.TracedApply("detach", (b - a,))

        return self.context.elementwise(f, old, replace(new, node=value))

    def _error(self, error: DeriveError) -> DeriveError:
        """Return the error with the current statement."""
        if self.context.place is None or error.text.startswith(UNREAD):
            return DeriveError(error.text, kind=error.kind)
        kind = SizesUnread if isinstance(error, SizesUnread) else DeriveError
        return kind(f"{UNREAD} ({self.context.place}): {error.text}", kind=error.kind)

    def _check(self, node: Any, made: Any) -> None:
        """Check that the axes have the sizes that torch has."""
        value = node.meta.get("val")
        if isinstance(made, tv.TracedValue) and hasattr(value, "shape"):
            want = [self.context.sizes.of(n) for n in value.shape]
            have = made.shape
            if not all(map(self.context.sizes.are_known, want)):
                raise many()
            same = len(want) == len(have) and all(
                self.context.sizes.hint(a) == self.context.sizes.hint(b)
                for a, b in zip(want, have, strict=True)
            )
            if not same:
                text = f"{name_of(node.target)}: the spec has the axes {have}, and torch has {want}"
                raise unread(text)

    def _taken_apart(self, node: Any) -> Any:
        """Read an operation without a reading of its own by torch's decomposition of it."""
        import torch.fx
        from torch._decomp import decomposition_table
        from torch.fx.experimental.proxy_tensor import make_fx

        name = name_of(node.target)
        flat, spec = tree_flatten((node.args, node.kwargs))
        places = [n for n, x in enumerate(flat) if isinstance(x, torch.fx.Node)]
        fakes = [flat[n].meta.get("val") for n in places]

        def call(*given: Any) -> Any:
            every = list(flat)
            for n, x in zip(places, given, strict=True):
                every[n] = x
            args, kwargs = tree_unflatten(every, spec)
            return node.target(*args, **kwargs)

        if name in _ADVICE:
            raise unread(f"{name} is not supported: {advice(name)}")
        try:
            mode = next(f.fake_mode for f in fakes if hasattr(f, "fake_mode"))
            table: Any = {
                k: f for k, f in decomposition_table.items() if name_of(k) not in OPERATIONS
            }
            with mode:
                module = make_fx(call, tracing_mode="real", decomposition_table=table)(*fakes)
        except Exception as error:
            why = advice(name) or str(error) or NO_READING
            raise unread(f"{name} is not supported: {why}") from error
        inner = [n for n in module.graph.nodes if n.op == "call_function"]
        if any(name_of(n.target) == name for n in inner):
            raise unread(f"{name} is not supported: {advice(name) or NO_READING}")
        graph = replace(self.graph, graph=module.graph, places={})
        given = [self.known[flat[n]] for n in places]
        with self.context.at_node(node, self.context.place):
            for n, own in enumerate(module.graph.find_nodes(op="placeholder")):
                if len(own.users) > 1 and isinstance(given[n], tv.TracedValue):
                    given[n] = self.context.simple(given[n])
            return Reader(self.context, graph, whole=False).read(given)

    def _at_positions(self, node: Any, args: Any, kwargs: Any, error: DeriveError) -> Any:
        """Return the values that an order selects, and their positions, which are an input."""
        schema: Any = getattr(node.target, "_schema", None)
        if schema is None or ["values", "indices"] != [r.name for r in schema.returns]:
            return self._computed(node, None, error)
        names = {a.name: a.default_value for a in schema.arguments}
        x, dim = args[0], {**names, **dict(zip(names, args, strict=False)), **kwargs}["dim"]
        at = self._computed(node, 1, error, dim)
        if not isinstance(x, tv.TracedValue):
            raise error
        if len(at.axes) == len(x.axes):
            return gather(self.context, x, dim, at), at
        dim = x.place_of(dim)
        return gather(self.context, x, dim, at.with_unit_axis(dim)).without_axis(dim), at

    def _computed(
        self, node: Any, part: int | None, error: DeriveError, dim: int = -1
    ) -> tv.TracedValue:
        """Return a result that has no gradient as an input, which torch computes in each call."""
        context, made = self.context, node.meta.get("val")
        made = made if part is None else made[part]
        is_known = self._is_whole and not isinstance(error, SizesUnread) and not is_write(node)
        is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if not is_known or is_random or not isinstance(made, torch.Tensor):
            raise error
        shape = [context.sizes.counted(n) for n in made.shape]
        if made.dtype not in (torch.int64, torch.int32, torch.bool) or not all(
            map(context.sizes.are_known, shape)
        ):
            raise error
        axes, kind = tuple(map(tv.new_axis, shape)), tv.kind_of(made)
        name = context.fresh("positions" if kind == "int" else "mask")
        if name_of(node.target) in ("sort", "topk", "argsort") and axes and axes[dim]:
            context.distinct[name] = sum(map(bool, axes[: dim % len(axes)]))
        context.computed[name] = Computed(node, part, error)
        context.inputs[name] = tv.input_value(name, axes, kind)
        return context.inputs[name]

    # ---------------------------------------------------------------- writes

    def _write(self, node: Any, made: Any) -> None:
        """Apply a node's write to all values that share memory with its result."""
        memory, known = self.memory, self.known
        if not is_write(node) or memory.is_idle(node):
            return
        group = memory.group(node)
        if not isinstance(made, tv.TracedValue | Pieces):
            left = (u for x in group if x is not node for u in x.users)
            if any(memory.order[u] > memory.order[node] for u in left):
                raise many()
            return
        if len(group) < 2:
            return
        chain, value = memory.chain(node.args[0]), made
        for child, parent in pairwise(chain):
            args, named = self._given(child.args), self._given(child.kwargs)
            value = self._put(known[parent], value, (child, parent), args, named)
        first = chain[-1]
        if memory.reads_of(group, node) > 1:
            value = self._written(value, self._written_variable(first, "written"))
        known[first] = value
        for other in memory.read_later(group, node):
            if other in known and other is not first:
                known[other] = self._view_again(other)

    def _written_variable(self, node: Any, stem: str) -> str:
        """Return the variable of the tensor that is written into, which this node makes."""
        place = self.graph.places.get(node.name)
        return (place and place.variable) or stem

    def _put(self, old: Any, value: Any, nodes: Any, args: Any, named: Any) -> Any:
        """Return ``old``, or each of its pieces, with a value in the place of a view of it."""
        if not isinstance(old, Pieces):
            return put_into(self.context, old, value, nodes, args, named)
        made = []
        for k, own in enumerate(old.values):
            with self.context.in_piece(k):
                given = (of_piece(x, k) for x in (own, value, nodes, args, named))
                made.append(tv.with_outer_mask(put_into(self.context, *given)))
        return Pieces(tuple(made))

    def _written(self, value: Any, name: str) -> Any:
        if isinstance(value, Pieces):
            return Pieces(tuple(self._written(v, name) for v in value.values))
        if is_simple(tv.lifted_mask(value)[1].node) or leaves_out(value.node):
            return value
        return self.context.named(value, name)

    def _view_again(self, node: Any) -> Any:
        """Return a view of the current values."""
        if is_write(node):
            return self.known[node.args[0]]
        if node.target is operator.getitem:
            self.known[node.args[0]] = self._view_again(node.args[0])
        place = self.graph.places.get(node.name, self.context.place)
        with self.context.at_node(node, place):
            args, named = self._given(node.args), self._given(node.kwargs)
            if node.target is operator.getitem:
                return args[0][args[1]]
            f = OPERATIONS[name_of(node.target)]
            if any(isinstance(x, Pieces) for x in tree_leaves([args, named])):
                return by_pieces(self.context, f, node, args, named)
            return f(self.context, *args, **named)

    # ---------------------------------------------------------------- names

    def _kept(self, node: Any, made: Any, name: str | None, is_named: bool) -> Any:
        """Return the value, an equation if it ``is_named`` or used more than once."""
        if isinstance(made, Pieces):
            return Pieces(tuple(self._kept(node, v, name, is_named) for v in made.values))
        if not isinstance(made, tv.TracedValue):
            return made
        if leaves_out(made.node):
            return self._kept_within(node, made, name, is_named)
        if is_simple(tv.lifted_mask(made)[1].node):
            return made
        if not is_named and len([u for u in node.users if u.op != "output"]) < 2:
            return made
        stem = name_of(node.target).strip("_").partition(".")[0] or "part"
        stem = "index" if made.kind == "int" else stem
        if is_write(node) and not name:
            stem = self._written_variable(self.memory.chain(node.args[0])[-1], stem)
        return self.context.named(made, name or stem)

    def _kept_within(
        self, node: Any, made: tv.TracedValue, name: str | None, is_named: bool
    ) -> tv.TracedValue:
        """Name the finite branch of a choice, as an infinite one cannot be named."""
        left = infinite_choice(made.node)
        if left is None:
            return made
        inside = {x.atom for x in tv.walk(left.rest) if isinstance(x, tv.Position)}
        axes = tuple(axis if inside & set(axis) else () for axis in made.axes)
        rest = tv.TracedValue(axes, left.rest, made.kind)
        kept = self._kept(node, rest, name, is_named)
        if kept is rest:
            return made
        own = kept.renamed(dict(zip(kept.atoms, rest.atoms, strict=True)))
        infinite = made.node.parts()[1 if left.holds else 2]
        return replace(made, node=left.with_branches(infinite, own.node))


def _constant(node: Any) -> Any:
    held = held_tensor(node)
    if held is not None and not hasattr(held, "fake_mode"):
        return written_out(held, node.target)
    raise DeriveError(
        f"the function uses a tensor that is not an argument ({node.target}); pass it as an "
        "argument, or make it a parameter or buffer of a module",
        kind="outside-tensor",
    )

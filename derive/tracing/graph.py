"""Trace a PyTorch function on tensors without data, with symbolic sizes.

Every axis of every input has a symbol of its own, whatever sizes the examples have. Only operations
make two sizes equal. Each node records the statement that made it.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import operator
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType, NoneType
from typing import Any, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.node import base_types
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from derive.errors import DeriveError
from derive.tracing.emptiness import Made, Values
from derive.tracing.refusals import unread
from derive.tracing.symbolic import has_unknown_sizes, kept_sizes
from derive.tracing.truths import Answer, on_all_paths, statements_of, validations, writes

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class SourceStatement:
    """A statement of a person's code, and the variable that it assigns."""

    file: str
    line: int
    text: str
    variable: str | None = None
    turn: int = 0
    """A number that tells one run of a statement from the next one."""

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}: {self.text}"


UNREAD = "the function cannot be read"
"""Prefix of an error that names a statement."""


@dataclass
class Graph:
    """Nodes of ATen operations; ``sizes`` has the value of each symbol in the examples."""

    graph: Any
    inputs: tuple[str, ...]
    shapes: Any
    output: Any = None
    places: dict[str, SourceStatement] = field(default_factory=dict)
    given: Sequence[int | None] = ()
    """For each tensor of the result, the input that it is."""
    answers: Sequence[Answer] = ()
    """Assumed results of value checks; a call raises an error for another result."""
    rounded: bool = False
    """True if no division of sizes is taken as exact."""
    has_branches: bool = False
    """True if a result depends on truth tests of tensors."""
    applied: tuple[str, ...] = ()
    """The names of autograd Functions that were applied; only their forwards are traced."""
    leaves_out: bool = False
    """True if plain numbers or texts of the result are left out."""


def trace_graph(function: Callable[..., Any], tensors: Mapping[str, Any]) -> Graph:
    mode, fakes, shapes = without_data(tensors)
    outputs: list[Any] = []
    same: list[list[int | None]] = []
    branches: list[bool] = []
    numbers: list[bool] = []

    def flat(*given: Any) -> Any:
        call = partial(function, **dict(zip(tensors, given, strict=True)))
        made, has_branches = on_all_paths(call, answers, given)
        if inspect.isgenerator(made):
            text = "the function returns a generator, not a tensor; return a list"
            raise DeriveError(text, kind="torch-result")
        leaves = tree_leaves(made)
        for x in leaves:
            if is_dataclass(x) or not isinstance(x, (*base_types, NoneType)):
                raise DeriveError(
                    f"the function returns {type(x).__name__}, not a tensor; return a tuple, a "
                    "NamedTuple or a dict",
                    kind="torch-result",
                )
        if any(isinstance(x, torch.Tensor) for x in leaves):
            made = tree_map(lambda x: x if isinstance(x, torch.Tensor) else None, made)
            numbers.append(any(x is not None for x in leaves if not isinstance(x, torch.Tensor)))
            leaves = tree_leaves(made)
        outputs.append(made)
        branches.append(has_branches)
        places = {id(x): n for n, x in enumerate(given)}
        same.append([places.get(id(x)) for x in leaves])
        return leaves

    answers = validations(function, tensors)
    own = getattr(function, "__wrapped__", function)
    with (
        mode,
        torch.enable_grad(),
        kept_sizes(own, _ASSUMED.get(Assumed()).chosen),
        recorded_statements() as (places, applied),
    ):
        try:
            module = _module(flat, fakes, pre_dispatch=True)
        except DeriveError:
            raise
        except Exception as error:
            # Transforms and gradients inside are operations of whole tensors below autograd.
            places.clear()
            try:
                module = _module(flat, fakes, pre_dispatch=False)
            except Exception:
                raise _trace_error(error) from error
    for node in module.graph.nodes:
        if torch.Tag.inplace_view in getattr(node.target, "tags", ()):
            # It changes no values, and what reads the tensor later reads this node.
            plain = getattr(torch.ops.aten, name_of(node.target)[:-1])
            if plain is torch.ops.aten.detach and name_of(node.args[0].target).startswith("lift"):
                node.replace_all_uses_with(node.args[0])
                continue
            node.target = getattr(plain, node.target._overloadname)
        if node.target is torch.ops.aten.where.default:
            node.target = torch.ops.aten.nonzero_numpy.default
    if branches[-1]:
        _erase_unused(module.graph)
        _share_repeats(module.graph)
    rounded = _ASSUMED.get(Assumed()).rounded
    known = tuple(tensors), shapes, outputs[-1], dict(places), same[-1], answers, rounded
    return Graph(module.graph, *known, branches[-1], tuple(applied), any(numbers))


def _erase_unused(graph: Any) -> None:
    """Erase what only ways that lead to no result compute."""
    left_out = unused(graph)
    for node in [n for n in reversed(graph.nodes) if n in left_out]:
        graph.erase_node(node)


def _share_repeats(graph: Any) -> None:
    """Replace by one node what several ways through the branches compute alike.

    Not if a tensor is changed in place: a way may change what another one reads.
    """
    if any(map(is_write, graph.nodes)):
        return
    seen: dict[Any, Any] = {}
    for node in list(graph.nodes):
        tags = getattr(node.target, "tags", None)
        made = node.meta.get("val")
        if tags is None or torch.Tag.nondeterministic_seeded in tags or has_unknown_sizes(made):
            continue
        said = [repr((type(x), x)) for x in tree_leaves([node.args, node.kwargs])]
        held = node.meta.get("held"), node.meta.get("detaches")
        first = seen.setdefault((node.target, *said, *held), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _module(flat: Callable[..., Any], fakes: Sequence[Any], pre_dispatch: bool) -> Any:
    """Return the traced module; raise an error if values of the trace itself are constants."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with _Detaching():
        module = make_fx(flat, tracing_mode="real", pre_dispatch=pre_dispatch)(*fakes)
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    if pre_dispatch and any(wrapped(x) or isinstance(x, FakeTensor) for x in _constants(module)):
        raise RuntimeError("a transform inside is not recorded before dispatch")
    if not pre_dispatch:
        for node in module.graph.nodes:
            # Below autograd, a tensor that is saved for a gradient is detached too.
            if node.target is torch.ops.aten.detach.default and not node.meta.get("detaches"):
                node.replace_all_uses_with(node.args[0])
    return module


_DETACHES: ContextVar[bool] = ContextVar("detaches", default=False)


class _Detaching(TorchFunctionMode):
    """Marks the nodes of calls that detach a tensor."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in ("detach", "__get__"):
            return func(*args, **kwargs or {})
        token = _DETACHES.set(True)
        try:
            return func(*args, **kwargs or {})
        finally:
            _DETACHES.reset(token)


def _constants(module: Any) -> list[Any]:
    """Return the tensors of a trace that are neither arguments nor computed."""
    return [getattr(module, node.target) for node in module.graph.nodes if node.op == "get_attr"]


def without_data(tensors: Mapping[str, Any]) -> tuple[Any, list[Any], Any]:
    """Return (fake tensor mode, fake tensors, shape environment) for these tensors."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    assumed = _ASSUMED.get(Assumed())
    fixed, alike, last = assumed.fixed, assumed.alike, assumed.last
    shapes = ShapeEnv(duck_shape=alike)
    shapes.guards = Guards()
    mode = MaskMode(shape_env=shapes, allow_non_fake_inputs=True)
    mode.cache_enabled = False
    free = DimDynamic.DUCK if alike else DimDynamic.DYNAMIC
    fakes = []
    for name, t in tensors.items():
        kept = {t.dim() - 1} if last else set()
        dynamic = [
            DimDynamic.STATIC if size < 2 or name in fixed or n in kept else free
            for n, size in enumerate(t.shape)
        ]
        context: Any = StatelessSymbolicContext(dynamic_sizes=dynamic)
        fake = mode.from_tensor(t.detach().clone(), symbolic_context=context, source=None)
        fakes.append(fake)
    return mode, fakes, shapes


SELECTIONS = ("index", "index_put", "masked_select", "nonzero", "nonzero_numpy")


class MaskMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A fake tensor mode in which masks computed alike select as many elements.

    Value numbering: a tensor has the number of the operation that made it and of its arguments,
    and a new one after a write.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.numbers: dict[Any, int] = {}
        self.values = Values()
        self.known: Any = WeakTensorKeyDictionary()
        self.selectors: dict[int, Any] = {}
        self.taken: dict[Any, Any] = {}
        self.constants: Any = WeakTensorKeyDictionary()

    def number(self, x: Any, made_by: Any = None, version: int | None = None) -> Any:
        """Return the number of a value; ``version`` is its count of writes after the operation."""
        if not isinstance(x, torch.Tensor):
            number = self.numbers.setdefault((type(x), str(x)), len(self.numbers))
            if isinstance(x, int | float):
                self.values.numbers[number] = x
            elif isinstance(x, torch.SymInt) and x.node.has_hint():
                self.values.sizes.add(number)
            return number
        version = writes(x) if version is None else version
        before, number = self.known.get(x, (-1, -1))
        if version != before or made_by:
            key = made_by or (len(self.numbers),)
            number = self.numbers.setdefault(key, len(self.numbers))
            self.known[x] = version, number
            sizes = (n.node.expr if isinstance(n, torch.SymInt) else n for n in x.shape)
            self.values.kinds[number] = x.dtype, tuple(sizes)
        return number

    def alike(self, x: Any) -> Any:
        number = self.number(x)
        first = self.selectors.setdefault(number, x)
        return first if self.number(first) == number else x

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if name_of(func) in SELECTIONS:
            args = tree_map_only(FakeTensor, self.alike, args)
        if func is torch.ops.aten.masked_select.default:
            x, mask = args
            if x.dim() == mask.dim() and 1 not in (*x.shape, *mask.shape):
                # masked_select counts anew at each call.
                func, args = torch.ops.aten.index.Tensor, (x, [mask])
        leaves, form = tree_flatten((args, kwargs))
        if func is torch.ops.aten._local_scalar_dense.default:
            known = self.constant(args[0])
            if known is not None:
                return known.item()
        key = func, str(form), *map(self.number, leaves)
        made = super().dispatch(func, types, args, kwargs)
        if func is torch.ops.aten._local_scalar_dense.default and hasattr(made, "node"):
            self.taken[made.node.expr] = args[0]
        random = torch.Tag.nondeterministic_seeded in func.tags
        if func._schema.is_mutable and torch.Tag.inplace_view not in func.tags:
            self.constants.clear()  # a view of what is written may be among them
        if random:
            return made
        writes_into = func._schema.is_mutable
        results = _written_first(func, args) if writes_into else tree_leaves(made)
        for n, x in enumerate(filter(_is_fake, results)):
            if not writes_into and any(x is given for given in leaves):
                continue  # as of `to`, where nothing is to be done
            # Autograd counts a write, and lets a view share the count of its base, after this mode.
            version = writes(args[0]) + writes_into if writes_into or func.is_view else None
            number = self.number(x, (*key, n) if n else key, version)
            self.values.made[number] = Made(func, f"{key[1]} {n}", key[2:])
        if not writes_into:
            self._note_constants(func, args, kwargs or {}, made)
        return made

    def _note_constants(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        """Record the values of small results of a call whose arguments are numbers."""
        results = [*filter(_is_fake, tree_leaves(made))]
        known = results and all(map(_is_small, results))
        known = known and "empty" not in name_of(func)
        if known and all(map(self._is_constant, tree_leaves((args, kwargs)))):
            args, kwargs = tree_map_only(FakeTensor, self.constant, (args, kwargs))
            for x, values in zip(results, tree_leaves(func(*args, **kwargs)), strict=True):
                self.constants[x] = writes(x), values

    def constant(self, x: Any) -> Any:
        """Return the values of a small tensor that is computed from numbers alone, else None."""
        version, values = self.constants.get(x, (-1, None))
        return values if version == writes(x) else None

    def _is_constant(self, x: Any) -> bool:
        """True if an argument of a call is a number, or a tensor of numbers."""
        if _is_fake(x):
            return self.constant(x) is not None
        if isinstance(x, torch.Tensor):
            return type(x) is torch.Tensor and not x.requires_grad
        return not isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool)


def _is_fake(x: Any) -> bool:
    return isinstance(x, FakeTensor)


def _written_first(func: Any, args: Sequence[Any]) -> Sequence[Any]:
    """Return the first argument of an operation, if it writes into that."""
    alias = func._schema.arguments[0].alias_info
    return args[:1] if alias is not None and alias.is_write else ()


def _is_small(x: Any) -> bool:
    """True if x has few elements, of which no argument decides how many."""
    sizes = all(isinstance(n, int) for n in x.shape)
    return sizes and x.numel() <= _MOST_CONSTANTS and x.device.type == "cpu"


_MOST_CONSTANTS = 64
"""The elements of a tensor of numbers whose values a trace knows."""


@dataclass(frozen=True)
class Assumed:
    """What is assumed of the sizes of a function."""

    fixed: Collection[str] = ()
    """The tensors whose sizes are numbers."""
    alike: bool = False
    """True if equal sizes have one symbol."""
    last: bool = False
    """True if the sizes of all last axes are numbers."""
    rounded: bool = False
    """True if a quotient of sizes is rounded down, though it is exact in the examples."""
    chosen: bool = False
    """True if Python's max and min of sizes are formulas, not branches."""


@contextmanager
def in_block(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    """Set the variable inside of the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


_ASSUMED = ContextVar[Assumed]("assumed")


def assuming(assumed: Assumed) -> AbstractContextManager[None]:
    """Trace under these assumptions."""
    return in_block(_ASSUMED, assumed)


def _trace_error(error: Exception) -> DeriveError:
    """Return the error of a failed trace, with the statement."""
    place = _statement(error.__traceback__)
    where = f" ({place})" if place is not None else ""
    name, text = type(error).__name__, str(error).strip().partition("\n")[0]
    if re.search(r"Eq\(u\d+, u\d+\)", text):
        told = (
            "whether two masks select as many elements depends on their values; compute a mask "
            "once, m = target > 0, and select with it: x[m], target[m]"
        )
    elif "DataDependent" in name or "data-dependent" in text.lower() or "Eq(u" in text:
        told = (
            "the control flow depends on the values of a tensor; pass the decision as an argument, "
            "or select values with torch.where"
        )
    elif "Unbacked" in name:
        told = (
            "the number of elements depends on the values of a tensor; compute it outside and pass "
            "it as an argument"
        )
    else:
        told = text if isinstance(error, NotImplementedError) else f"{name}: {text}"
        if ".numpy()" in text:
            told = (
                "the function leaves torch for NumPy; use torch operations, or compute the value "
                "outside and pass it as an argument"
            )
        elif "SymFloat.__format__" in text or "SymInt.__format__" in text:
            told = "a value of a tensor is formatted as text; print it outside of the function"
        elif "dynamo-optimized" in text:
            told = "it calls what torch.compile made; compile the derived function instead"
        elif name == "UnsupportedOperatorException":
            told = f"{text} takes no tensor of this layout, as of a sparse one; pass x.to_dense()"
        return unread(f"{UNREAD}{where}: {told}")
    return DeriveError(f"{UNREAD}{where}: {told}", kind="data-dependent")


def _statement(traceback: Any) -> SourceStatement | None:
    """Return the innermost statement of user code in a traceback."""
    found, inside = None, False
    for frame, line in walk_tb(traceback):
        inside = inside or frame.f_code.co_filename == __file__
        if inside and _is_own(frame.f_code.co_filename):
            found = _statement_at(frame.f_code.co_filename, line)
    return found


def unused(graph: Any) -> set[Any]:
    """Return the nodes that no output depends on, and that change no tensor that is read later."""
    live = set[Any]()
    read = {storage_of(n) for n in graph.nodes if n.op in ("placeholder", "get_attr")}
    for node in reversed(list(graph.nodes)):
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            is_needed = node.target is not operator.getitem
        else:
            is_needed = schema.is_mutable and storage_of(node) in read
        if is_needed or node.users.keys() & live:
            live.add(node)
            read |= {storage_of(x) for x in (node, *node.all_input_nodes)}
    return {*graph.nodes} - live


def storage_of(node: Any) -> int | None:
    """Return the id of a tensor's storage, the same for all its views."""
    made: Any = getattr(node, "meta", {}).get("val")
    return int(made.untyped_storage()._cdata) if hasattr(made, "untyped_storage") else None


def is_write(node: Any) -> bool:
    """True if a node changes its first argument."""
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable and node.args)


def held_tensor(node: Any) -> Any:
    """Return the tensor of numbers that a node is, else None."""
    is_held = isinstance(node, torch.fx.Node) and node.op == "get_attr"
    return getattr(node.graph.owning_module, node.target, None) if is_held else None


def name_of(target: Any) -> str:
    """The name of an operation."""
    packet = getattr(target, "overloadpacket", None)
    return str(getattr(packet, "__name__", None) or getattr(target, "__name__", target))


# -------------------------------------------------------------------- statements


class Guards(list[Any]):
    """Comparisons of sizes that hold in a trace.

    ``statements`` has those that a value may depend on, not only the order in memory, each with the
    statement that asks it, or '' where its code is in no file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.statements: dict[Any, SourceStatement | str] = {}

    def append(self, guard: Any) -> None:
        super().append(guard)
        frame = sys._getframe(1)
        own = _own_frame(frame)
        if not any("_prims_common" in f.f_code.co_filename for f in _outward(frame)):
            place = own and _statement_at(own.f_code.co_filename, own.f_lineno)
            self.statements.setdefault(guard.expr, place or "")


def _outward(frame: Any) -> Iterator[Any]:
    """Yield a frame and its callers, down to the one that calls the user's function."""
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == (__file__, "flat"):
            return
        yield frame
        frame = frame.f_back


def _own_frame(frame: Any) -> Any:
    """Return the innermost frame of user code; None if a trace has not called the function."""
    frames = [*_outward(frame)]
    called = frames and frames[-1].f_back is not None
    return next((f for f in frames if _is_own(f.f_code.co_filename)), None) if called else None


def _is_own(file: str) -> bool:
    """True if a file belongs neither to Python nor to torch, nor to this package."""
    own = str(Path(__file__).parents[1])
    library, python = (str(Path(str(m.__file__)).parent) for m in (torch, inspect))
    of_python = file.startswith(python) and "-packages" not in file
    return not (of_python or file.startswith((library, own, "<")) or "importlib" in file)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Call what torch.compile or torch.jit.script made as the functions that it was made of.

    Nor does einsum look for a path, which would be that of the sizes in the examples.
    """
    scripted: Any = torch.jit.ScriptFunction
    compiled = scripted.__call__

    def call(f: Any, *args: Any, **named: Any) -> Any:
        plain = getattr(f, "_torchdynamo_inline", None)
        return compiled(f, *args, **named) if plain is None else plain(*args, **named)

    scripted.__call__ = call
    try:
        with torch.backends.opt_einsum.flags(enabled=False):
            if "torch._dynamo" not in sys.modules:
                yield  # nothing is compiled yet, and the import takes seconds
                return
            plain = torch._dynamo.config.patch(error_on_nested_fx_trace=False)
            with torch.compiler.set_stance("force_eager"), plain:
                yield
    finally:
        scripted.__call__ = compiled


_STOPPED = ContextVar("stopped", default=False)


def stopped() -> AbstractContextManager[None]:
    """Trace Functions as ones that pass no gradient on."""
    return in_block(_STOPPED, True)


@contextmanager
def recorded_statements() -> Iterator[tuple[dict[str, SourceStatement], dict[str, None]]]:
    """Record the statement of each node, by the node's name, while a graph is traced.

    Yields these, and the names of the autograd Functions that are applied.
    Nodes made under no_grad are marked in ``node.meta["held"]``. The forward of a Function, which
    runs without a graph, counts as what calls it, unless the Functions are `stopped`.
    """
    from torch.autograd.function import _SingleLevelFunction
    from torch.fx.experimental.proxy_tensor import PythonKeyTracer

    places: dict[str, SourceStatement] = {}
    create = PythonKeyTracer.create_node
    applied: dict[str, None] = {}
    callers: list[bool] = []
    last: dict[CodeType, tuple[int, int, str, int]] = {}
    """For each code, its last frame, where it stood, in which statement, and the turn."""

    def apply(cls: Any, *args: Any, **options: Any) -> Any:
        applied[cls.__name__] = None
        callers.append(torch.is_grad_enabled())
        try:
            return super(_SingleLevelFunction, cls).apply(*args, **options)
        finally:
            callers.pop()

    def turn_of(frame: FrameType, text: str) -> int:
        """Return the number of the call, and of the step of its loop."""
        while frame.f_code.co_name == "<genexpr>" and frame.f_back is not None:
            frame = frame.f_back
        before, at, said, turn = last.get(frame.f_code, (id(frame), -1, text, 0))
        back = frame.f_lasti < at and (said != text or " for " not in text)
        turn += before != id(frame) or back
        last[frame.f_code] = id(frame), frame.f_lasti, text, turn
        return turn

    def create_node(self: Any, *args: Any, **kwargs: Any) -> Any:
        node = create(self, *args, **kwargs)
        caller = callers[0] if callers and not _STOPPED.get() else torch.is_grad_enabled()
        node.meta["held"] = not caller
        node.meta["detaches"] = _DETACHES.get()
        own = _own_frame(sys._getframe(1).f_back)
        if own is not None:
            line, _, column, _ = list(own.f_code.co_positions())[own.f_lasti // 2]
            at = None if line is None or column is None else (line, column)
            if place := _statement_at(own.f_code.co_filename, own.f_lineno, at):
                # The statement around a lambda assigns the function, not this value.
                is_lambda = own.f_code.co_name == "<lambda>"
                variable = None if is_lambda else place.variable
                places[node.name] = replace(place, variable=variable, turn=turn_of(own, place.text))
        return node

    PythonKeyTracer.create_node = create_node  # type: ignore[method-assign]
    # Function.apply asks this class, also where a name was given to `Custom.apply` before.
    _SingleLevelFunction.apply = classmethod(apply)  # type: ignore[attr-defined]
    try:
        yield places, applied
    finally:
        PythonKeyTracer.create_node = create  # type: ignore[method-assign]
        del _SingleLevelFunction.apply  # type: ignore[attr-defined]


_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)


def _statement_at(
    file: str, line: int, at: tuple[int, int] | None = None
) -> SourceStatement | None:
    """Return the statement on a line; ``at`` selects one of several, and a part of it."""
    inside = [
        s for s in statements_of(file, _SIMPLE) if s.lineno <= line <= (s.end_lineno or s.lineno)
    ]
    if not inside:
        text = " ".join(linecache.getline(file, line).split())
        return SourceStatement(file, line, text) if text else None
    statement = min(inside, key=lambda s: (s.end_lineno or s.lineno) - s.lineno)
    alike = [
        s for s in inside if (s.lineno, s.end_lineno) == (statement.lineno, statement.end_lineno)
    ]
    alike = [s for s in alike if _contains_position(s, at)] or alike
    text = "; ".join(" ".join(ast.unparse(s).split()) for s in alike)
    variable = _variable(alike[0], at) if len(alike) == 1 else None
    return SourceStatement(file, statement.lineno, text, variable)


def _contains_position(e: ast.stmt | ast.expr, at: tuple[int, int] | None) -> bool:
    """True if a statement or expression contains a position of the source."""
    end = (e.end_lineno or e.lineno, e.end_col_offset or e.col_offset)
    return at is not None and (e.lineno, e.col_offset) <= at < end


def _variable(statement: ast.stmt, at: tuple[int, int] | None = None) -> str | None:
    match statement:
        case ast.Assign([ast.Tuple(names)], ast.Tuple(values)) if len(names) == len(values):
            of_it = [n for n, e in zip(names, values, strict=True) if _contains_position(e, at)]
            match of_it:
                case [ast.Name(name)]:
                    return name
        case ast.Assign([ast.Name(name)]):
            return name
        case ast.AugAssign(ast.Name(name)) | ast.AnnAssign(ast.Name(name)):
            return name
    return None

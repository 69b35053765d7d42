"""``derive.read_torch``: read a PyTorch forward into an operation, and check it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import sympy
import torch
from torch.utils._pytree import tree_flatten

from derive.budget import collected_later
from derive.errors import DeriveError, DeriveWarning
from derive.notation.advice import plural
from derive.notation.operation import Operation
from derive.tracing import (
    elementwise,
    indexing,
    products,
    reductions,
    sampling,
    segments,
    slicing,
    views,
    windows,
)
from derive.tracing import values as tv
from derive.tracing.calls import as_function, bind, collected, module_tensors, with_argument_value
from derive.tracing.context import Context, TracedEquation
from derive.tracing.elementwise import as_number
from derive.tracing.emit_notation import equations_of, operation_text, with_fewest_sizes
from derive.tracing.graph import Assumed, assuming, stopped, trace_graph, uncompiled
from derive.tracing.names import letters_in, notation_name, numbers_as_stored
from derive.tracing.parameters import Watched, numbers_in, perturbed_number, with_parameter
from derive.tracing.products import hoisted_products
from derive.tracing.reader import Reader
from derive.tracing.refusals import SizesUnread
from derive.tracing.sizes import SymbolicSizes
from derive.tracing.sorting import by_ranks
from derive.tracing.validate import BEYOND, LARGE, Differs, OtherBranch, check
from derive.tracing.views import separated_axes
from derive.tracing.writes import ComputedInputs, computed_inputs

FAMILIES = elementwise, reductions, views, slicing, products, indexing, windows, sampling, segments
"""Modules of readings; an import registers them."""


@dataclass(frozen=True)
class Reading:
    """An operation, its text, and the function of its inputs that it was read from."""

    operation: Operation
    text: str
    function: Callable[..., Any]
    tensors: dict[str, Any]
    numbers: tuple[str, ...]
    """Parameters of the operation that are arguments of the function."""
    outputs: tuple[str, ...]
    """Kind of each output of the function; '' of None. Truths are integers in the operation."""
    computed: ComputedInputs
    """Inputs that are no arguments of the function."""
    structure: Any
    """Pytree structure of the function's result."""
    same: tuple[str | None, ...]
    """For each output, the input that the function returns as it is."""
    kind: Any = None
    """Dataclass of the function's result, whose fields ``structure`` has."""
    changed: tuple[str, ...] = ()
    """Attributes that the function sets on its object as it runs; the operation sets none."""
    asked: tuple[str, ...] = ()
    """Checks of tensor values, with an error if they fail."""
    has_branches: bool = False
    """True if a result depends on truth tests of tensors."""
    written: Collection[str] = ()
    """Inputs with positions of writes; in the operation, nothing is written at a negative one."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """Sizes at which the operation silently differs from the function, and how."""
    fits: Callable[[Mapping[str, Any]], bool] | None = None
    """True of tensors with sizes at which the operation does not differ, if it does at others."""
    held: bool = False
    """True if a part is computed under no_grad; it has a tangent, the operation's part has none."""
    leaves_out: bool = False
    """True if the function returns plain numbers or texts too, which the operation has not."""

    def warn(self) -> None:
        """Warn where the operation silently differs from the function."""
        for where, differs in self.differs.items():
            text = f"the spec differs from the function {where}: {differs}"
            warnings.warn(f"{text}; it holds at other sizes", DeriveWarning, stacklevel=3)


def read_torch(
    function: Any,
    *examples: Any,
    name: str | None = None,
    letters: Mapping[str, str] | None = None,
    parameters: Sequence[str] | None = None,
    **named: Any,
) -> Operation:
    """Read a PyTorch function or module into an operation.

    Args:
        function: a function of tensors, or an ``nn.Module``, whose parameters and buffers become
            inputs.
        examples: arguments of one call. Flags and integers keep their example values.
        name: the name of the operation. Default: that of the function.
        letters: index letters of inputs, such as ``{"x": "btc"}``.
        parameters: the float arguments that become parameters. Default: all whose role is clear.
        named: keyword arguments of the call.

    Returns:
        An `Operation`. Its values and gradients were compared with those of the function in
        float64, at the sizes of the examples and at several others.

    Raises:
        DeriveError: the function cannot be read, with the line of code and what to do; or the
            operation differs from the function.

    >>> import derive, torch
    >>> def layer(x, w):
    ...     return torch.tanh(x @ w)
    >>> print(derive.read_torch(layer, torch.ones(2, 3), torch.ones(3, 4)))
    op layer(x[n, c], w[c, k]) -> y
    y[n, k] = tanh(sum[c](x[n, c]*w[c, k]))
    """
    made = reading(function, *examples, name=name, letters=letters, parameters=parameters, **named)
    made.warn()
    return made.operation


def reading(
    function: Any,
    *examples: Any,
    name: str | None = None,
    letters: Mapping[str, str] | None = None,
    parameters: Sequence[str] | None = None,
    comments: bool = True,
    **named: Any,
) -> Reading:
    """Return the operation, its text and the function that it was read from."""
    if isinstance(function, torch.nn.Module):
        function = getattr(function, "_orig_mod", function)  # of torch.compile
    elif isinstance(function, torch.jit.ScriptFunction):
        function = getattr(function, "_torchdynamo_inline", function)
    bound = bind(function, examples, named)
    with uncompiled(), by_ranks():
        made = reading_of(function, bound, name, letters, parameters, comments)
    if made.computed.unread is not None:
        raise made.computed.unread
    return made


def reading_of(
    function: Any,
    bound: inspect.BoundArguments,
    name: str | None = None,
    letters: Mapping[str, str] | None = None,
    parameters: Sequence[str] | None = None,
    comments: bool = True,
) -> Reading:
    """Return the reading of a call.

    The forward of a Function is read as differentiable, or else as one that passes no gradient on:
    the check of the reading compares the gradients.
    """
    asked = function, bound, name, letters, parameters, comments
    with collected_later():
        try:
            try:
                made = _with_free_sizes(*asked)
            except Differs as error:
                made = _differently(asked, error)
        except DeriveError:
            raise
        except Exception as error:
            raise DeriveError(
                f"the function cannot be read, by an error of derive's own, which you may report: "
                f"{type(error).__name__}: {error}",
                kind="internal-error",
            ) from error
    return replace(made, changed=tuple(sorted(getattr(made.function, "changed", ()))))


def _differently(asked: Sequence[Any], error: Differs) -> Reading:
    """Return the reading with Functions that pass no gradient on, or with numbers as stored."""
    for way in (stopped, numbers_as_stored):
        with way(), suppress(DeriveError):
            return _with_free_sizes(*asked)
    raise error from None


_OF_SIZES = ("two-sizes", "circular-size", "unknown-size")


def _with_free_sizes(function: Any, bound: inspect.BoundArguments, *more: Any) -> Reading:
    """Return the reading with as many free sizes as it has: every size of an example, if it can be.

    If another branch differs, the largest or least of sizes, a branch of Python, is a formula, or
    the parameters and buffers of a module keep their sizes. Else the quotients of sizes are rounded
    down, or those keep their sizes, or equal sizes stay equal, or the last axes keep their sizes,
    as the width of a head.
    """
    try:
        return _reading(function, bound, *more)
    except DeriveError as error:
        module = function if isinstance(function, torch.nn.Module) else None
        own = module_tensors(module, collected(bound)[0])
        as_built = [Assumed(fixed=own)] if own else []
        if isinstance(error, OtherBranch):
            ways = [Assumed(chosen=True), Assumed(chosen=True, rounded=True), *as_built]
        elif isinstance(error, SizesUnread):
            ways = [Assumed(rounded=True), *as_built, Assumed(alike=True), Assumed(last=True)]
        elif error.kind in _OF_SIZES:
            ways = [*as_built, Assumed(alike=True), Assumed(last=True)]
        else:
            raise
        for way in ways:
            with assuming(way), suppress(DeriveError):
                return _reading(function, bound, *more)
        raise


def _reading(
    function: Any,
    bound: inspect.BoundArguments,
    name: str | None,
    letters: Mapping[str, str] | None,
    parameters: Sequence[str] | None,
    comments: bool,
) -> Reading:
    call, tensors = as_function(function, bound)
    if not tensors:
        message = "the example arguments contain no tensor; pass examples of the arguments"
        raise DeriveError(message, kind="torch-arguments")
    own = getattr(function, "__name__", None) or type(function).__name__
    title = name or (notation_name(own) if own.isidentifier() else "f")
    title += "_" if name is None and title in tensors else ""
    context, computed, made = _traced_equations(call, tensors, title)
    inputs = {name: context.inputs[name] for name in tensors}
    shapes = {o[0]: tuple(map(bool, o[1].axes)) for o in made[0] if o is not None}
    numbers: dict[str, float] = {}
    others: list[tuple[Callable[..., Any], dict[str, float]]] = []
    wanted = numbers_in(bound.arguments)
    for own, value in wanted.items():
        if (parameters is not None and own not in parameters) or own in {*context.inputs, title}:
            continue
        asked: list[bool] = []
        near = perturbed_number(value)
        other, watched = (
            as_function(function, with_argument_value(bound, own, x))[0]
            for x in (near, Watched.of(near, asked))
        )
        try:
            other_context, other_computed, _ = _traced_equations(watched, tensors, title)
            again = other_context.equations
            if other_context.sizes.numbers_asked() != context.sizes.numbers_asked():
                asked.append(True)
            if computed.said() != other_computed.said():
                asked.append(True)
            stay = context.outward.signs
            found = with_parameter(context.equations, again, own, value, stay, numbers)
        except DeriveError:
            found = None
        if found is not None and not asked and own not in {e.name for e in found}:
            context.equations = found
            numbers[own] = value
            others.append((other, {own: near}))
        elif parameters is not None:
            raise DeriveError(
                f"the role of {own} in the function is unclear, so it cannot become a "
                f"parameter; it stays the number {value}",
                kind="unknown-option",
            )
    ranks = {n: len(v.axes) for n, v in inputs.items()}
    for own, named_axes in (letters or {}).items():
        if ranks.get(own) != len(named_axes):
            taken = ", ".join(f"{n} with {plural(r, 'letter')}" for n, r in ranks.items())
            raise DeriveError(
                f"letters {own}={''.join(named_axes)} fit no input; the inputs are {taken}",
                kind="unknown-option",
            )
    own_letters = {**letters_in(function, ranks), **(letters or {})}
    # Parameters and buffers of a module are inputs only if they are read.
    arguments = tuple(collected(bound)[0])
    said = title, context, context.inputs, shapes, own_letters, comments, numbers, arguments
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "input .* is not used", DeriveWarning)
        op, text = with_fewest_sizes(partial(operation_text, *said))
        floats = {o[0] for o in made[0] if o is not None and o[1].kind == "float"}
        whole = {e.name for e in op.equations if e.kind == "int"} & floats
        if whole:
            context.equations = [_as_float(e) if e.name in whole else e for e in context.equations]
            op, text = with_fewest_sizes(partial(operation_text, *said))
    calls = [(call, {}), *others]
    traced = context.sizes, inputs, computed, context.ascending, context.applied
    differs = check(op, calls, tensors, *traced)
    known = {p.name for p in op.parameters}
    return Reading(
        operation=op,
        text=text,
        function=call,
        tensors=tensors,
        numbers=tuple(n for n in numbers if n in known),
        outputs=tuple("" if x is None else x[1].kind for x in made[0]),
        structure=made[1],
        same=tuple(None if n is None else [*tensors][n] for n in context.given),
        kind=next(iter(call.kinds), None),  # type: ignore[attr-defined]
        asked=tuple(map(str, context.answers)),
        has_branches=context.has_branches,
        written=context.written,
        held=context.held,
        leaves_out=context.leaves_out,
        computed=computed,
        differs=differs,
        fits=context.sizes.bounded(inputs) if {BEYOND, LARGE} & differs.keys() else None,
    )


def _traced_equations(
    call: Callable[..., Any], tensors: Mapping[str, Any], title: str
) -> tuple[Context, ComputedInputs, tuple[list[tuple[str, tv.TracedValue] | None], Any]]:
    """Return (the context, the inputs that are computed, (the named outputs, their pytree))."""
    graph = trace_graph(call, tensors)
    taken = {title, *tensors}
    inputs = _inputs(graph, tensors)
    context = Context(graph, inputs, taken)
    found = _flat_outputs(Reader(context, graph).read(inputs.values()))
    given, structure = tree_flatten(graph.output)
    if any(x is None is not other for x, other in zip(found, given, strict=True)):
        raise DeriveError(
            "the function returns positions that have no equation, such as those of a max_pool; "
            "leave them out of the result",
            kind="torch-result",
        )
    outputs: list[tuple[str, tv.TracedValue] | None] = []
    for n, x in enumerate(found):
        names = [made[0] for made in outputs if made is not None]
        outputs.append(None if x is None else (_output_name(context, x, n, names), x))
    if all(made is None for made in outputs):
        raise DeriveError("the function returns no tensor", kind="torch-result")
    names = [made[0] for made in outputs if made is not None]
    equations = hoisted_products(context.equations, context.fresh)
    context.equations = separated_axes(equations, names)
    nodes = (x for e in equations_of(context.equations, names) for x in tv.walk(e.body))
    read = {x.name for x in nodes if isinstance(x, tv.TracedRead)}
    results = {name: own for name, own in context.computed.items() if name in read}
    return context, computed_inputs(graph, results), (outputs, structure)


def _flat_outputs(made: Any) -> list[Any]:
    if made is None or isinstance(made, tv.TracedValue):
        return [made]
    if isinstance(made, dict | tuple | list):
        parts = made.values() if isinstance(made, dict) else made
        return [x for part in parts for x in _flat_outputs(part)]
    if isinstance(made, sympy.Basic | int | float):
        text = "the function returns a number, not a tensor; return a tensor"
        raise DeriveError(text, kind="torch-result")
    text = f"the function returns {type(made).__name__}, not a tensor"
    raise DeriveError(text, kind="torch-result")


def _output_name(context: Context, value: tv.TracedValue, n: int, taken: Collection[str]) -> str:
    """Return the name of an output's equation, which is none of the names taken."""
    value = as_number(value)
    whole = tuple(tv.joined(a) for a in value.axes if a)
    if isinstance(value.node, tv.TracedRead) and value.node.positions == whole:
        own = value.node.name
        if own not in taken and any(e.name == own for e in context.equations):
            return own
    named = context.named(value, "y" if n == 0 else f"y{n + 1}")
    if isinstance(named.node, tv.TracedRead) and named.node.name in taken:
        named = context.again_named(named, f"y{n + 1}")
    if not isinstance(named.node, tv.TracedRead):
        raise DeriveError(
            "an output is infinite where a condition holds, which an equation cannot be; put the "
            "softmax, logsumexp or extremum that leaves -inf out into the function",
            kind="torch-result",
        )
    return named.node.name


def _as_float(e: TracedEquation) -> TracedEquation:
    """Multiply an equation of integers by exp(0), so that its value is a float."""
    one = tv.apply("exp", 0)
    match e.body:
        case tv.TracedNumber(value) if value in (0, 1):
            return replace(e, body=one if value else tv.apply("log", 1))
    return replace(e, body=one * e.body)


def _inputs(graph: Any, tensors: Mapping[str, Any]) -> dict[str, tv.TracedValue]:
    """Return a value for each argument, with an index for each axis that is not of size 1."""
    sizes, found = SymbolicSizes(graph.shapes, graph.rounded), {}
    for (name, t), node in zip(tensors.items(), graph.graph.nodes, strict=False):
        axes = tuple(tv.new_axis(sizes.of(n)) for n in node.meta["val"].shape)
        found[name] = tv.input_value(name, axes, tv.kind_of(t))
    return found

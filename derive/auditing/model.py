"""The operation of a forward: its derived gradients, and their values at a point."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from derive.algebra.expr import Access, Composite, Expr, Index, Num, walk
from derive.algebra.interpret import Array, Machine
from derive.algebra.substitution import replace_inside_out
from derive.api import derivation
from derive.auditing.forward import Subject, unjudged
from derive.auditing.gradients import Outcome
from derive.auditing.points import is_float, is_tensor
from derive.check import oracle
from derive.check.reference import values
from derive.errors import DeriveError
from derive.notation.operation import Choice, Operation
from derive.notation.specification import parse
from derive.reports.formula import inlined
from derive.reports.result import Derivation
from derive.show.formula import equation, sides
from derive.tracing.read import reading


@dataclass(frozen=True)
class Model:
    """An operation whose inputs are the tensor arguments of a forward, in order."""

    operation: Operation
    names: tuple[str, ...]
    """The names of the forward's arguments."""
    cotangents: tuple[str, ...]
    """The user's names of the outputs' cotangents, in order."""
    option: str | None = None
    places: tuple[int, ...] = ()
    """The numbers of the tensor arguments."""
    results: tuple[int, ...] = ()
    """The numbers of the forward's outputs that are tensors; () if all are."""

    def of_outputs(self, every: Sequence[Any]) -> Sequence[Any]:
        """Return the items of the operation's outputs, from one for each output of the forward."""
        return [every[k] for k in self.results] if self.results else every

    @cached_property
    def derived(self) -> Derivation:
        return derivation(self.operation, self.option)

    def inputs(self, args: Sequence[Any]) -> dict[int, str]:
        """Return the input name of each tensor argument, matched by name, else by position."""
        named = [t.name for t in self.operation.inputs]
        if all(self.names[n] in named for n in self.places):
            known = {n: self.names[n] for n in self.places}
        else:
            known = dict(zip(self.places, named, strict=False))
        return {n: name for n, name in known.items() if is_tensor(args[n])}

    def parameters(self, args: Sequence[Any]) -> dict[str, Any]:
        """Return the values of parameters, matched by argument name."""
        known = {p.name for p in self.operation.parameters}
        return {
            name: a
            for name, a in zip(self.names, args, strict=False)
            if name in known and not is_tensor(a)
        }

    def axis_class(self, args: Sequence[Any]) -> dict[tuple[int, int], str]:
        """Map (argument, axis) to its extent, for tensors whose axes are all single indices."""
        axes = {t.name: t.axes for t in self.operation.inputs}
        found = {}
        for n, name in self.inputs(args).items():
            if len(axes[name]) == args[n].ndim:
                for at, axis in enumerate(axes[name]):
                    if isinstance(axis, Index) and not axis.group:
                        found[n, at] = axis.extent
        return found

    @cached_property
    def _said(self) -> dict[str, str]:
        taken = {e.name for e in self.operation.equations}
        taken |= {t.name for t in self.operation.inputs}
        derived = (*self.derived.adjoints, *self.derived.gradients.values())
        taken |= {f.name for f in derived}
        given = [name for _, name in self.derived.cotangents]
        outputs = [o for o, _ in self.derived.cotangents]
        order = [self.operation.outputs.index(o) for o in outputs]
        found = {}
        for name, at in zip(given, order, strict=True):
            if at < len(self.cotangents) and self.cotangents[at] not in taken:
                found[name] = self.cotangents[at]
        inputs = [t.name for t in self.operation.inputs]
        if not all(self.names[n] in inputs for n in self.places):
            for n, name in zip(self.places, inputs, strict=False):
                if self.names[n] not in taken:
                    found[name] = self.names[n]
        return found

    @cached_property
    def letters(self) -> dict[str, str]:
        """The first index letter of each extent in the operation's text."""
        found: dict[str, str] = {}
        op = self.operation
        every = [*(t.axes for t in op.inputs), *(e.axes for e in op.equations)]
        for part in (p for axes in every for axis in axes for p in walk(axis)):
            if isinstance(part, Index):
                found.setdefault(part.extent, part.name)
        return found

    def shown(self, e: Expr, axes: Sequence[Expr] = ()) -> str:
        """Print the expression below these axes, with the user's names of cotangents."""
        return sides("", axes, renamed_tensors(e, self._said), "unicode")[1]

    def formulas(self) -> list[str]:
        """Return the derived equations: definitions, adjoints, then every gradient."""
        d = self.derived
        every = (*d.definitions, *d.adjoints, *d.gradients.values())
        return [equation(f.name, f.axes, renamed_tensors(f.body, self._said)) for f in every]

    def opened(self, e: Expr) -> Expr:
        """Inline named adjoints in e, recursively."""
        return inlined(e, {f.name: f for f in self.derived.adjoints})

    def written_out(self, e: Expr) -> Expr:
        """Inline the equations and definitions in e, one level."""
        d = self.derived
        every = (*d.equations, *d.definitions)
        return inlined(e, {f.name: f for f in every}, deep=False)

    def outputs_opened(self, e: Expr) -> Expr:
        """Inline the outputs that e reads."""
        outputs = self.operation.outputs
        known = {f.name: f for f in self.derived.equations if f.name in outputs}
        return inlined(e, known, deep=False)


def renamed_tensors(e: Expr, names: Mapping[str, str]) -> Expr:
    """Return e with tensors renamed."""

    def named(part: Expr) -> Expr:
        if isinstance(part, Access) and part.tensor in names:
            return Access(names[part.tensor], part.positions)
        return part

    return replace_inside_out(e, named)


def without_ones(array: Array, axes: Sequence[Expr]) -> Array:
    """Squeeze axes of size 1 while the array has more axes than ``axes``."""
    rank = len(axes)
    if any(isinstance(a, Index) and a.group for a in axes):
        return array
    for axis in reversed(range(array.ndim)):
        if array.ndim > rank and array.shape[axis] == 1:
            array = array.squeeze(axis)
    return array


class PointValues:
    """All values of the operation at one point: tensors, definitions, cotangents, adjoints."""

    def __init__(self, model: Model, args: Sequence[Any], cotangents: Sequence[Any]) -> None:
        op, d = model.operation, model.derived
        self.axes: dict[str, tuple[Expr, ...]] = {t.name: t.axes for t in op.inputs}
        tensors: dict[str, Array | None] = {}
        for n, name in model.inputs(args).items():
            value = args[n].detach().cpu()
            value = value.double() if is_float(value) else value
            tensors[name] = without_ones(value.numpy(), self.axes[name])
        run = oracle.ran(op, tensors, model.parameters(args))
        self.machine: Machine = run.machine
        self.sizes = dict(self.machine.sizes)
        self.known: dict[str, Array] = self.machine.tensors  # type: ignore[assignment]
        self.axes |= {e.name: e.axes for e in op.equations}
        outputs = list(op.outputs)
        for output, name in d.cotangents:
            given = model.of_outputs(cotangents)[outputs.index(output)]
            shape = self.known[output].shape
            self.known[name] = given.detach().cpu().double().numpy().reshape(shape)
            self.axes[name] = self.axes[output]
        for formula in (*d.definitions, *d.adjoints):
            self.known[formula.name] = self.machine.fill(formula.axes, formula.body, "float")
            self.axes[formula.name] = formula.axes

    def filled(self, axes: Sequence[Expr], body: Expr) -> Array:
        """Evaluate an expression over the axes."""
        return self.machine.fill(axes, body, "float")

    def at(self, axes: Sequence[Expr], place: Sequence[int], body: Expr) -> float:
        """Evaluate one element; axes are single indices, composites and constants."""
        scope = self._scope(axes, place)
        return float(self.machine.code(body)(scope))

    def _scope(self, axes: Sequence[Expr], place: Sequence[int]) -> dict[Index, Any]:
        scope: dict[Index, Any] = {}
        at = list(place)
        for axis in axes:
            width = len(self.machine.shape(axis))
            mine, at = at[:width], at[width:]
            if isinstance(axis, Index):
                scope[axis] = tuple(mine) if axis.group else mine[0]
            elif isinstance(axis, Composite):
                left = mine[0]
                for part in reversed(axis.args):
                    if isinstance(part, Index):
                        size = self.machine.extent(part)
                        scope[part] = left % size
                        left //= size
            else:
                assert isinstance(axis, Num)
        return scope


# ---------------------------------------------------------------------------------------- operation
# The operation and the torch function of a forward, from ``reference`` or by tracing.

Reference = Operation | str | Callable[..., Any] | None


def operation_of(reference: Reference) -> Operation | None:
    """Return the operation if the reference is one, or its text."""
    if isinstance(reference, str):
        return parse(reference)
    return reference if isinstance(reference, Operation) else None


def torch_function(reference: Reference, names: Sequence[str]) -> Callable[..., Any] | None:
    """Return the reference as a torch function of forward's arguments."""
    op = operation_of(reference)
    if op is None:
        return reference if callable(reference) else None

    def run(*args: Any) -> tuple[Any, ...]:
        model = Model(op, tuple(names), (), None, _tensor_argument_numbers(args))
        known = model.inputs(args)
        if len(known) < len(model.places):
            raise unjudged(
                f"{op.name} has {len(op.inputs)} inputs, but the forward takes "
                f"{len(model.places)} tensors; give the operation of this forward"
            )
        given = {name: args[n] for n, name in known.items()}
        made = values(op, given, model.parameters(args))
        return tuple(made[name] for name in op.outputs if name in made)

    return run


def _tensor_argument_numbers(args: Sequence[Any]) -> tuple[int, ...]:
    return tuple(n for n, a in enumerate(args) if is_tensor(a))


def model_of(
    subject: Subject,
    args: Sequence[Any],
    names: tuple[str, ...],
    reference: Reference,
    made: Outcome,
) -> Model | str:
    """Return the operation with the user's names; a text if the forward cannot be traced.

    Of the outcome of a call, a float output without a cotangent is detached.
    """
    results: list[int] = []
    op = operation_of(reference) or _trace_subject(subject, args, names, made, results)
    if isinstance(op, str):
        return op
    cotangents = subject.cotangents(max(results, default=len(op.outputs) - 1) + 1)
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    option = None
    if choice is not None and choice.name in names:
        option = args[names.index(choice.name)]
    model = Model(op, names, (), option, _tensor_argument_numbers(args), tuple(results))
    return replace(model, cotangents=tuple(model.of_outputs(cotangents)))


def give_names(function: Callable[..., Any], names: Sequence[str]) -> None:
    """Give the arguments of a function these names, if they are distinct identifiers."""
    if all(n.isidentifier() for n in names) and len(set(names)) == len(names):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(n, kind) for n in names])
        function.__signature__ = signature  # type: ignore[attr-defined]


def unshared(args: Sequence[Any], made: Outcome) -> Sequence[Any]:
    """Return the arguments, as copies if the forward changes some of them, as of statistics."""
    return [a.clone() if is_float(a) else a for a in args] if made.state else args


def _trace_subject(
    subject: Subject,
    args: Sequence[Any],
    names: Sequence[str],
    outcome: Outcome,
    results: list[int],
) -> Operation | str:
    """Trace the forward or the reference into an operation; a text if that fails.

    ``results`` becomes the numbers of the outputs that are tensors, which alone are traced.
    """

    def forward(*given: Any) -> Any:
        outputs = subject.traced(unshared(given, outcome))
        every = dict(enumerate(zip(outputs, outcome.cotangents, strict=False)))
        results[:] = [k for k, (y, _) in every.items() if is_tensor(y)]
        pairs = [every[k] for k in results]
        made = [y.detach() if g is None and is_float(y) else y for y, g in pairs]
        return made[0] if len(made) == 1 else tuple(made)

    # A default that the example leaves out is a parameter too.
    args = (*args, *(() if subject.reference is not None else subject.defaults(len(args))))
    names = subject.plain_names(len(args))
    give_names(forward, names)
    forward.__name__ = subject.name
    try:
        return reading(forward, *args).operation
    except DeriveError as error:
        return str(error).partition("\n")[0]
    except Exception as error:
        return f"{type(error).__name__}: {error}"

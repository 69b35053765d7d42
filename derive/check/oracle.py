"""Evaluate an operation by loops over its equations, and its gradient by differences.

The oracle shares no code with the pipeline: sizes are read from the arrays, each equation is filled
element by element (`derive.algebra.interpret`), and a gradient is a central difference of the
outputs. Every stage is tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from derive.algebra.expr import Call, Composite, Expr, Guard, Index, Param, Size, as_expr, walk
from derive.algebra.interpret import Array, Code, Extents, Machine, Scope, evaluate, every
from derive.errors import DeriveError
from derive.notation.operation import (
    AxisOf,
    Choice,
    Equation,
    KeepDim,
    Number,
    Operation,
    SizeOf,
    Tensor,
    depended_on,
)
from derive.notation.split import lettered

_STEP = 1e-3
"""The larger step of a difference, relative to max(1, |x|)."""


def run(
    op: Operation, tensors: Mapping[str, Array | None], parameters: Mapping[str, Any]
) -> dict[str, Array]:
    """Return the array of every equation that the selected outputs need, by name."""
    return ran(op, tensors, parameters).made


def outputs(
    op: Operation,
    tensors: Mapping[str, Array | None],
    parameters: Mapping[str, Any],
    still: Run | None = None,
    judge: type[LoopEvaluator] | None = None,
) -> dict[str, Array]:
    """Return the selected outputs by name, in order, with the axes kept by ``keepdim``.

    ``still`` is the run that provides values under ``detach``; ``judge`` is the evaluator.
    """
    return _restore_kept_axes(op, ran(op, tensors, parameters, still, judge), parameters)


def gradient(
    op: Operation,
    tensors: Mapping[str, Array | None],
    cotangents: Mapping[str, Array],
    parameters: Mapping[str, Any],
    wrt: str,
) -> Array:
    """Return d(Sum outputs*cotangents)/d wrt, by Richardson extrapolation of central differences.

    The error is O(step^4), about 1e-10 for values of order 1. Values under ``detach`` stay
    constant. Meaningless within a step of a kink.
    """
    moved = _PerturbedInput(op, tensors, cotangents, parameters, wrt)
    result = np.empty_like(moved.base)
    for place in np.ndindex(result.shape):
        unit = np.zeros_like(result)
        unit[place] = 1
        result[place] = moved.slope(unit, max(1.0, abs(float(moved.base[place]))))
    return result


def slopes(
    op: Operation,
    tensors: Mapping[str, Array | None],
    cotangents: Mapping[str, Array],
    parameters: Mapping[str, Any],
    wrt: str,
    directions: Sequence[Array],
    scale: float = 1.0,
) -> list[float]:
    """Return Sum gradient*direction for each direction, from two differences each.

    ``scale`` is a factor of their steps.
    """
    moved = _PerturbedInput(op, tensors, cotangents, parameters, wrt)
    return [moved.slope(direction, scale) for direction in directions]


class _PerturbedInput:
    """Evaluates an operation with one input perturbed."""

    def __init__(
        self,
        op: Operation,
        tensors: Mapping[str, Array | None],
        cotangents: Mapping[str, Array],
        parameters: Mapping[str, Any],
        wrt: str,
    ) -> None:
        base = tensors[wrt]
        if base is None:
            raise ValueError(f"{wrt} is None, so it has no gradient")
        self.op, self.parameters, self.cotangents = op, parameters, cotangents
        self.base = np.array(base, np.float64)
        self.place = self.base.copy()
        self.tensors = {**tensors, wrt: self.place}
        self.still = ran(op, tensors, parameters)
        self.whole: Run | None = None

    def at(self, moved: Array) -> dict[str, Array]:
        np.copyto(self.place, moved)
        if self.whole is None:
            self.whole = ran(self.op, self.tensors, self.parameters, self.still)
        else:
            self.whole.repeat()
        found = _restore_kept_axes(self.op, self.whole, self.parameters)
        return {name: np.array(found[name]) for name in self.cotangents}

    def slope(self, direction: Array, scale: float) -> float:
        """Return the derivative along a direction."""
        step = _STEP * scale
        near, far = (self._difference(direction, s) for s in (step / 2, step))
        return (4 * near - far) / 3

    def _difference(self, direction: Array, step: float) -> float:
        above = self.at(self.base + step * direction)
        below = self.at(self.base - step * direction)
        total = 0.0
        for name, cotangent in self.cotangents.items():
            with np.errstate(invalid="ignore"):
                gap = above[name] - below[name]
            # Equal infinities have the difference 0.
            total += float(np.sum(np.where(above[name] == below[name], 0, gap) * cotangent))
        return total / (2 * step)


class LoopEvaluator(Machine):
    """Evaluates lazily: nothing is read where a bracket or branch excludes it.

    So a guard that fails when it is evaluated is an error: its bracket holds, but the position is
    out of range.
    """

    def access(self, tensor: str, positions: tuple[Expr, ...]) -> Code:
        guards = [self.code(p.condition) for p in positions if isinstance(p, Guard)]
        holds = every(guards)
        inside = tuple(p.position if isinstance(p, Guard) else p for p in positions)
        read = super().access(tensor, inside)

        def compute(s: Scope) -> Any:
            if not holds(s):
                raise IndexError(f"{tensor} is read out of range where its guard holds")
            return read(s)

        return compute if guards else read


@dataclass
class Run:
    """The arrays of one run, and the evaluator that computed them."""

    machine: Machine
    made: dict[str, Array]
    equations: Sequence[Equation]

    def repeat(self) -> None:
        """Fill the arrays again, where they are, from the tensors as they are now."""
        for e in self.equations:
            self.machine.fill(e.axes, e.body, e.kind, self.made[e.name])


def ran(
    op: Operation,
    tensors: Mapping[str, Array | None],
    parameters: Mapping[str, Any],
    still: Run | None = None,
    judge: type[LoopEvaluator] | None = None,
) -> Run:
    """Evaluate every equation that the selected outputs need, with the evaluator ``judge``."""
    found = sizes(op, tensors, parameters)
    numbers = numeric_values(op, parameters, found)
    known: dict[str, Array] = {}
    axes = {tensor.name: tensor.axes for tensor in op.inputs}
    axes |= {equation.name: equation.axes for equation in op.equations}
    machine = (judge or LoopEvaluator)(
        known, found, numbers, axes, still.machine if still else None
    )
    for tensor in op.inputs:
        given = tensors.get(tensor.name)
        if given is None:
            assert tensor.default is not None
            shape = shape_of(tensor.axes, found)
            known[tensor.name] = np.full(shape, _default_value(tensor.default))
        else:
            known[tensor.name] = np.asarray(given)
    made = {}
    needed = depended_on(op, selected(op, parameters))
    for equation in needed:
        filled = machine.fill(equation.axes, equation.body, equation.kind)
        made[equation.name] = known[equation.name] = filled
    return Run(machine, made, needed)


def _default_value(value: Fraction | Expr) -> float | int:
    return evaluate(as_expr(value), {}, {}, {}, {})


def numeric_values(op: Operation, parameters: Mapping[str, Any], found: Extents) -> dict[str, Any]:
    """Return the values of numeric parameters, sizes included."""
    unknown = sorted(set(parameters) - {p.name for p in op.parameters})
    if unknown:
        raise TypeError(f"{op.name} has no parameter {', '.join(unknown)}")
    numbers: dict[str, Any] = {}
    for parameter in op.parameters:
        if isinstance(parameter, SizeOf) and parameter.extent in found:
            numbers[parameter.name] = found[parameter.extent]
        if isinstance(parameter, Number):
            if parameter.name not in parameters and parameter.default is None:
                raise TypeError(f"{op.name} needs the parameter {parameter.name}")
            default = None if parameter.default is None else _default_value(parameter.default)
            numbers[parameter.name] = parameters.get(parameter.name, default)
    return numbers


def selected(
    op: Operation, parameters: Mapping[str, Any] | None = None, option: str | None = None
) -> tuple[str, ...]:
    """Return the outputs of an option: ``option``, else its parameter's, else the first.

    Without a choice parameter: all outputs. A DeriveError if there is no such option.
    """
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    if choice is None:
        if option is not None:
            raise DeriveError(
                f"{op.name} has no option {option!r}, because it has no choice parameter",
                kind="unknown-option",
            )
        return op.outputs
    outputs = dict(choice.outputs)
    if option is None:
        option = (parameters or {}).get(choice.name, choice.outputs[0][0])
    if option not in outputs:
        known = ", ".join(map(repr, outputs))
        raise DeriveError(
            f"{op.name}: {choice.name} must be one of {known}, not {option!r}",
            kind="unknown-option",
        )
    return (outputs[option],)


def _restore_kept_axes(
    op: Operation, whole: Run, parameters: Mapping[str, Any]
) -> dict[str, Array]:
    """Return the selected outputs, with axes named by ``keepdim`` restored at size 1."""
    lost = [p.index for p in op.parameters if isinstance(p, KeepDim) and parameters.get(p.name)]
    axes = {equation.name: equation.axes for equation in op.equations}
    result = {}
    for name in selected(op, parameters):
        value, left = whole.made[name], list(axes[name])
        for index in lost:
            if all(index not in walk(axis) for axis in left):
                owner = next(tensor.axes for tensor in op.inputs if index in tensor.axes)
                place = _place_of_axis(left, owner, owner.index(index))
                rank = sum(len(whole.machine.shape(axis)) for axis in left[:place])
                value = np.expand_dims(value, rank)
                left.insert(place, index)
        result[name] = value
    return result


def _place_of_axis(left: Sequence[Expr], owner: Sequence[Expr], n: int) -> int:
    """Return the place of owner's axis n in left: after predecessors, or before followers."""
    before = [at + 1 for at, axis in enumerate(left) if axis in owner[:n]]
    after = [at for at, axis in enumerate(left) if axis in owner[n + 1 :]]
    return max(before) if before else min(after, default=len(left))


def positions(size: int | tuple[int, ...]) -> int:
    """Return the number of values of an index, or of a group."""
    return math.prod(size) if isinstance(size, tuple) else size


def shape_of(axes: Sequence[Expr], found: Extents) -> tuple[int, ...]:
    """Return the shape of an array with these axes."""
    machine = Machine({}, found, {})
    return tuple(n for axis in axes for n in machine.shape(axis))


def complete(
    op: Operation, found: dict[str, int | tuple[int, ...]], numbers: Mapping[str, Any]
) -> None:
    """Add the sizes that follow from those that are known."""
    count = -1
    while count != len(found):
        count = len(found)
        for e in op.extents:
            if e.name not in found and e.size is not None:
                value = _size_value(e.size, found, numbers)
                if value is not None:
                    found[e.name] = int(value)


def _size_value(size: Expr, found: Extents, numbers: Mapping[str, Any]) -> float | int | None:
    """Evaluate the definition of a size; None if a size or parameter in it is unknown."""
    inside = list(walk(size))
    known = {e.extent for e in inside if isinstance(e, Size)} <= found.keys()
    known &= {e.name for e in inside if isinstance(e, Param)} <= numbers.keys()
    return evaluate(size, {}, found, {}, numbers) if known else None


def sizes(
    op: Operation, tensors: Mapping[str, Array | None], parameters: Mapping[str, Any]
) -> dict[str, int | tuple[int, ...]]:
    """Solve for the size of every extent, from arrays, parameters and definitions.

    A ValueError names the tensor, the axis and both sizes if two disagree.
    """
    shapes = {}
    for tensor in op.inputs:
        given = tensors.get(tensor.name)
        if given is not None:
            shapes[tensor.name] = np.shape(given)
        elif tensor.default is None:
            raise TypeError(f"{op.name} needs the tensor {tensor.name}")
    return _Solver(op, shapes, parameters).solve()


class _Solver:
    """Solves for the rank of each group, then for the size of each extent, to a fixed point."""

    def __init__(
        self, op: Operation, shapes: Mapping[str, tuple[int, ...]], parameters: Mapping[str, Any]
    ) -> None:
        self.op = op
        self.shapes = shapes
        self.parameters = parameters
        self.given = [tensor for tensor in op.inputs if tensor.name in shapes]
        self.ranks = {e.name: None if e.group else 1 for e in op.extents}
        self.found: dict[str, int | tuple[int, ...]] = {}
        self.origin: dict[str, str] = {}

    def solve(self) -> dict[str, int | tuple[int, ...]]:
        pins = self.pins()
        before = None
        while before != self.ranks:
            before = dict(self.ranks)
            for tensor in self.given:
                self.ranks_of(tensor, pins.get(tensor.name, {}))
        unsolved = [e.name for e in self.op.extents if self.ranks[e.name] is None]
        if unsolved:
            raise ValueError(f"{self.op.name}: the number of axes of *{unsolved[0]} is unknown")
        self.named()
        composites = [part for tensor in self.given for part in self.read(tensor)]
        count = -1
        while count != len(self.found):
            count = len(self.found)
            self.derived()
            for origin, axis, size in composites:
                self.divide(origin, axis, size)
        for extent in self.op.extents:
            if extent.name not in self.found:
                raise ValueError(
                    f"{self.op.name}: the given tensors and parameters do not determine "
                    f"size({extent.name})"
                )
        return {extent.name: self.found[extent.name] for extent in self.op.extents}

    def pins(self) -> dict[str, dict[int, int]]:
        """Return tensor -> spec axis -> array axis, from ``dim=axis(k)``.

        A negative dim counts from the end. It refers to the first input with axis k.
        """
        pins: dict[str, dict[int, int]] = {}
        for p in self.op.parameters:
            owner = next(
                (t for t in self.given if isinstance(p, AxisOf) and p.index in t.axes), None
            )
            if isinstance(p, AxisOf) and owner is not None:
                dim = self.parameters.get(p.name, p.default)
                if dim is None:
                    raise TypeError(f"{self.op.name} needs the parameter {p.name}")
                rank = len(self.shapes[owner.name])
                if not -rank <= dim < rank:
                    raise IndexError(f"{p.name}={dim} is not an axis of {owner.name}, rank {rank}")
                pins.setdefault(owner.name, {})[owner.axes.index(p.index)] = dim % rank
        return pins

    def width(self, axis: Expr) -> int | None:
        """Return how many array axes it has; None if unknown yet."""
        return self.ranks[axis.extent] if isinstance(axis, Index) else 1

    def ranks_of(self, tensor: Tensor, pins: Mapping[int, int]) -> None:
        """Solve for the rank of the only unknown group between two pinned axes."""
        rank = len(self.shapes[tensor.name])
        start, at = 0, 0
        for stop, end in [*sorted(pins.items()), (len(tensor.axes), rank)]:
            part = tensor.axes[start:stop]
            widths = [self.width(axis) for axis in part]
            rest = end - at - sum(w for w in widths if w is not None)
            unknown = [a for a, w in zip(part, widths, strict=True) if w is None]
            names = {a.extent for a in unknown if isinstance(a, Index)}
            if rest < 0 or (rest % len(unknown) if len(names) == 1 else rest and not names):
                form = ", ".join(map(_axis_text, tensor.axes))
                raise ValueError(f"{tensor.name}: {rank} axes do not fit {tensor.name}[{form}]")
            if len(names) == 1:
                self.ranks[names.pop()] = rest // len(unknown)
            start, at = stop + 1, end + 1

    def named(self) -> None:
        """Record the sizes given by parameters."""
        for p in self.op.parameters:
            size = self.parameters.get(p.name, p.default) if isinstance(p, SizeOf) else None
            if isinstance(p, SizeOf) and size is not None:
                if size <= 0:
                    raise ValueError(f"{p.name} must be positive, not {size}")
                self.note(p.extent, int(size), f"parameter {p.name}")

    def read(self, tensor: Tensor) -> list[tuple[str, Composite, int]]:
        """Record the size of each index; return the composite axes, to be divided later."""
        shape, at, composites = self.shapes[tensor.name], 0, []
        for axis in tensor.axes:
            width = self.width(axis)
            assert width is not None
            part = shape[at : at + width]
            origin = f"{tensor.name}: axis {at}"
            if isinstance(axis, Index):
                self.note(axis.extent, part if axis.group else part[0], origin)
            elif isinstance(axis, Composite):
                composites.append((origin, axis, part[0]))
            at += width
        return composites

    def note(self, extent: str, size: int | tuple[int, ...], origin: str) -> None:
        """Record a size; raise ValueError if another source disagrees."""
        known = self.found.setdefault(extent, size)
        first = self.origin.setdefault(extent, origin)
        if known != size:
            raise ValueError(f"{origin} ({extent}) has size {size}, but {first} has size {known}")

    def divide(self, origin: str, axis: Composite, size: int) -> None:
        """Solve for the only unknown part of a composite axis: the quotient by the others."""
        parts = [p for p in axis.args if isinstance(p, Index)]
        unknown = [p for p in parts if p.extent not in self.found]
        machine = Machine({}, self.found, {})
        known = math.prod(machine.extent(p) for p in parts if p.extent in self.found)
        if unknown and unknown[1:] == []:
            if known == 0 or size % known:
                raise ValueError(f"{origin} has size {size}, which {known} does not divide")
            self.note(unknown[0].extent, size // known, origin)
        elif not unknown and known != size:
            raise ValueError(
                f"{origin} {_axis_text(axis)} has size {size}, but its parts make {known}"
            )

    def divides(self, size: Expr) -> None:
        """Raise ValueError if an axis without an index is no multiple of what it is read at.

        The axis (t c) of an equation, read at (k m), has m = t*c/k.
        """
        match size:
            case Call("floordiv", (Size(whole), below)) if whole not in lettered(self.op):
                count, known = (evaluate(e, {}, self.found, {}, {}) for e in (Size(whole), below))
                if known and count % known:
                    raise ValueError(f"an axis has size {count}, which {known} does not divide")

    def derived(self) -> None:
        """Evaluate size definitions whose operands are known; never below 0."""
        for extent in self.op.extents:
            if extent.size is None:
                continue
            numbers = numeric_values(self.op, self.parameters, self.found)
            value = _size_value(extent.size, self.found, numbers)
            if value is not None:
                self.divides(extent.size)
                if value != int(value):
                    raise ValueError(f"size({extent.name}) would be {value}, not an integer")
                self.note(extent.name, max(0, int(value)), "its definition")


def _axis_text(axis: Expr) -> str:
    """Print an axis in the notation."""
    if isinstance(axis, Composite):
        return f"({' '.join(map(_axis_text, axis.args))})"
    return ("*" if axis.group else "") + axis.name if isinstance(axis, Index) else "0"

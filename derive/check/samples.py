"""Small inputs for checks, made from the equations alone.

All extents differ, so that transposed axes fail. Where that would make a check take minutes, an
extent differs from the two before it. Integers keep every access in bounds, and if an
integer tensor is compared with a parameter, some entries equal it. Float values are distinct and
away from 0, so that no sample is at a kink or tie.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from derive.algebra import expr as ex
from derive.algebra.interpret import Array, Extents, evaluate
from derive.check import oracle
from derive.errors import VerificationError
from derive.notation.operation import AxisOf, Choice, KeepDim, Number, Operation, SizeOf, Tensor
from derive.notation.split import composed

_SIZES = (2, 3, 4, 5, 6, 7, 8, 9)
_ASSIGNMENTS = 40
_RANGES = ((-1.5, 1.5), (-0.9, 0.9), (0.3, 1.7), (0.1, 0.9), (1.1, 2.3))
_FEW_SIZES = (2, 3, 4)
_LITTLE_WORK, _MUCH_WORK = 6_000, 30_000_000
"""Bounds of (iterations of all loops) * (elements of all inputs)."""
_INTEGER = 2
_REAL = 0.7
_MODERATE = 1e4
_SHOWN = 64
"""Tensors up to this size are printed in full."""


@dataclass(frozen=True)
class Case:
    """A variation: the ranks of the first and the other groups, and the parameters.

    ``given`` False omits each optional tensor; ``varied`` uses numbers other than the defaults;
    ``kept`` sets the flags; ``backwards`` counts run-time axes from the end; ``alike`` gives all
    free extents the same size.
    """

    label: str
    option: str | None
    ranks: tuple[int, int] = (1, 1)
    varied: bool = True
    given: bool = True
    kept: bool = False
    backwards: bool = False
    alike: bool = False


@dataclass(frozen=True)
class Sample:
    """Inputs and parameters of one call, and the outputs of the equations."""

    case: Case
    tensors: dict[str, Array | None]
    parameters: dict[str, Any]
    outputs: dict[str, Array]
    seed: int = 0

    def __str__(self) -> str:
        """Print all arguments of the call; a large tensor as shape and range."""
        lines = [f"sample of seed {self.seed}:"]
        for name, values in self.tensors.items():
            if values is None:
                lines.append(f"  {name} = None")
                continue
            shape = ", ".join(map(str, values.shape))
            line = f"  {name}[{shape}] = " if values.ndim else f"  {name} = "
            if values.size <= _SHOWN:
                lines.append(line + repr(values.tolist()))
            else:
                lines.append(f"{line}{values.size} values in [{values.min()}, {values.max()}]")
        lines += [f"  {name} = {value!r}" for name, value in self.parameters.items()]
        return "\n".join(lines)


def cases(op: Operation) -> Iterator[Case]:
    """Yield the typical case of each option, then every single variation."""
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    for option in (None,) if choice is None else tuple(o for o, _ in choice.outputs):
        typical = Case("typical", option)
        yield typical
        if any(e.group for e in op.extents):
            yield replace(typical, label="no axes in groups", ranks=(0, 0))
            yield replace(typical, label="two axes in the first group", ranks=(2, 0))
        if sum(e.group for e in op.extents) > 1:
            yield replace(typical, label="two axes in the other groups", ranks=(0, 2))
        if any(isinstance(p, Number) and p.default is not None for p in op.parameters):
            yield replace(typical, label="default parameters", varied=False)
        if any(t.default is not None for t in op.inputs):
            yield replace(typical, label="without optional tensors", given=False)
        if any(isinstance(p, AxisOf) for p in op.parameters):
            yield replace(typical, label="axes from the end", backwards=True)
        if any(isinstance(p, KeepDim) for p in op.parameters):
            yield replace(typical, label="axes kept", kept=True)


def sample(op: Operation, case: Case, seed: int = 0) -> Sample:
    """Return a sample whose outputs are moderate, else finite, else free of nan.

    Differences of large outputs have few correct digits. ``seed`` varies the values.
    """
    found: list[Sample] = []
    reason = ""
    rng = np.random.default_rng(seed)
    for shapes, parameters in _assignments(op, case):
        try:
            tensors = _legal_integers(op, rng, shapes, parameters)
        except (ValueError, IndexError, ZeroDivisionError) as error:
            reason = f": {error}"
            continue
        for low, high in _RANGES:
            values = dict(tensors)
            for t in op.inputs:
                if t.kind == "float" and t.name in shapes:
                    values[t.name] = _distinct_values(rng, shapes[t.name], low, high)
            made = _outputs_or_error(op, values, parameters)
            if isinstance(made, Exception):
                reason = f": {made}"
                continue
            whole = Sample(
                case, {t.name: values.get(t.name) for t in op.inputs}, parameters, made, seed
            )
            if all(np.abs(v).max(initial=0) <= _MODERATE and v.size for v in made.values()):
                return whole
            found.append(whole)
    for fits in (_is_finite, _is_number):
        for whole in found:
            if all(fits(v) for v in whole.outputs.values()):
                return whole
    raise VerificationError(f"{op.name}: found no inputs with finite outputs{reason}")


def _is_finite(values: Array) -> bool:
    return bool(values.size and np.isfinite(values).all())


def _is_number(values: Array) -> bool:
    return not np.isnan(values).any()


def _outputs_or_error(
    op: Operation, tensors: Mapping[str, Array | None], parameters: Mapping[str, Any]
) -> dict[str, Array] | Exception:
    """Return the outputs, or the error that prevents them."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return oracle.outputs(op, tensors, parameters)
    except (ValueError, IndexError, ZeroDivisionError, OverflowError) as error:
        return error


def _distinct_values(
    rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float
) -> Array:
    """Return values in (low, high) in random order: distinct, and none near 0."""
    n = prod(shape)
    places = (np.arange(n) + rng.uniform(0.2, 0.8, n)) / max(n, 1)
    values = low + (high - low) * places
    values = np.where(np.abs(values) < 0.02, 0.02, values)
    result: Array = rng.permutation(values).reshape(shape)
    return result


# --------------------------------------------------------------------- sizes


_Assignment = tuple[dict[str, tuple[int, ...]], dict[str, Any]]


def _assignments(op: Operation, case: Case) -> list[_Assignment]:
    """Return the shapes and parameters that fit op, the cheapest first.

    With two elements a correlation is 1, and a product of the others has one factor. So sizes are
    at least 3 if that is cheap, and at least 2 if possible.

    If different sizes make too much work, a few sizes take turns.
    """
    rng = np.random.default_rng(0)
    found: list[tuple[tuple[int, int, int], _Assignment]] = []
    needed = len(_SIZES)
    for attempt in range(_ASSIGNMENTS):
        # Alternately the smallest distinct sizes, or any sizes, as some equations fit few.
        first = attempt // 2 % 2
        pool = _SIZES[first : first + needed] if attempt % 2 else _SIZES
        wanted = _UnusedSizes([int(n) for n in rng.permutation(pool)] if attempt else list(_SIZES))
        if case.alike:
            wanted = _UnusedSizes([_SIZES[attempt % len(_SIZES)]])
        found += _priced(op, case, wanted, attempt)
        needed = min(needed, wanted.used or needed)
    if not case.alike and all(work > _MUCH_WORK for (_, work, _), _ in found):
        for sizes in permutations(_FEW_SIZES):
            found += _priced(op, case, _UnusedSizes(list(sizes)), len(found))
    return [assignment for _, assignment in sorted(found, key=lambda pair: pair[0])]


def _priced(
    op: Operation, case: Case, wanted: _UnusedSizes, number: int
) -> list[tuple[tuple[int, int, int], _Assignment]]:
    """Return the assignment of the wanted sizes with its place in the order, or [] if none fits."""
    try:
        shapes, parameters, least, work = _shapes(op, case, wanted)
    except (ValueError, IndexError, ZeroDivisionError):
        return []
    enough = 3 if work <= _LITTLE_WORK else 2
    return [((-min(enough, least), work, number), (shapes, parameters))]


def _shapes(
    op: Operation, case: Case, wanted: _UnusedSizes
) -> tuple[dict[str, tuple[int, ...]], dict[str, Any], int, int]:
    """Return the shapes of the given tensors, the parameters, the smallest extent, and the work."""
    parameters: dict[str, Any] = {
        p.name: _parameter_value(p, case) for p in op.parameters if isinstance(p, Number)
    }
    parameters |= {p.name: case.kept for p in op.parameters if isinstance(p, KeepDim)}
    parameters |= {p.name: case.option for p in op.parameters if isinstance(p, Choice)}
    given = [t for t in op.inputs if case.given or t.default is None]
    known = _extents(op, case, wanted, parameters)
    for p in op.parameters:
        if isinstance(p, SizeOf):
            parameters[p.name] = known[p.extent]
    shapes = {t.name: oracle.shape_of(t.axes, known) for t in given}
    for p in op.parameters:
        if isinstance(p, AxisOf):
            axes = next(t.axes for t in op.inputs if p.index in t.axes)
            dim = len(oracle.shape_of(axes[: axes.index(p.index)], known))
            rank = len(oracle.shape_of(axes, known))
            parameters[p.name] = dim - rank if case.backwards else dim
    found = oracle.sizes(op, {name: np.empty(shape) for name, shape in shapes.items()}, parameters)
    least = min(map(oracle.positions, found.values()), default=1)
    if least == 0:
        raise ValueError("an extent is empty")
    inside = (indices_in((*e.axes, e.body)) for e in op.equations)
    loops = sum(prod(oracle.positions(found[i.extent]) for i in own) for own in inside)
    return shapes, parameters, least, loops * sum(prod(shape) for shape in shapes.values())


def indices_in(expressions: Iterable[ex.Expr]) -> set[ex.Index]:
    return {i for e in expressions for i in ex.walk(e) if isinstance(i, ex.Index)}


class _UnusedSizes:
    """Hands out sizes, without repetition while any are left."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.used = 0

    def __call__(self) -> int:
        self.used += 1
        return self.sizes[(self.used - 1) % len(self.sizes)]


def _extents(
    op: Operation, case: Case, wanted: _UnusedSizes, parameters: Mapping[str, Any]
) -> dict[str, int | tuple[int, ...]]:
    """Return the size of every extent: chosen if it is free, else computed."""
    quotients = {e.name for e in op.extents if isinstance(e.size, ex.Call)}
    read = {part for forms in composed(op).values() for form in forms for part in form}
    parts = parts_of_axes(op) | (read & quotients)
    known: dict[str, int | tuple[int, ...]] = {}
    first, others = case.ranks
    least = _least_sizes(op)
    for e in op.extents:
        if e.group:
            known[e.name] = tuple(wanted() for _ in range(first))
            first = others
        elif e.size is None or (e.name in parts and needs_choice(e.size)):
            known[e.name] = max(wanted(), least.get(e.name, 0))
    oracle.complete(op, known, {n: v for n, v in parameters.items() if v is not None})
    missing = [e.name for e in op.extents if e.name not in known]
    if missing:
        raise ValueError(f"size({missing[0]}) is not known")
    return known


def _least_sizes(op: Operation) -> dict[str, int]:
    """Return the sizes that hold all positions that are numbers, as of an unrolled loop."""
    axes = {t.name: t.axes for t in op.inputs} | {e.name: e.axes for e in op.equations}
    found: dict[str, int] = {}
    for a in (a for e in op.equations for a in ex.accesses(e.body)):
        for axis, position in zip(axes[a.tensor], a.positions, strict=True):
            if isinstance(axis, ex.Index) and isinstance(position, ex.Num):
                found[axis.extent] = max(found.get(axis.extent, 0), int(position.value) + 1)
    return found


def parts_of_axes(op: Operation) -> set[str]:
    """Return the extents of the parts of composite axes, and those of parameters."""
    axes = (axis for t in op.inputs for axis in t.axes if isinstance(axis, ex.Composite))
    sizes = {p.extent for p in op.parameters if isinstance(p, SizeOf)}
    return sizes | {i.extent for i in indices_in(axes)}


def needs_choice(size: ex.Expr) -> bool:
    """True if a size depends on a part of a composite axis or on a parameter."""
    return any(isinstance(e, ex.Size | ex.Param) for e in ex.walk(size))


def _parameter_value(p: Number, case: Case) -> float | int:
    """Return the default, or a value near it if parameters are varied."""
    if p.default is None:
        ends = [float(bound) for _, bound in p.bounds]
        others = [*(e + step for e in ends for step in (1, -1)), sum(ends) / max(len(ends), 1)]
        tried = [_INTEGER, *map(int, others)] if p.integer else [_REAL, *others]
        return next((n for n in tried if _is_allowed(p, n)), tried[0])
    value = evaluate(ex.as_expr(p.default), {}, {}, {}, {})
    if p.integer:
        value = int(value)
        return value + 1 if case.varied and _is_allowed(p, value + 1) else value
    if not case.varied or not np.isfinite(value):
        return float(value)
    near = value + 0.1 if abs(value) < 1 else value * 1.25
    return near if _is_allowed(p, near) else float(value)


def _is_allowed(p: Number, value: float) -> bool:
    return all(ex.RELATIONS[relation](value, bound) for relation, bound in p.bounds)


# ------------------------------------------------------------------ integers


def _legal_integers(
    op: Operation,
    rng: np.random.Generator,
    shapes: Mapping[str, tuple[int, ...]],
    parameters: Mapping[str, Any],
) -> dict[str, Array | None]:
    """Draw integer and bool tensors that keep every access in bounds."""
    tensors: dict[str, Array | None] = {t.name: None for t in op.inputs}
    for t in op.inputs:
        if t.name in shapes:
            fill = {"float": 0.5, "int": 0, "bool": True}[t.kind]
            tensors[t.name] = np.full(shapes[t.name], fill)
    found = oracle.sizes(op, tensors, parameters)
    for t in op.inputs:
        if t.kind == "bool" and t.name in shapes:
            tensors[t.name] = rng.permutation(np.arange(prod(shapes[t.name])) % 2 == 0).reshape(
                shapes[t.name]
            )
        if t.kind == "int" and t.name in shapes:
            low, high = _legal_range(op, t, tensors, parameters, exclusive_bound(op, t, found))
            values = rng.integers(low, high, shapes[t.name])
            compared = (e for e in _compared(op, t) if isinstance(e, ex.Param))
            for guard in (parameters.get(e.name) for e in compared):
                if isinstance(guard, int) and values.size > 1:
                    guarded = values.copy()
                    guarded.flat[int(rng.integers(values.size))] = guard
                    if _legal(op, {**tensors, t.name: guarded}, parameters):
                        values = guarded
            tensors[t.name] = values
    made = _outputs_or_error(op, tensors, parameters)
    if isinstance(made, Exception):
        raise made
    return tensors


def _legal(
    op: Operation, tensors: Mapping[str, Array | None], parameters: Mapping[str, Any]
) -> bool:
    return not isinstance(_outputs_or_error(op, tensors, parameters), Exception)


def _legal_range(
    op: Operation,
    t: Tensor,
    tensors: Mapping[str, Array | None],
    parameters: Mapping[str, Any],
    limit: int,
) -> tuple[int, int]:
    """Return the widest [low, high) for values of t, by trial evaluation."""
    whole = tensors[t.name]
    assert whole is not None

    def legal(value: int) -> bool:
        return _legal(op, {**tensors, t.name: np.full_like(whole, value)}, parameters)

    low = next((n for n in range(limit) if legal(n)), None)
    if low is None:
        raise IndexError(f"no value of {t.name} keeps every access in bounds")
    high = next(n for n in range(limit, low, -1) if legal(n - 1))
    return low, high


def exclusive_bound(op: Operation, t: Tensor, found: Extents) -> int:
    """Return an exclusive bound: the size of an index compared with t, else the largest size."""
    own = (found[e.extent] for e in _compared(op, t) if isinstance(e, ex.Index))
    return next(map(oracle.positions, own), max(map(oracle.positions, found.values()), default=2))


def _compared(op: Operation, t: Tensor) -> Iterator[ex.Expr]:
    """Yield what the elements of t are compared with."""
    every = (e for equation in op.equations for e in ex.walk(equation.body))
    for rel in (e for e in every if isinstance(e, ex.Rel)):
        for one, other in ((rel.left, rel.right), (rel.right, rel.left)):
            if isinstance(one, ex.Access) and one.tensor == t.name:
                yield other

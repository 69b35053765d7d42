"""Random inputs of any size for one call, made from the equations alone.

`derive.check.samples` first finds small inputs: consistent sizes, parameters and domains. The
requested sizes then replace the small ones. Integers are drawn such that every access is in bounds.
Factors of a contraction are scaled so that the sum stays of order 1, and no activation saturates.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derive.algebra import expr as ex
from derive.algebra.interpret import Array, Extents
from derive.check import oracle, reference
from derive.check.lazy import torch
from derive.check.samples import (
    Case,
    Sample,
    exclusive_bound,
    indices_in,
    needs_choice,
    parts_of_axes,
    sample,
)
from derive.errors import DeriveError
from derive.notation.operation import AxisOf, Choice, Operation, SizeOf, Tensor

Sizes = dict[str, "int | tuple[int, ...]"]

_MOST = 2**63
_BYTES = 8
"""The size of an element in float64."""
_COPIES = 4
"""Copies of each intermediate: the value, what autograd saves, the gradient, temporaries."""

_ATTEMPTS = 4
"""How often integers are redrawn: a segment with no elements has no mean."""


def _size_error(text: str) -> DeriveError:
    """Return the error of sizes that cannot be given."""
    return DeriveError(text, kind="given-size")


def sizes_of(texts: Iterable[str]) -> dict[str, list[int]]:
    """Parse index sizes such as ``n=32``, or ``p=2,3`` for a group."""
    found: dict[str, list[int]] = {}
    for text in texts:
        letter, _, numbers = (part.strip() for part in text.partition("="))
        try:
            sizes = [int(n) for n in numbers.split(",")]
        except ValueError:
            short = text if len(text) < 80 else f"{text[:80]}…"
            raise _size_error(f"--size {short}: write n=32, or p=2,3 for a group") from None
        for n in sizes:
            if not 0 <= n < _MOST:
                raise _size_error(f"size({letter}) cannot be {str(n)[:30]}")
        if letter in found:
            raise _size_error(f"size({letter}) is given twice")
        found[letter] = sizes
    return found


@dataclass(frozen=True)
class Inputs:
    """One call: arrays by name (or None), parameters, and the size of each index letter."""

    tensors: dict[str, Array | None]
    parameters: dict[str, Any]
    sizes: Extents


def random_inputs(
    op: Operation,
    option: str | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
) -> Inputs:
    """Draw inputs with these sizes of index letters; free sizes are as in the small sample.

    Parameters have their defaults. Raises a DeriveError for an unknown letter, for a size that
    follows from others, and if no inputs are found.
    """
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    if choice is not None and option is None:
        option = choice.outputs[0][0]
    small = sample(op, Case("random", option, varied=False), seed)
    known = oracle.sizes(op, small.tensors, small.parameters)
    parameters = dict(small.parameters)
    found = _resized(op, known, dict(sizes or {}), parameters)
    shapes = {t.name: oracle.shape_of(t.axes, found) for t in op.inputs}
    _refuse_large(op, found)
    try:
        found = oracle.sizes(op, {n: np.broadcast_to(0, s) for n, s in shapes.items()}, parameters)
    except ValueError as error:
        raise _size_error(f"{op.name}: the sizes are inconsistent: {error}") from None
    letters = _extent_of_letter(op)
    for letter, given in (sizes or {}).items():
        size = found[letters[letter]]
        if (size if isinstance(size, tuple) else (size,)) != tuple(given):
            raise _size_error(f"{op.name}: the sizes are inconsistent: size({letter}) differs")
    rng = np.random.default_rng(seed)
    for way in ("normal", "uniform") * _ATTEMPTS:
        tensors = _random_integers(op, rng, small, shapes, parameters, found)
        for t in op.inputs:
            if t.kind == "float":
                tensors[t.name] = _random_floats(op, t, rng, small, shapes[t.name], found, way)
        if _has_clean_outputs(op, tensors, parameters, way == "normal"):
            return Inputs(tensors, parameters, {n: found[e] for n, e in letters.items()})
    raise DeriveError(
        f"{op.name}: found no random inputs of these sizes with outputs free of nan",
        kind="no-sample",
    )


# --------------------------------------------------------------------- sizes


def _extent_of_letter(op: Operation) -> dict[str, str]:
    """Map the index letters in the operation's text to their extents."""
    expressions = [axis for t in op.inputs for axis in t.axes]
    for equation in op.equations:
        expressions += [*equation.axes, equation.body]
    letters = [i for e in expressions for i in ex.walk(e) if isinstance(i, ex.Index)]
    found = {i.name: i.extent for i in letters if i.name.isidentifier()}
    return dict(sorted(found.items()))


def _resized(
    op: Operation, known: Extents, wanted: Mapping[str, Sequence[int]], parameters: dict[str, Any]
) -> Sizes:
    """Return the size of every extent, with dependent sizes recomputed."""
    letters = _extent_of_letter(op)
    parts = parts_of_axes(op)
    free = {
        e.name for e in op.extents if e.size is None or (e.name in parts and needs_choice(e.size))
    }
    found: Sizes = {name: known[name] for name in known if name in free}
    for name, given in wanted.items():
        if name not in letters:
            raise DeriveError(
                f"{op.name} has no index {name}; its indices are {', '.join(letters)}",
                kind="unknown-index",
            )
        extent = letters[name]
        if extent not in free:
            sources = sorted(free & {s.extent for s in _sizes_in_definition(op, extent)})
            home = (
                f"size({'), size('.join(sources)}); set that size" if sources else "the operation"
            )
            raise _size_error(f"{op.name}: size({name}) is determined by {home}")
        group = isinstance(known[extent], tuple)
        if not group and len(given) != 1:
            raise _size_error(
                f"{op.name}: {name} is a single axis and takes one size, not {len(given)}"
            )
        if min(given, default=1) < 1:
            raise _size_error(f"{op.name}: size({name}) must be positive, not {min(given)}")
        found[extent] = tuple(given) if group else given[0]
    for p in op.parameters:
        if isinstance(p, SizeOf) and p.extent in found:
            parameters[p.name] = found[p.extent]
    numbers = {n: v for n, v in parameters.items() if isinstance(v, int | float)}
    oracle.complete(op, found, numbers)
    while missing := [e.name for e in op.extents if e.name not in found and e.name in known]:
        # If sizes depend on each other in a cycle, keep one of them.
        found[missing[0]] = known[missing[0]]
        oracle.complete(op, found, numbers)
    for p in op.parameters:
        if isinstance(p, AxisOf):
            axes = next(t.axes for t in op.inputs if p.index in t.axes)
            parameters[p.name] = len(oracle.shape_of(axes[: axes.index(p.index)], found))
    return found


def _refuse_large(op: Operation, found: Sizes) -> None:
    """Raise a DeriveError if the reference needs more memory than the machine has.

    It forms every product of a sum.
    """
    grids = [indices_in(t.axes) for t in op.inputs]
    grids += [indices_in((*e.axes, e.body)) for e in op.equations]
    elements = sum(
        math.prod(oracle.positions(found.get(i.extent, 1)) for i in indices) for indices in grids
    )
    if elements * _BYTES * _COPIES > _memory():
        raise _size_error(
            f"{op.name}: at these sizes the reference computes {elements:.3g} elements "
            f"({elements * _BYTES / 2**30:.3g} GiB), and several times as much for the gradients, "
            "which exceeds the memory; give smaller sizes"
        )


def _memory() -> int:
    """Return the physical memory in bytes, or a default if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**34


def _sizes_in_definition(op: Operation, extent: str) -> Iterator[ex.Size]:
    """Yield the sizes in the definition of an extent's size, transitively."""
    by_name = {e.name: e.size for e in op.extents}
    pending = [by_name[extent]]
    while pending:
        e = pending.pop()
        for size in ex.walk(e) if e is not None else ():
            if isinstance(size, ex.Size):
                yield size
                pending.append(by_name[size.extent])


# -------------------------------------------------------------------- values


def _values_if_legal(
    op: Operation, tensors: Mapping[str, Array | None], parameters: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the value of every equation; None if an access is out of bounds."""
    given = {n: None if a is None else torch.from_numpy(a) for n, a in tensors.items()}
    try:
        with torch.no_grad():
            return dict(reference.values(op, given, parameters))
    except IndexError:
        return None


def _has_clean_outputs(
    op: Operation, tensors: Mapping[str, Array | None], parameters: Mapping[str, Any], finite: bool
) -> bool:
    """True if no output has a nan, and with ``finite`` no infinity."""
    made = _values_if_legal(op, tensors, parameters)
    if made is None:
        raise DeriveError(
            f"{op.name}: found no integers that keep every access in bounds", kind="no-sample"
        )
    outputs = [made[name] for name in oracle.selected(op, parameters)]
    return all(bool((o.isfinite() if finite else ~o.isnan()).all()) for o in outputs)


def _random_integers(
    op: Operation,
    rng: np.random.Generator,
    small: Sample,
    shapes: Mapping[str, tuple[int, ...]],
    parameters: Mapping[str, Any],
    found: Extents,
) -> dict[str, Array | None]:
    """Draw integers from their whole legal range, found by bisection, and random bools."""
    tensors: dict[str, Array | None] = {}
    for t in op.inputs:
        if t.kind == "float":
            tensors[t.name] = np.full(shapes[t.name], 0.5)
        elif t.kind == "bool":
            tensors[t.name] = np.asarray(rng.random(shapes[t.name]) < 0.5)
        else:
            own = small.tensors[t.name]
            assert own is not None
            tensors[t.name] = np.resize(own, shapes[t.name])

    if _values_if_legal(op, tensors, parameters) is None:
        # The integers of the small sample may be too large for the requested sizes.
        tensors |= {
            t.name: np.zeros(shapes[t.name], np.int64) for t in op.inputs if t.kind == "int"
        }

    def legal(name: str, value: int) -> bool:
        whole = np.full(shapes[name], value)
        return _values_if_legal(op, {**tensors, name: whole}, parameters) is not None

    for t in op.inputs:
        if t.kind == "int":
            own = small.tensors[t.name]
            assert own is not None
            top = exclusive_bound(op, t, found)
            low = next((n for n in (0, int(own.min()), int(own.max())) if legal(t.name, n)), 0)
            high = low + 1
            while high < top:
                middle = (high + top + 1) // 2
                if legal(t.name, middle - 1):
                    high = middle
                else:
                    top = middle - 1
            tensors[t.name] = rng.integers(low, high, shapes[t.name])
    return tensors


def _random_floats(
    op: Operation,
    t: Tensor,
    rng: np.random.Generator,
    small: Sample,
    shape: tuple[int, ...],
    found: Extents,
    way: str,
) -> Array:
    """Draw normal values, scaled for contractions, or uniform ones in the sample's range."""
    own = small.tensors[t.name]
    assert own is not None
    if way == "normal":
        return np.asarray(rng.standard_normal(shape) * _contraction_scale(op, t.name, found))
    return np.asarray(rng.uniform(own.min(initial=0.9), own.max(initial=0.9), shape))


def _contraction_scale(op: Operation, name: str, found: Extents) -> float:
    """Return n^(-1/2) for a contraction over n with a computed tensor, n^(-1/4) with an input."""
    inputs = {t.name for t in op.inputs if t.kind == "float"}
    scale = 1.0
    for e in (inner for equation in op.equations for inner in ex.walk(equation.body)):
        if not isinstance(e, ex.Reduce) or e.kind != "sum" or not isinstance(e.body, ex.Mul):
            continue
        bound = set(e.indices)
        factors = [a for f in e.body.args for a in ex.accesses(f) if ex.free_indices(a) & bound]
        if len(factors) < 2 or all(a.tensor != name for a in factors):
            continue
        own = {i for a in factors if a.tensor == name for i in ex.free_indices(a) & bound}
        n = math.prod(oracle.positions(found[i.extent]) for i in own)
        shared = sum(a.tensor in inputs for a in factors)
        scale = min(scale, n ** (-0.5 / shared))
    return scale

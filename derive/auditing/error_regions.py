"""Describe where a gradient is wrong, if no exact reason is found.

The description has to hold at every point: a part of an axis, a condition on an argument, or a
permutation of the right elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from derive.algebra.interpret import Array
from derive.auditing.evidence import Evidence, as_number
from derive.auditing.points import is_tensor
from derive.auditing.terms import scaled

_LEAST = 2
"""At least this many points have to agree."""


def where(evidence: Evidence) -> str:
    """Describe the wrong positions and the elements there; '' if nothing fits."""
    pairs = list(zip(evidence.given, evidence.right, strict=True))
    if not evidence.has_right_shapes or not all(np.isfinite(g).all() for g in evidence.given):
        return ""
    told = [n for n, (g, r) in enumerate(pairs) if not evidence.same(g, r)]
    if len(told) < _LEAST:
        return ""
    given = [pairs[n][0] for n in told]
    right = [pairs[n][1] for n in told]
    return _describe_permuted(evidence, given, right) or _describe_wrong_positions(
        evidence, told, given, right
    )


# ------------------------------------------------------------ another order


def _describe_permuted(evidence: Evidence, given: Sequence[Array], right: Sequence[Array]) -> str:
    """Describe a gradient whose elements are right, but shifted or permuted along an axis."""
    for axis in range(given[0].ndim):
        for change, text in _orders(axis):
            made = [change(r) for r in right]
            if all(m is not None and evidence.same(g, m) for g, m in zip(given, made, strict=True)):
                return text
    return ""


def _orders(axis: int) -> Iterator[tuple[Callable[[Array], Array | None], str]]:
    yield lambda r: np.flip(r, axis), f"its elements are in reverse order along axis {axis}"
    for count, name in ((2, "halves"), (3, "thirds"), (4, "quarters")):

        def rolled(r: Array, count: int = count) -> Array | None:
            size = r.shape[axis]
            return None if size % count or size == count else np.roll(r, size // count, axis)

        yield rolled, f"the {name} of axis {axis} stand in each other's place"
    for step in (1, -1):

        def shifted(r: Array, step: int = step) -> Array:
            made = np.roll(r, step, axis)
            edge = [slice(None)] * r.ndim
            edge[axis] = slice(0, 1) if step > 0 else slice(-1, None)
            made[tuple(edge)] = 0
            return made

        yield shifted, f"it is shifted by {step} along axis {axis}, and 0 at the edge"
        yield (
            lambda r, step=step: np.roll(r, step, axis),  # type: ignore[misc]
            f"it is shifted by {step} along axis {axis}, and wraps around",
        )


# ---------------------------------------------------------------- the places


def _describe_wrong_positions(
    evidence: Evidence, told: Sequence[int], given: Sequence[Array], right: Sequence[Array]
) -> str:
    """Describe the wrong positions, and the values there."""
    wrong = [_wrong(evidence, g, r) for g, r in zip(given, right, strict=True)]
    for masks, text in _candidate_masks(evidence, told, [r.shape for r in right]):
        usable = [m is not None and m.shape == w.shape for m, w in zip(masks, wrong, strict=True)]
        if not all(usable) or all(bool(m.all()) for m in masks if m is not None):
            continue
        inside = all(not (w & ~m).any() for w, m in zip(wrong, masks, strict=True))
        # Where both are 0, the element may be right by chance.
        idle = [(g == 0) & (r == 0) for g, r in zip(given, right, strict=True)]
        full = all(not (m & ~w & ~i).any() for m, w, i in zip(masks, wrong, idle, strict=True))
        if inside and full:
            rest = _describe_wrong_values(wrong, given, right)
            return f"it is wrong only {text}" + (f": {rest}" if rest else "")
    rest = "" if all(bool(w.all()) for w in wrong) else _describe_wrong_values(wrong, given, right)
    return f"it is wrong at some places only: {rest}" if rest else ""


def _wrong(evidence: Evidence, given: Array, right: Array) -> Array:
    scale = max(float(np.abs(right).max(initial=0.0)), 1e-2)
    return np.asarray(np.abs(given - right) > evidence.tolerance * scale)


def _describe_wrong_values(
    wrong: Sequence[Array], given: Sequence[Array], right: Sequence[Array]
) -> str:
    """Describe the wrong values, if one description holds at all points."""
    every = np.concatenate([g[w] for g, w in zip(given, wrong, strict=True)])
    meant = np.concatenate([r[w] for r, w in zip(right, wrong, strict=True)])
    if not np.abs(every).max(initial=0.0):
        return "it is 0 there"
    if not np.abs(meant).max(initial=0.0):
        return "it should be 0 there, so a mask is missing"
    if not (meant != 0).all():
        return ""
    number = as_number([float(v) for v in every / meant])
    if number is None or number in (0, 1):
        return ""
    return f"{scaled(number, None, (), '')} there"


Masks = Sequence[Any]
"""A boolean mask for each point; None where it does not exist."""


def _candidate_masks(
    evidence: Evidence, told: Sequence[int], shapes: Sequence[tuple[int, ...]]
) -> Iterator[tuple[Masks, str]]:
    """Yield candidate masks, one for each point, with a description."""
    rank = len(shapes[0])
    for axis in range(rank):
        for of, text in _axis_predicates(axis):
            yield [_axis_mask(s, axis, of(s[axis])) for s in shapes], text
    for n in evidence.chunks:
        value = evidence.outcomes[0].args[n]
        for axis in range(rank):
            later = [_axis_mask(s, axis, np.arange(s[axis]) >= value) for s in shapes]
            first = [_axis_mask(s, axis, np.arange(s[axis]) < value) for s in shapes]
            name = evidence.names[n]
            yield later, f"after the first {name} positions of axis {axis}"
            yield first, f"at the first {name} positions of axis {axis}"
    if rank >= 2:
        for kind, text in _OF_MATRICES:
            yield [np.broadcast_to(kind(*np.indices(s[-2:])), s) for s in shapes], text
    yield from _argument_masks(evidence, told, shapes)


_OF_MATRICES: tuple[tuple[Callable[[Array, Array], Array], str], ...] = (
    (lambda i, j: i == j, "on the diagonal"),
    (lambda i, j: i != j, "off the diagonal"),
    (lambda i, j: i < j, "above the diagonal"),
    (lambda i, j: i > j, "below the diagonal"),
)


def _axis_predicates(axis: int) -> Iterator[tuple[Callable[[int], Array], str]]:
    """Yield predicates on positions of an axis: its ends, halves, even and odd positions."""
    at = np.arange
    yield lambda s: at(s) == 0, f"at position 0 of axis {axis}"
    yield lambda s: at(s) == s - 1, f"at the last position of axis {axis}"
    yield lambda s: at(s) != 0, f"after position 0 of axis {axis}"
    yield lambda s: at(s) != s - 1, f"before the last position of axis {axis}"
    yield lambda s: at(s) < s // 2, f"in the first half of axis {axis}"
    yield lambda s: at(s) >= s // 2, f"in the second half of axis {axis}"
    yield lambda s: at(s) % 2 == 0, f"at even positions of axis {axis}"
    yield lambda s: at(s) % 2 == 1, f"at odd positions of axis {axis}"


def _axis_mask(shape: tuple[int, ...], axis: int, chosen: Array) -> Array | None:
    """Broadcast a mask of one axis to the shape; None if it is all true or all false."""
    if chosen.all() or not chosen.any():
        return None
    places = [1] * len(shape)
    places[axis] = shape[axis]
    return np.broadcast_to(chosen.reshape(places), shape)


def _argument_masks(
    evidence: Evidence, told: Sequence[int], shapes: Sequence[tuple[int, ...]]
) -> Iterator[tuple[Masks, str]]:
    """Yield masks of a condition on an argument, broadcast to the gradient's shape."""
    signs: list[tuple[Callable[[Array], Array], str]] = [
        (lambda a: a < 0, "{} < 0"),
        (lambda a: a > 0, "{} > 0"),
        (lambda a: a >= 0, "{} ≥ 0"),
        (lambda a: a == 0, "{} = 0"),
    ]
    tests = [*signs, (lambda a: np.abs(a) > 1, "|{}| > 1"), (lambda a: np.abs(a) <= 1, "|{}| ≤ 1")]
    for n, arg in enumerate(evidence.outcomes[0].args):
        if not is_tensor(arg) or not arg.ndim or arg.is_complex():
            continue
        name = evidence.names[n]
        arrays = [np.asarray(evidence.outcomes[k].args[n].detach().cpu()) for k in told]
        made = tests
        if arrays[0].dtype == bool:
            made = [(lambda a: a, "{}"), (lambda a: ~a, "not {}")]
        elif not arg.is_floating_point():
            made = [*signs, *((partial(np.equal, v), f"{{}} = {v}") for v in _sentinels(arrays))]
        for test, text in made:
            masks = [_broadcast_mask(test(a), s) for a, s in zip(arrays, shapes, strict=True)]
            yield masks, f"where {text.format(name)}"
        if not arg.is_floating_point() and arrays[0].dtype != bool and arrays[0].ndim == 1:
            counts = [_count_rows(a, s) for a, s in zip(arrays, shapes, strict=True)]
            for test, text in _OF_COUNTS:
                pairs = zip(counts, shapes, strict=True)
                masks = [None if c is None else _broadcast_mask(test(c), s) for c, s in pairs]
                yield masks, f"at the rows that {name} {text}"


_OF_COUNTS: tuple[tuple[Callable[[Array], Array], str], ...] = (
    (lambda c: c > 1, "names more than once"),
    (lambda c: c == 0, "does not name"),
)


def _count_rows(array: Array, shape: tuple[int, ...]) -> Array | None:
    """Count how often an integer argument refers to each row; None if a value is no valid row."""
    if not len(shape) or array.min(initial=0) < 0 or array.max(initial=0) >= shape[0]:
        return None
    return np.bincount(array, minlength=shape[0])


def _sentinels(arrays: Sequence[Array]) -> list[int]:
    """Return up to four values that occur at every point, the smallest first."""
    common = set(map(int, arrays[0].ravel()))
    for array in arrays[1:]:
        common &= set(map(int, array.ravel()))
    return sorted(common)[:4]


def _broadcast_mask(mask: Array, shape: tuple[int, ...]) -> Array | None:
    """Broadcast a mask of the leading axes to the shape; None if its shape does not fit."""
    if mask.shape == shape[: mask.ndim]:
        return np.broadcast_to(mask.reshape(*mask.shape, *[1] * (len(shape) - mask.ndim)), shape)
    return None

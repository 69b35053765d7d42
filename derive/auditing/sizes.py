"""Example inputs at other sizes: with the same structure, and with other proportions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from derive.auditing.points import Point, is_float, is_tensor
from derive.auditing.structure import Path, Sizes, Structure, tensors_in

_MOST = 12
"""The most ways to split a class of axes in two."""


def other_sizes(structure: Structure, names: Sequence[str]) -> Iterator[Point]:
    """Yield larger and smaller sizes with the same structure."""
    met = {tuple(structure.sizes.items())}
    for turn in range(6):
        sizes = structure.varied(turn)
        if tuple(sizes.items()) not in met:
            met.add(tuple(sizes.items()))
            args = structure.resized(sizes, turn)
            yield Point(args, f"at other sizes than the examples' ({shapes_of(names, args)})")


def other_proportions(structure: Structure, names: Sequence[str]) -> Iterator[Point]:
    """Yield square matrices for rectangular ones, and rows and columns exchanged."""
    changes = []
    for path, (rows, columns) in _matrices(structure):
        if rows != columns:
            one, other = (structure.classes[path, axis] for axis in (0, 1))
            more = columns + 2 * structure.step(one)
            wanted = ({one: columns, other: rows}, {one: columns, other: columns}, {one: more})
            changes += [
                _resize_classes(structure, sizes)
                for sizes in wanted
                if _keeps_multiples(structure, sizes)
            ]
    return _points_by_shapes(changes, names)


def rectangles(structure: Structure, names: Sequence[str]) -> Iterator[Point]:
    """Yield rectangular matrices for square ones."""
    squares = [(path, rows) for path, (rows, columns) in _matrices(structure) if rows == columns]
    return _points_by_shapes(
        [c for path, size in squares for c in _split_square_classes(structure, path, size)], names
    )


def _matrices(structure: Structure) -> list[tuple[Path, tuple[int, int]]]:
    """Return (path, shape) of the matrices whose sizes may change."""
    return [
        (path, tuple(t.shape))
        for path, t in tensors_in(structure.args)
        if is_float(t) and t.ndim == 2 and min(t.shape) > 1
        if path not in structure.kept and path not in structure.kinds
    ]


def _points_by_shapes(changes: Sequence[tuple[Any, ...]], names: Sequence[str]) -> Iterator[Point]:
    """Yield each set of arguments once by its shapes."""
    for shapes, args in {shapes_of(names, args): args for args in changes}.items():
        yield Point(args, f"at other proportions than the examples' ({shapes})")


def _keeps_multiples(structure: Structure, sizes: Mapping[Sizes, int]) -> bool:
    """True if the sizes keep their multiples, and no fixed class changes."""
    return all(
        size % structure.step(c) == 0 and c not in structure.fixed for c, size in sizes.items()
    )


def _resize_classes(structure: Structure, sizes: Mapping[Sizes, int]) -> tuple[Any, ...]:
    return structure.resized({**structure.sizes, **sizes}, 5)


def _split_square_classes(structure: Structure, path: Path, size: int) -> Iterator[tuple[Any, ...]]:
    """Yield arguments where some axes of a square's class have another size."""
    of = structure.classes[path, 0]
    axes = [key for key, c in structure.classes.items() if c == of]
    step, tried = structure.step(of), 0
    for count in range(1, len(axes)):
        for chosen in combinations(axes, count):
            if ((path, 0) in chosen) == ((path, 1) in chosen) or tried >= _MOST:
                continue
            tried += 1
            for other in (size + 2 * step, size - step):
                apart = {
                    key: (*c, -1) if key in chosen else c for key, c in structure.classes.items()
                }
                # The split-off class is named by its sizes and a marker.
                if other > 1:
                    yield replace(structure, classes=apart).resized({(*of, -1): other}, 5)


def shapes_of(names: Sequence[str], args: Sequence[Any]) -> str:
    return ", ".join(
        f"{n}: {list(a.shape)}" for n, a in zip(names, args, strict=False) if is_tensor(a)
    )

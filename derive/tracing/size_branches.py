"""Find sizes at which a function may take another branch, because it compared sizes.

A trace follows one branch of ``if x.shape[0] < 100``, and its guards record the comparisons. A
reading is compared with the function at sizes where a guard is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing.sizes import SymbolicSizes, substitute_symbols
from derive.tracing.values import TracedValue

_SMALL = (4, 5, 2, 3, 6, 7, 8, 9)
_TRIED = 5000
_MOST = 4_000_000
"""Maximum number of elements of a tensor that is made to take another branch."""


def other_branches(
    sizes: SymbolicSizes, inputs: Mapping[str, TracedValue], hints: Mapping[Any, int]
) -> Iterator[tuple[dict[Any, int], str]]:
    """Yield (sizes at which a guard is false, the guard as text)."""
    for asked in sizes.asked():
        found = next(_falsified(asked, sizes, inputs, hints), None)
        if found is not None:
            yield found, guard_text(asked, sizes, inputs)


def _falsified(
    asked: Any, sizes: SymbolicSizes, inputs: Mapping[str, TracedValue], hints: Mapping[Any, int]
) -> Iterator[dict[Any, int]]:
    symbols = sorted(asked.free_symbols, key=str)
    around = {int(c) + d for c in asked.atoms(sympy.Integer) for d in (-1, 0, 1)}
    tried = [n for n in dict.fromkeys((*_SMALL, *sorted(around))) if n >= 2]
    large = False
    holds = _quick(asked, symbols)
    for values in islice(product(tried, repeat=len(symbols)), _TRIED):
        way = {**hints, **dict(zip(symbols, values, strict=True))}
        if holds(values) or _guard_holds(asked, way) or not sizes.takes(way):
            continue
        if all(_element_total(v, sizes, way) <= _MOST for v in inputs.values()):
            yield way
        large = True
    if large:
        guard = guard_text(asked, sizes, inputs)
        raise DeriveError(
            f"the branch for sizes where {guard} is false cannot be checked, "
            "because its tensors would be too large; write the branch as a function of its own"
        )


def _quick(asked: Any, symbols: Sequence[Any]) -> Callable[[Sequence[int]], bool]:
    """Return a function that evaluates a guard in plain Python; False if it cannot."""
    down = {"FloorDiv": lambda a, b: a // b, "CeilDiv": lambda a, b: -(-a // b)}
    try:
        compiled = sympy.lambdify(symbols, asked, modules=[down, "math"])
    except Exception:
        return lambda values: False

    def holds(values: Sequence[int]) -> bool:
        try:
            return compiled(*values) is True
        except Exception:
            return False

    return holds


def _guard_holds(asked: Any, way: Mapping[Any, int]) -> bool:
    """True if a guard holds or is undefined.

    It is undefined if it divides by 0, or if a part of an axis would be no integer.
    """
    try:
        return bool(substitute_symbols(asked, way) != sympy.false)
    except (ZeroDivisionError, ValueError):
        return True


def _element_total(value: TracedValue, sizes: SymbolicSizes, way: Mapping[Any, int]) -> int:
    return int(sympy.prod([sizes.value(sizes.plain(a.size), way) for a in value.atoms]))


def guard_text(asked: Any, sizes: SymbolicSizes, inputs: Mapping[str, TracedValue]) -> str:
    """Return a guard as text, in terms of the shapes of inputs."""
    names: dict[Any, Any] = {}
    for name, value in inputs.items():
        for n, axis in enumerate(value.axes):
            for a in axis:
                size = sizes.plain(a.size)
                if size.is_Symbol:
                    names.setdefault(size, sympy.Symbol(f"{name}.shape[{n}]", integer=True))
    return str(substitute_symbols(asked, names))

"""Tests of whether a mask holds anywhere, and what the values of a trace are where it does not.

    if m.any():
        y[m] += f(x[m])

Both ways end alike where m holds nowhere, so that y is that of the work, without a choice. The
proof is by the values of a trace, each of which has the number of the operation that made it: all
that has an axis of the selected elements is empty, what is written at empty positions goes, and so
does what is added as the sum of nothing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from derive.tracing.sizes import substitute_symbols

_KEPT = frozenset(
    "reshape view _unsafe_view squeeze unsqueeze alias detach clone contiguous to _to_copy".split()
)
_VIEWS = _KEPT | {"slice", "select", "expand", "permute", "transpose"}
_SELECTED = frozenset("index masked_select nonzero nonzero_numpy index_select gather".split())
_SUMS = frozenset("sum mm bmm matmul dot mv".split())
_WRITES = frozenset(
    f"{name}{end}"
    for name in "index_put index_add index_copy index_fill scatter scatter_add masked_fill".split()
    for end in ("", "_")
)
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_COUNTS = range(8)


@dataclass(frozen=True)
class Made:
    """The operation that made a value, and the numbers of its arguments."""

    func: Any
    form: str
    args: tuple[int, ...]

    @property
    def name(self) -> str:
        return str(self.func.overloadpacket.__name__)


@dataclass
class Values:
    """What is known of the values of a trace, by number."""

    made: dict[int, Made] = field(default_factory=dict)
    kinds: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """The dtype and the sizes of each tensor."""
    numbers: dict[int, Any] = field(default_factory=dict)
    """Those that are plain numbers."""
    sizes: set[int] = field(default_factory=set)
    """Those that are sizes of the inputs, which are above 0."""

    def test_of(self, truth: int) -> tuple[int, bool] | None:
        """Return (a mask, the truth if it holds nowhere), if the truth is the other elsewhere."""
        found = self._counted(truth)
        if found is None:
            return None
        mask, of_count = found
        first, *others = [bool(of_count(n)) for n in _COUNTS]
        return None if first in others else (mask, first)

    def _counted(self, number: int) -> tuple[int, Callable[[int], Any]] | None:
        """Return (a mask, the value as a function of the number of elements where it holds)."""
        made = self.made.get(number)
        if made is None or not made.args:
            return None
        if made.name in ("any", "sum", "count_nonzero") and not self.kinds[number][1]:
            return self._mask(made.args[0])
        found = self._counted(made.args[0])
        if found is None or made.name in _KEPT:
            return found
        mask, of_count = found
        if made.name in ("logical_not", "bitwise_not"):
            return mask, lambda n: not of_count(n)
        if made.name == "mul" and made.args[1] in self.sizes:
            return found
        if made.name in _COMPARED and (other := self.numbers.get(made.args[1])) is not None:
            return mask, lambda n: _COMPARED[made.name](of_count(n), other)
        return None

    def _mask(self, number: int) -> tuple[int, Callable[[int], Any]] | None:
        """Return the tensor that a truth of each element is made of, and the count itself."""
        is_truth = False
        while (made := self.made.get(number)) is not None:
            is_truth = is_truth or self.kinds[number][0] is torch.bool
            if made.name not in _KEPT:
                break
            number = made.args[0]
        return (number, operator.pos) if is_truth else None

    def reached(self, numbers: Iterable[int], instead: Mapping[int, int] | None = None) -> set[int]:
        """Return the values that these are made of, with themselves and those to take instead."""
        found, left = set[int](), [*numbers]
        while left:
            if (n := left.pop()) not in found:
                found.add(n)
                left += self.made[n].args if n in self.made else ()
                left += [instead[n]] if instead and n in instead else []
        return found

    def are_alike(
        self,
        one: Iterable[int],
        other: Iterable[int],
        masks: Iterable[int],
        counts: Iterable[Any],
        left: Mapping[int, int],
    ) -> bool:
        """True if values are equal where masks, of which these are the counts, hold nowhere.

        ``left`` has other values to take in place of some.
        """
        found = _WhereEmpty(self, frozenset(masks), dict.fromkeys(counts, 0), left)
        return [*map(found.of, one)] == [*map(found.of, other)]


_EMPTY, _ZERO, _NOWHERE = -1, -2, -3


class _WhereEmpty:
    """The values of a trace where masks hold nowhere; equal ones have one number."""

    def __init__(
        self,
        values: Values,
        masks: frozenset[int],
        counts: Mapping[Any, int],
        left: Mapping[int, int],
    ) -> None:
        self._values, self._masks, self._counts, self._left = values, masks, counts, left
        self._known: dict[int, int] = {}
        self._numbers: dict[Any, int] = {}

    def of(self, number: int) -> int:
        wanted = self._values.reached([number], self._left) - self._known.keys()
        for n in sorted(wanted):  # arguments have lower numbers
            self._known[n] = self._made(n)
        return self._known[number]

    def _made(self, number: int) -> int:
        if number in self._left:
            return self._known[self._left[number]]
        made = self._values.made.get(number)
        dtype, sizes = self._values.kinds.get(number, (None, ()))
        if number in self._masks and dtype is torch.bool:
            return _NOWHERE
        if any(map(self._is_none, sizes)):
            return _EMPTY
        if made is None:
            return _ZERO if self._values.numbers.get(number) == 0 else number
        if dtype is torch.bool and made.name in _KEPT and self._masks.intersection(made.args):
            return _NOWHERE
        args = [self._known[n] for n in made.args]
        found = self._folded(number, made, args)
        if found is not None:
            return found
        key = made.func, made.form, dtype, sizes, *args
        return self._numbers.setdefault(key, -4 - len(self._numbers))

    def _is_none(self, size: Any) -> bool:
        try:
            return bool(substitute_symbols(size, self._counts) == 0)
        except ValueError:  # it would be below 0
            return False

    def _folded(self, number: int, made: Made, args: list[int]) -> int | None:
        """Return what a value is if an argument is empty, 0 or a mask that holds nowhere."""
        name, first = made.name, args[0] if args else number
        if name in _SELECTED and _EMPTY in args:
            return _EMPTY
        if name in ("zeros", "zeros_like", "new_zeros") or (name in _SUMS and first == _EMPTY):
            return _ZERO
        if name in _VIEWS and first in (_ZERO, _NOWHERE):
            return first
        if name in _WRITES and (_EMPTY in args[1:] or self._is_at_no_place(made, args)):
            return first
        if name in ("mul", "div", "neg") and first == _ZERO:
            by = self._values.numbers.get(made.args[1], 0) if args[1:] else 1
            return _ZERO if by and math.isfinite(by) else None
        # What is left has the dtype and the sizes of the result.
        alike = {n: args[n] for n, m in enumerate(made.args) if self._is_like(m, number)}
        if name == "where" and first == _NOWHERE:
            return alike.get(2)
        if name in ("add", "add_", "sub", "sub_") and args[1] == _ZERO:
            return alike.get(0, _ZERO if first == _ZERO else None)
        if name in ("add", "add_") and first == _ZERO and len(args) == 2:
            return alike.get(1)
        return None

    def _is_at_no_place(self, made: Made, args: Sequence[int]) -> bool:
        """True if a write is by a mask that holds nowhere; the last tensor is what is written."""
        if made.name.startswith("masked_fill"):
            return args[1] == _NOWHERE
        tensors = [a for a, m in zip(args, made.args, strict=True) if m in self._values.kinds]
        return _NOWHERE in tensors[1:-1]

    def _is_like(self, number: int, other: int) -> bool:
        kinds = self._values.kinds
        return number in kinds and kinds[number] == kinds[other]

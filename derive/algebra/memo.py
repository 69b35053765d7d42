"""Memoized recursion of any depth, without Python's recursion limit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from typing import Any, Generic, TypeVar

_DEEPEST = 16
"""The maximum depth of nested calls."""

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class _Pending(Exception):
    """A value that must be computed before the calls that need it."""

    def __init__(self, of: object, key: Any) -> None:
        super().__init__(of, key)
        self.of = of
        self.key = key


class Recursion(Generic[_Key, _Value]):
    """A memoized function that may call itself at other keys.

    Beyond the maximum depth, all pending calls are abandoned in favor of the innermost, and
    repeated when its value is known. So side effects of ``find`` before a recursive call may happen
    twice.

    >>> steps = Recursion(lambda n: 0 if n == 0 else steps(n - 1) + 1)
    >>> steps(5000)
    5000
    """

    def __init__(
        self, find: Callable[[_Key], _Value], known: MutableMapping[_Key, _Value] | None = None
    ) -> None:
        self._find = find
        self._known: MutableMapping[_Key, _Value] = {} if known is None else known
        self._depth = 0

    def __call__(self, key: _Key) -> _Value:
        """The value at the key."""
        if key not in self._known:
            if self._depth == _DEEPEST:
                raise _Pending(self, key)
            pending = [key]
            while pending:
                try:
                    self._depth += 1
                    self._known[pending[-1]] = self._find(pending[-1])
                    pending.pop()
                except _Pending as later:
                    if later.of is not self or self._depth > 1:
                        raise
                    pending.append(later.key)
                finally:
                    self._depth -= 1
        return self._known[key]

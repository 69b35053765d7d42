"""A test of each operation of the catalog over its options or cases, which names what fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from derive import catalog
from derive.notation.operation import Operation
from derive.notation.options import options


def some_now(seeds: Sequence[Any], count: int) -> list[Any]:
    """The first so many of all; the others belong to the long campaign."""
    return [
        pytest.param(seed, marks=() if n < count else pytest.mark.long)
        for n, seed in enumerate(seeds)
    ]


@contextmanager
def naming(*what: object) -> Iterator[None]:
    """What fails within says what it was about."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {' '.join(map(str, what))}")
        raise


def itself(op: Operation) -> list[tuple[()]]:
    return [()]


def each_option(op: Operation) -> list[tuple[str | None]]:
    return [(option,) for option, _ in options(op)]


def each_operation(
    items: Callable[[Operation], Iterable[tuple[Any, ...]]] = itself,
    marks: Callable[[str], Any] = lambda name: (),
    share: int = 1,
) -> Callable[[Callable[..., None]], Any]:
    """Tests of an operation and an item of it: one for all items of an operation.

    Operations are named where tests are collected, and read where they run. Of ``share``
    operations in a row one is tested now, for each test another, and all in the long campaign.
    """

    def of_operations(test: Callable[..., None]) -> Any:
        def of_operation(op: Operation) -> None:
            for item in items(op):
                with naming(*item):
                    test(op, *item)

        of_operation.__name__, of_operation.__doc__ = test.__name__, test.__doc__
        first = sum(map(ord, test.__name__))
        names = [
            pytest.param(name, marks=marks(name) if (n + first) % share == 0 else pytest.mark.long)
            for n, name in enumerate(catalog.names())
        ]
        return pytest.mark.parametrize("op", names, indirect=True)(of_operation)

    return of_operations

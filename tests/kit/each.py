"""A test of each operation of the catalog over its options or cases, which names what fails."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from derive import catalog
from derive.notation.operation import Operation, options

TURN = 1160
"""Which of the rows that take turns are tried: the same on every machine. Another number tries
others; ``-m long`` tries all."""


def has_turn(n: int, turns: int) -> bool:
    """True for one of so many rows in a row."""
    return (n + TURN) % turns == 0


def some_now(seeds: Sequence[Any], count: int, turns: int = 1) -> list[Any]:
    """The first so many of all, which may take turns; the others belong to the long campaign."""
    return [
        pytest.param(seed, marks=() if n < count and has_turn(n, turns) else pytest.mark.long)
        for n, seed in enumerate(seeds)
    ]


def in_turns(rows: Iterable[tuple[Any, ...]], turns: int) -> list[Any]:
    """Rows of several values of which one of so many is tried now, and all in the campaign."""
    return [
        pytest.param(*row, marks=() if has_turn(n, turns) else pytest.mark.long)
        for n, row in enumerate(rows)
    ]


@contextmanager
def naming(*what: object) -> Iterator[None]:
    """What fails within says what it was about."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        error.add_note(f"with {' '.join(map(str, what))}")
        raise


def each_row(
    names: str, rows: Iterable[Any], turns: int = 1
) -> Callable[[Callable[..., None]], Any]:
    """One test of all rows, where parametrize makes a test of each: for rows that take no time.

    ``names`` are those of the arguments that a row gives, as for parametrize. Every row is tried,
    and all that fail are told. With ``turns`` there are so many tests, of which one is run now.
    """
    given = [name.strip() for name in names.split(",")]
    table = [row if len(given) > 1 else (row,) for row in rows]
    assert all(len(row) == len(given) for row in table)

    def of_rows(test: Callable[..., None]) -> Any:
        @wraps(test)
        def all_rows(first: int = 0, **fixtures: Any) -> None:
            chosen = table[first::turns]
            try_all(chosen, lambda *row: test(**dict(zip(given, row, strict=True)), **fixtures))

        parameters = inspect.signature(test).parameters
        others = [x for name, x in parameters.items() if name not in given]
        if turns > 1:
            others.append(inspect.Parameter("first", inspect.Parameter.KEYWORD_ONLY))
        all_rows.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        now = some_now(range(turns), turns, turns)
        return all_rows if turns == 1 else pytest.mark.parametrize("first", now)(all_rows)

    return of_rows


def try_all(rows: Iterable[tuple[Any, ...]], test: Callable[..., None]) -> None:
    """Test every row, and raise one error of all that fail."""
    wrong: list[BaseException] = []
    left_out: list[BaseException] = []
    count = 0
    for row in rows:
        count += 1
        try:
            with naming(*row):
                test(*row)
        except (Exception, pytest.fail.Exception) as error:
            wrong.append(error)
        except pytest.skip.Exception as skipped:
            left_out.append(skipped)
    assert count, "there are no rows"
    if left_out and len(left_out) == count:
        raise left_out[0]
    wrong += (AssertionError(f"a row is skipped: {skipped}") for skipped in left_out)
    if wrong:
        raise BaseExceptionGroup(f"{len(wrong)} of {count} rows", wrong)


def listed(table: str) -> list[tuple[str, list[str]]]:
    """The rows of a table as text: a line, and the lines indented below it.

    Runs of spaces are one space, as at the start of a line that goes on after a backslash.
    """
    rows: list[tuple[str, list[str]]] = []
    for line in table.splitlines():
        if line.startswith(" "):
            rows[-1][1].append(" ".join(line.split()))
        elif not line.startswith("#"):
            rows.append((" ".join(line.split()), []))
    return rows


def told(table: str) -> list[tuple[str, str]]:
    """The rows of such a table, with what is said below as one text."""
    return [(first, " ".join(said)) for first, said in listed(table)]


def itself(op: Operation) -> list[tuple[()]]:
    return [()]


def each_option(op: Operation) -> list[tuple[str | None]]:
    return [(option,) for option, _ in options(op)]


def each_operation(
    items: Callable[[Operation], Iterable[tuple[Any, ...]]] = itself,
    marks: Callable[[str], Any] = lambda name: (),
    share: int = 1,
    turns: int = 1,
    together: bool = False,
) -> Callable[[Callable[..., None]], Any]:
    """Tests of an operation and an item of it: one for all items of an operation.

    Operations are named where tests are collected, and read where they run. Of ``share``
    operations in a row one is tested now, for each test another, and all in the long campaign;
    those that are tested now may take turns. ``together`` makes one test of all operations, or of
    one of ``share`` in a row, for what takes no time.
    """

    def of_operations(test: Callable[..., None]) -> Any:
        def of_operation(op: Operation) -> None:
            for item in items(op):
                with naming(*item):
                    test(op, *item)

        def of_name(name: str) -> None:
            of_operation(catalog.find(name))

        for made in (of_operation, of_name):
            made.__name__, made.__doc__ = test.__name__, test.__doc__
        if together:
            return each_row("name", catalog.names(), share)(of_name)
        first = sum(map(ord, test.__name__))

        def is_now(n: int) -> bool:
            return (n + first) % share == 0 and has_turn((n + first) // share, turns)

        names = [
            pytest.param(name, marks=marks(name) if is_now(n) else pytest.mark.long)
            for n, name in enumerate(catalog.names())
        ]
        return pytest.mark.parametrize("op", names, indirect=True)(of_operation)

    return of_operations

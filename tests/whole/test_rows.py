"""A test of a table tries every row, and tells each that fails."""

import inspect

import pytest
from kit.each import each_row


def test_every_row_is_tried_and_those_that_fail_are_told():
    tried = []

    @each_row("a, b", [(1, 1), (2, 3), (4, 4), (0, 5)])
    def holds(a, b):
        tried.append(a)
        assert a == b
        with pytest.raises(ZeroDivisionError):
            assert b / (a - 4) == 0

    with pytest.raises(BaseExceptionGroup, match="3 of 4 rows") as caught:
        holds()
    assert tried == [1, 2, 4, 0]
    assert [e.__notes__ for e in caught.value.exceptions] == [
        ["with 1 1"],
        ["with 2 3"],
        ["with 0 5"],
    ]


def test_tables_multiply_and_other_arguments_are_fixtures():
    seen = []

    @each_row("a", [1, 2])
    @each_row("b", "xy")
    def holds(a, b, given):
        seen.append((a, b, given))

    assert list(inspect.signature(holds).parameters) == ["given"]
    holds(given=0)
    assert seen == [(1, "x", 0), (1, "y", 0), (2, "x", 0), (2, "y", 0)]


def test_a_table_without_rows_fails():
    with pytest.raises(AssertionError, match="no rows"):
        each_row("a", [])(lambda a: None)()

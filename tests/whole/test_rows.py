"""A test of a table tries every row, and tells each that fails."""

import inspect

import pytest
from kit import each
from kit.each import each_row

from derive import catalog


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


def test_each_row_of_so_many_has_its_turn_once(monkeypatch):
    seen = []
    for commit in range(12, 15):
        monkeypatch.setattr(each, "TURN", commit)
        rows = each.some_now(range(8), 6, turns=3)
        seen += [row.values[0] for row in rows if not row.marks]
    assert sorted(seen) == list(range(6))
    assert len([row for row in each.in_turns([(1, 2), (3, 4), (5, 6)], 3) if not row.marks]) == 1


def test_operations_take_turns_within_their_share(monkeypatch):
    def tested(**given):
        @each.each_operation(**given)
        def holds(op):
            pass

        (mark,) = holds.pytestmark
        return [row.values[0] for row in mark.args[1] if not row.marks]

    taken = []
    for commit in (6, 7):
        monkeypatch.setattr(each, "TURN", commit)
        taken += tested(share=3, turns=2)
    assert sorted(taken) == sorted(tested(share=3))
    names = catalog.names()
    assert sorted(taken) in [sorted(names[n::3]) for n in range(3)]


def test_a_table_takes_turns(monkeypatch):
    monkeypatch.setattr(each, "TURN", 4)
    seen = []

    @each_row("a", range(8), turns=3)
    def holds(a, given):
        seen.append(a)

    (mark,) = holds.pytestmark
    assert [row.values for row in mark.args[1] if not row.marks] == [(2,)]
    assert list(inspect.signature(holds).parameters) == ["given", "first"]
    for row in mark.args[1]:
        holds(first=row.values[0], given=0)
    assert sorted(seen) == list(range(8))

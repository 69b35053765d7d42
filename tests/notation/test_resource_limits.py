"""How much an operation may be: each limit ends in an error that says it and what to do."""

import pytest

from derive import SpecError, parse
from derive.notation import resource_limits


def test_levels_of_brackets_are_counted_and_a_long_sum_is_one():
    assert parse(f"y[i] = {' + '.join(['x[i]'] * 500)}").outputs == ("y",)
    with pytest.raises(SpecError, match="nested too deeply"):
        parse(f"y[i] = exp({'exp(' * 70}x[i]{')' * 71}")


def test_what_is_shared_counts_as_often_as_it_stands():
    parts = {"a": ("b", "b"), "b": ("c", "c"), "c": ()}
    with pytest.raises(SpecError, match="levels"):
        resource_limits.check_depth("a", parts.__getitem__, None, limit=2)
    resource_limits.check_depth("a", parts.__getitem__, None, limit=3)


def test_long_texts_and_many_operations_are_refused():
    resource_limits.check_length("x" * resource_limits.TEXT)
    with pytest.raises(SpecError, match="too long"):
        resource_limits.check_length("x" * (resource_limits.TEXT + 1))
    resource_limits.check_count(resource_limits.OPERATIONS)
    with pytest.raises(SpecError, match="several files"):
        resource_limits.check_count(resource_limits.OPERATIONS + 1)


def test_a_long_statement_is_told_its_line():
    text = "y[i] = x[i]\n" + "z[i] = " + "+".join(["x[i]"] * (resource_limits.STATEMENT // 5 + 9))
    with pytest.raises(SpecError, match=r"line 2.*statement is too long"):
        parse(text)

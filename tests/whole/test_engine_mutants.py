"""Mutants of the engine: what is changed, and which tests meet a change first."""

from __future__ import annotations

import ast
import inspect

import pytest
from campaigns.engine_mutants import function_at, likely, mutants
from kit.callers import Ran

TEXT = """class Rule:
    @property
    def holds(self):
        def each(x):
            return x < 0
        return each

LIMIT = 1 + 2
"""


@pytest.mark.parametrize(
    ("line", "name"), [(3, "Rule.holds"), (5, "Rule.holds.<locals>.each"), (8, "")]
)
def test_a_line_belongs_to_the_innermost_function(line, name):
    assert function_at(ast.parse(TEXT), line) == name


def test_names_are_those_of_code_objects():
    tree = ast.parse(inspect.getsource(inspect.getmodule(function_at)))
    assert function_at(tree, function_at.__code__.co_firstlineno) == "function_at"


def test_mutants_stand_for_one_place_each():
    made = mutants("rule.py", TEXT)
    assert {(m.old, m.new) for m in made} >= {("x < 0", "(x <= 0)"), ("1 + 2", "(1 - 2)")}
    for m in made:
        assert ast.dump(ast.parse(m.applied(TEXT))) != ast.dump(ast.parse(TEXT)), m


def test_quick_tests_of_a_function_come_first():
    ran = [
        Ran("slow", 50, frozenset({"a.py:f"})),
        Ran("other", 1, frozenset({"a.py:g"})),
        Ran("quick", 2, frozenset({"a.py:f", "a.py:g"})),
        Ran("too slow", 51, frozenset({"a.py:f"})),
    ]
    assert likely(ran, "a.py:f") == ["quick", "slow"]

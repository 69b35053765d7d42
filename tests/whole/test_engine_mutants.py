"""Mutants of the engine: what is changed, and which tests meet a change first."""

import ast

from campaigns.engine_mutants import likely, mutants
from campaigns.slow import shortened, slow_tests
from kit.reached import Reached

TEXT = """class Rule:
    @property
    def holds(self):
        def each(x):
            return x < 0
        return each

LIMIT = 1 + 2
"""


def test_mutants_stand_for_one_place_each():
    made = mutants("rule.py", TEXT)
    assert {(m.old, m.new) for m in made} >= {("x < 0", "(x <= 0)"), ("1 + 2", "(1 - 2)")}
    for m in made:
        assert ast.dump(ast.parse(m.applied(TEXT))) != ast.dump(ast.parse(TEXT)), m


def test_quick_tests_of_a_line_come_first():
    ran = [
        Reached("slow", 50, frozenset({"a.py:7"})),
        Reached("other", 1, frozenset({"a.py:8"})),
        Reached("quick", 2, frozenset({"a.py:7", "a.py:8"})),
        Reached("too slow", 51, frozenset({"a.py:7"})),
    ]
    assert likely(ran, "a.py:7") == ["quick", "slow"]


def test_a_slow_test_is_kept_for_the_lines_that_it_alone_reaches():
    ran = [
        Reached("quick", 0.01, frozenset({"a.py:1"})),
        Reached("again", 1, frozenset({"a.py:1"})),
        Reached("alone", 1, frozenset(f"a.py:{n}" for n in range(1, 9))),
        Reached("within", 2, frozenset(f"a.py:{n}" for n in range(5, 12))),
        Reached("far[1]", 1, frozenset(f"a.py:{n}" for n in range(20, 40))),
        Reached("far[2]", 1, frozenset(f"a.py:{n}" for n in range(20, 40))),
    ]
    slow = slow_tests(ran)
    assert sorted(slow) == ["again", "far[2]", "within"]
    assert shortened(["f[1]", "f[2]", "g[2]"], ["f[1]", "f[2]", "g[1]", "g[2]"]) == ["f", "g[2]"]

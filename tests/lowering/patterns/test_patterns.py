"""The tables of lowering patterns: named, asked in their order, and one row is all a pattern is."""

from __future__ import annotations

import pytest
from kit.rows import without

from derive import derivation, parse, source
from derive.lowering.ground.pattern import Pattern, first_match
from derive.lowering.patterns import PATTERNS

ROWS = [row for table in PATTERNS.values() for row in table]


def test_a_row_has_a_name_of_its_own_and_states_an_identity():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(" = " in row.states for row in ROWS)


class Notes:
    """A scope that notes patterns and nothing else."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def note(self, pattern: str, states: str) -> None:
        self.noted.append(f"{pattern}: {states}")


def test_the_first_row_that_has_the_form_is_the_one():
    rows = (
        Pattern("even", "n = 2*m", lambda scope, n: n // 2 if n % 2 == 0 else None),
        Pattern("third", "n = 3*m", lambda scope, n: n // 3 if n % 3 == 0 else None),
    )
    scope = Notes()
    assert [first_match(rows, scope, n) for n in (6, 9, 5)] == [3, 3, None]  # type: ignore[arg-type]
    assert scope.noted == ["even: n = 2*m", "third: n = 3*m"]


CODE = {
    "cumulative sum": "op f(x[n,k]) -> y\ny[n,k] = sum[l | l <= k](x[n,l])",
    "lookup": "op f(x[n], s[n]: int, w[g]) -> y\ny[n] = x[n]*sum[g]([s[n] == g]*w[g])",
    "any by place": "op f(x[g], s[n]: int) -> y\ny[g] = where(any[n](s[n] == g), x[g]**2, 0)",
    "run": "op f(x[u]) -> y\ny[t] = x[2*t]**2",
    "numbered places": "op f(x[t]) -> y\ny = x[0]**2",
}


@pytest.mark.parametrize("name", CODE)
def test_the_steps_name_the_pattern_and_without_its_row_the_code_is_another(name):
    op = parse(CODE[name])
    made = derivation(op)
    assert name in {pattern for _, pattern, _ in made.recognised}
    assert f": {name}: " in made.text(steps=True)
    assert "patterns of the code" not in str(made)
    with without(name):
        general = source(op)
    assert general != source(op)

"""Every rule of the engine: it states its identity, and why repeating it ends.

That a rule keeps the value is tested where it stands: on terms of its own, and at every step of
every derivation.
"""

from __future__ import annotations

import ast

import pytest
from kit.command import ROOT
from kit.each import each_row

import derive
from derive.algebra.inequalities import Bounds
from derive.algebra.rules import DELTA_RULES, FUNCTION_RULES
from derive.calculus.adjoint import unit_axes
from derive.calculus.bracket_rules import witness_rule, zero_rule
from derive.calculus.build_lets import flatten_operation
from derive.calculus.equality_rules import equality_rules, lookup_rule
from derive.calculus.fold import fold_rules, masked_fold
from derive.calculus.ratio_rules import quotient_rules
from derive.calculus.shifted_deltas import shift_rules
from derive.calculus.stabilise import LOGARITHMS, POWERS

LETS = flatten_operation(derive.parse("op f(x[n,k]) -> y ; y[n] = logsumexp[k](x[n,k])"))
UNIT = derive.parse("op f(x[n,k]; size(k)=1) -> y ; y[n] = sum[k](x[n,k])")
BOUNDS = Bounds()
EVERY = (
    *(*DELTA_RULES, *FUNCTION_RULES, *fold_rules(LETS, {}), masked_fold(LETS)),
    *(*quotient_rules(LETS), *shift_rules(BOUNDS), *equality_rules(BOUNDS)),
    *(lookup_rule(BOUNDS), witness_rule(LETS), zero_rule(LETS), *unit_axes(UNIT)),
)


@each_row("rule", EVERY)
def test_a_rule_states_an_identity_and_why_it_ends(rule):
    assert rule.name and rule.states and rule.shrinks
    assert "=" in rule.states or " is " in rule.states


def test_one_name_says_one_identity():
    assert len({r.name for r in EVERY}) == len({(r.name, r.states) for r in EVERY})


@pytest.mark.parametrize("states", [*POWERS, *(states for states, _ in LOGARITHMS)])
def test_a_stable_form_states_its_identity(states):
    assert "=" in states


def test_these_are_all_rules():
    made = 0
    for path in (ROOT / "derive").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            made += called and node.func.id in ("Rule", "SumRule")
    assert made == len(EVERY)

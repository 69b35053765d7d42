"""The steps that led to a formula, each once, those of what it took in before."""

from __future__ import annotations

from derive.algebra.poly import ZERO
from derive.algebra.rules import Step
from derive.calculus.adjoint import StepLog


def step(name):
    return Step(name, "", ZERO, ZERO)


A, B, C, D = map(step, "abcd")


def test_own_steps_come_last():
    trail = StepLog((A,)).then((B,))
    assert [s.rule for s in trail.then((C,))] == ["a", "b", "c"]


def test_what_came_in_twice_stands_once():
    shared = StepLog((A, B))
    taken = shared.then((C,))
    assert [s.rule for s in shared.then((D,), taken)] == ["c", "a", "b", "d"]


def test_a_trail_as_long_as_a_network_is_read():
    trail = StepLog()
    for _ in range(5000):
        trail = trail.then((A,))
    assert len(list(trail)) == 5000

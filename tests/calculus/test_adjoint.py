"""Reverse mode over the lets: one adjoint an equation, one gradient an input."""

from itertools import pairwise

import pytest

from derive import parse
from derive.algebra.poly import ZERO
from derive.algebra.rules import Step
from derive.calculus.adjoint import StepLog, differentiate
from derive.calculus.build_lets import flatten_operation

OP = parse("op f(x[i], w[j,i], T[j]: int) -> y\nh[j] = sum[i](w[j,i]*x[i])*T[j]\ny[j] = h[j]**2")
TWO = parse("op f(x[i]) -> y, z\ny[i] = x[i]**2\nz[i] = y[i]*x[i]")


def differentiated(op, wrt=None, of=None):
    return differentiate(op, flatten_operation(op), wrt, of)


def test_adjoints_come_last_first_and_gradients_in_the_order_of_inputs():
    found = differentiated(OP)
    assert [a.tensor for a in found.adjoints] == ["h"]
    assert [a.tensor for a in found.gradients] == ["x", "w"]
    assert [name for name, _ in found.cotangents] == ["y"]


def test_what_is_asked_for_is_differentiated_alone():
    found = differentiated(OP, wrt=["w"])
    assert [a.tensor for a in found.gradients] == ["w"]
    named = differentiated(TWO, wrt=["y"])
    assert set(named.wanted) == {"y"}


def test_of_several_outputs_each_has_a_cotangent_or_one_alone():
    assert [name for name, _ in differentiated(TWO).cotangents] == ["y", "z"]
    assert [name for name, _ in differentiated(TWO, of="z").cotangents] == ["z"]


@pytest.mark.parametrize("op", [OP, TWO], ids=["one", "two"])
def test_each_step_starts_from_the_one_before(op):
    for a in differentiated(op).gradients:
        steps = [s for s in a.steps if s.subject[0] in (a.name, "")]
        assert all(two.before is one.after for one, two in pairwise(steps[1:]))


def step(name):
    return Step(name, "", ZERO, ZERO)


A, B, C, D = map(step, "abcd")


def test_own_steps_come_last():
    trail = StepLog((A,)).then((B,))
    assert [s.rule for s in trail.then((C,))] == ["a", "b", "c"]


def test_what_came_in_twice_stands_once():
    shared = StepLog((A, B))
    taken = shared.then((C,))
    assert [s.rule for s in shared.then((D,), taken)] == ["a", "b", "c", "d"]


def test_a_trail_as_long_as_a_network_is_read():
    trail = StepLog()
    for _ in range(5000):
        trail = trail.then((A,))
    assert len(list(trail)) == 5000

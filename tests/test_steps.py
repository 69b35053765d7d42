"""Every step of every derivation of the catalog: equal to the one before, by the oracle."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from equations import marks, numbers
from once import sample

from derive import catalog
from derive.algebra.expr import Delta, Expr, accesses, free_indices, walk
from derive.check import oracle
from derive.check.samples import cases
from derive.pipeline import derivation, options
from derive.result import Derivation, DerivationStep

CHOICES = [
    pytest.param(op, option, id=f"{op.name}-{option}", marks=marks(op.name))
    for op in catalog.operations()
    for option, _ in options(op)
]


class Values:
    """Arrays of all that the formulas of a derivation read, computed when first asked for."""

    def __init__(self, op: Any, option: str | None, d: Derivation) -> None:
        case = next(c for c in cases(op) if c.option == option)
        made = sample(op, case)
        self.sizes = oracle.sizes(op, made.tensors, made.parameters)
        self.numbers = numbers(op, made.parameters, self.sizes)
        rng = np.random.default_rng(4)
        arrays = oracle.run(op, made.tensors, made.parameters)
        self.known: dict[str, Any] = {**made.tensors, **arrays}
        for output, name in d.cotangents:
            self.known[name] = rng.uniform(0.5, 1.5, arrays[output].shape)
        formulas = (*d.step_definitions, *d.definitions, *d.adjoints, *d.gradients.values())
        self.bodies = {f.name: (f.axes, f.body) for f in formulas}
        # An adjoint that has no formula, being opened, is what its own last step says.
        for step in steps_of(d):
            if step.name not in {f.name for f in formulas}:
                self.bodies[step.name] = (step.axes, step.after)

    def of(self, axes: tuple[Expr, ...], e: Expr) -> Any:
        for access in accesses(e):
            if access.tensor not in self.known:
                self.known[access.tensor] = self.of(*self.bodies[access.tensor])
        return oracle.array(axes, e, self.known, self.sizes, self.numbers)


def letters(axes: tuple[Expr, ...]) -> frozenset[Expr]:
    """The indices on the left, those of composite axes included."""
    return frozenset(i for axis in axes for i in free_indices(axis))


def steps_of(d: Derivation) -> list[DerivationStep]:
    return [*d.rewritten, *(s for f in (*d.adjoints, *d.gradients.values()) for s in f.steps)]


@pytest.mark.parametrize(("op", "option"), CHOICES)
def test_each_step_equals_the_one_before(op, option):
    d = derivation(op, option)
    values = Values(op, option, d)
    found: dict[str, Any] = {}
    for step in steps_of(d):
        assert free_indices(step.before) | free_indices(step.after) <= letters(step.axes)
        before, after = (values.of(step.axes, e) for e in (step.before, step.after))
        np.testing.assert_allclose(after, before, rtol=1e-10, atol=1e-12, err_msg=str(step))
        # One name is one value, in every formula and at every step.
        first = found.setdefault(step.name, before)
        np.testing.assert_allclose(before, first, rtol=1e-10, atol=1e-12, err_msg=str(step))


@pytest.mark.parametrize(("op", "option"), CHOICES)
def test_each_formula_is_its_last_step(op, option):
    d = derivation(op, option)
    for f in (*d.adjoints, *d.gradients.values()):
        own = [s for s in f.steps if s.name == f.name]
        if own:
            values = Values(op, option, d)
            last, body = values.of(own[-1].axes, own[-1].after), values.of(f.axes, f.body)
            np.testing.assert_allclose(body, last, rtol=1e-12, atol=1e-14)
            assert own[0].rule == "chain rule"
        assert f.steps


@pytest.mark.parametrize(("op", "option"), CHOICES)
def test_consecutive_steps_of_one_subject_join(op, option):
    """What a step starts from is what the step before it ended with."""
    d = derivation(op, option)
    for f in (*d.adjoints, *d.gradients.values()):
        own = [s for s in f.steps if s.name == f.name]
        for one, two in pairwise(own):
            assert two.before is one.after


@pytest.mark.parametrize(("op", "option"), CHOICES)
def test_a_step_says_its_rule(op, option):
    for step in steps_of(derivation(op, option)):
        assert step.rule and step.states
        assert str(step) == f"{step.text()}    ({step.rule}: {step.states})"


def test_the_road_of_softmax():
    """Partial with deltas, product with G under the sum, each delta, the names, the factoring."""
    d = derivation(catalog.find("softmax"))
    (gradient,) = d.gradients.values()
    rules = [s.rule for s in gradient.steps]
    assert rules == [
        "partial derivative of S",
        "chain rule",
        *["contract delta"] * 3,
        *["fold"] * (len(rules) - 6),
        "factor",
    ]
    assert len(rules) > 6
    partial, chain, *contractions = gradient.steps[:5]
    assert partial.name == "∂S/∂A"

    def count(e):
        return isinstance(e, Delta) + sum(map(count, e.parts()))

    deltas = [count(s.after) for s in (partial, chain)]
    # δ[k,k′] or, in the sum, δ[k,k″], and one for each group.
    assert deltas == [6, 6]
    assert {a.tensor for a in accesses(chain.after)} >= {"G"}
    assert partial.after is not chain.after
    left = [len({e.axis for e in walk(s.after) if isinstance(e, Delta)}) for s in contractions]
    assert left == [2, 1, 0]
    assert (
        str(gradient) == "grad_A[*p,k,*q] = S[*p,k,*q]·(G[*p,k,*q] − Σₖ′ G[*p,k′,*q]·S[*p,k′,*q])"
    )


@pytest.mark.parametrize(
    ("name", "formulas"),
    [
        ("transpose", ["grad_A[*b,i,j] = G[*b,j,i]"]),
        (
            "matmul",
            [
                "grad_A[*b,i,k] = Σⱼ G[*b,i,j]·B[*b,k,j]",
                "grad_B[*b,k,j] = Σᵢ G[*b,i,j]·A[*b,i,k]",
            ],
        ),
        ("sum", ["grad_A[*p,k,*q] = G[*p,*q]"]),
        ("mean", ["grad_A[*p,k,*q] = G[*p,*q]/size(k)"]),
        ("exp", ["grad_A[*p] = G[*p]·F[*p]"]),
        ("log", ["grad_A[*p] = G[*p]/A[*p]"]),
        ("tanh", ["grad_A[*p] = G[*p]·(1 − F[*p]²)"]),
        ("sigmoid", ["grad_A[*p] = G[*p]·F[*p]·(1 − F[*p])"]),
        ("logsumexp", ["grad_A[*p,k,*q] = G[*p,*q]·exp(A[*p,k,*q] − F[*p,*q])"]),
        (
            "log_softmax",
            ["grad_A[*p,k,*q] = G[*p,k,*q] − exp(F[*p,k,*q])·Σₖ′ G[*p,k′,*q]"],
        ),
    ],
)
def test_the_formula_that_an_expert_writes(name, formulas):
    d = derivation(catalog.find(name))
    assert [str(f) for f in d.gradients.values()] == formulas

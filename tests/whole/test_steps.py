"""Every step of every derivation of the catalog: equal to the one before, by the oracle."""

from itertools import pairwise
from typing import Any

import numpy as np
from kit.each import each_operation, each_option, each_row
from kit.equations import marks
from kit.once import derivation
from kit.steps import Values, letters, steps_of

import derive
from derive import catalog
from derive.algebra.expr import Delta, accesses, free_indices, walk


@each_operation(each_option, marks, share=3, turns=5)
def test_each_step_equals_the_one_before_and_a_formula_its_last(op, option):
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

    for f in (*d.adjoints, *d.gradients.values()):
        own = [s for s in f.steps if s.name == f.name]
        if own:
            last, body = values.of(own[-1].axes, own[-1].after), values.of(f.axes, f.body)
            np.testing.assert_allclose(body, last, rtol=1e-12, atol=1e-14)
            assert own[0].rule == "chain rule"
        assert f.steps


@each_operation(each_option, together=True, share=4)
def test_consecutive_steps_of_one_subject_join(op, option):
    """What a step starts from is what the step before it ended with."""
    d = derivation(op, option)
    for f in (*d.adjoints, *d.gradients.values()):
        own = [s for s in f.steps if s.name == f.name]
        for one, two in pairwise(own):
            assert two.before is one.after


@each_operation(each_option, together=True, share=4)
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
    assert partial.name == "∂S/∂input"

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
        str(gradient)
        == "grad_input[*p,k,*q] = S[*p,k,*q]·(G[*p,k,*q] − Σₖ′ G[*p,k′,*q]·S[*p,k′,*q])"
    )


@each_row(
    "name, formulas",
    [
        ("transpose", ["grad_input[*b,i,j] = G[*b,j,i]"]),
        (
            "matmul",
            [
                "grad_input[*b,i,k] = Σⱼ G[*b,i,j]·other[*b,k,j]",
                "grad_other[*b,k,j] = Σᵢ G[*b,i,j]·input[*b,i,k]",
            ],
        ),
        ("sum", ["grad_input[*p,k,*q] = G[*p,*q]"]),
        ("mean", ["grad_input[*p,k,*q] = G[*p,*q]/size(k)"]),
        ("exp", ["grad_input[*p] = G[*p]·F[*p]"]),
        ("log", ["grad_input[*p] = G[*p]/input[*p]"]),
        ("tanh", ["grad_input[*p] = G[*p]·(1 − F[*p]²)"]),
        ("sigmoid", ["grad_input[*p] = G[*p]·F[*p]·(1 − F[*p])"]),
        ("logsumexp", ["grad_input[*p,k,*q] = G[*p,*q]·exp(input[*p,k,*q] − F[*p,*q])"]),
        ("log_softmax", ["grad_input[*p,k,*q] = G[*p,k,*q] − exp(F[*p,k,*q])·Σₖ′ G[*p,k′,*q]"]),
    ],
)
def test_the_formula_that_an_expert_writes(name, formulas):
    d = derivation(catalog.find(name))
    assert [str(f) for f in d.gradients.values()] == formulas


def test_a_step_that_prints_nothing_new_is_left_out():
    d = derive.derivation(derive.parse("loss = mean[n](w[n]*(x[n] - y[n])**2)"), wrt=["x"])
    texts = [s.text() for s in d.gradients["x"].steps]
    assert len(texts) > 3 and len(set(texts)) == len(texts)

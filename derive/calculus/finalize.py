"""Formulas with their shifted deltas and lookups solved: the last thing that is done to them.

Solving puts what a formula reads at a computed position. An adjoint that is opened is read at
plain indices, so that the deltas of both meet in one sum; then what is left is solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from derive.algebra.rules import Rules
from derive.algebra.simplify import Log, simplify
from derive.calculus.adjoint import Adjoint, Backward, said_of
from derive.calculus.delta_solving import equality_rules
from derive.calculus.existential_guards import witness_rule
from derive.calculus.fold import fold_rules
from derive.calculus.gather_rules import lookup_rule
from derive.calculus.guard_insertion import SafeAgain, guarded_sums
from derive.calculus.shifted_deltas import shift_rules


def solved(backward: Backward) -> Backward:
    """The adjoints and gradients without the deltas and lookups that ranges let be solved."""
    bounds, lets = backward.bounds, backward.lets
    made = {a.name: a.as_let() for a in backward.adjoints}
    last: Rules = (
        *shift_rules(bounds),
        *equality_rules(bounds),
        lookup_rule(bounds),
        witness_rule(lets),
    )
    folds = fold_rules(lets, made)

    def each(formulas: Sequence[Adjoint]) -> tuple[Adjoint, ...]:
        return tuple(_solved(a, last, folds) for a in formulas)

    return replace(backward, adjoints=each(backward.adjoints), gradients=each(backward.gradients))


def _solved(a: Adjoint, last: Rules, folds: Rules) -> Adjoint:
    log: Log = []
    body = simplify(a.body, last, log)
    if not log:
        return a
    body = simplify(body, (*last, *folds), log)
    return replace(a, body=body, steps=a.steps.then(said_of((a.name, a.formals), log)))


def safe_backward(backward: Backward) -> Backward:
    """The adjoints and gradients, in which brackets of derivatives guard what they stand beside."""
    safe = SafeAgain(backward.lets)

    def made(adjoints: Sequence[Adjoint]) -> tuple[Adjoint, ...]:
        return tuple(replace(a, body=safe.flat(a.body)) for a in adjoints)

    return replace(backward, adjoints=made(backward.adjoints), gradients=made(backward.gradients))


def safe_forward(tangents: Backward) -> Backward:
    """The tangents with these guards, and those of what stands outside of their sums.

    A gradient has its sums in the equations; a tangent sums over what an equation reads. Formulas
    are told without these guards, which have names of their own.
    """
    lets = tangents.lets.apart()
    safe = SafeAgain(lets)
    made = (replace(a, body=safe.flat(guarded_sums(lets, a.body))) for a in tangents.adjoints)
    return replace(tangents, lets=lets, adjoints=tuple(made))

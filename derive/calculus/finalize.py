"""Solve the shifted deltas and gathers of the formulas: the last pass over them.

Solving moves reads to computed positions. An adjoint is therefore inlined before it is solved, at
plain indices, so that the deltas of both formulas meet in one sum.
"""

from __future__ import annotations

from dataclasses import replace

from derive.algebra.rules import Log, Rules, simplify
from derive.calculus.adjoint import Adjoint, Backward
from derive.calculus.bracket_rules import witness_rule
from derive.calculus.equality_rules import equality_rules, lookup_rule, shift_rules
from derive.calculus.fold import fold_rules
from derive.calculus.guard_insertion import DerivativeGuards, guarded_sums


def solved(backward: Backward) -> Backward:
    """Return the adjoints and gradients with all solvable deltas and gathers solved."""
    bounds, lets = backward.bounds, backward.lets
    last: Rules = (
        *shift_rules(bounds),
        *equality_rules(bounds),
        lookup_rule(bounds),
        witness_rule(lets),
    )
    folds = fold_rules(lets, backward.opened())

    return backward.each(lambda a: _solve_adjoint(a, last, folds))


def _solve_adjoint(a: Adjoint, last: Rules, folds: Rules) -> Adjoint:
    log: Log = []
    body = simplify(a.body, last, log)
    if not log:
        return a
    body = simplify(body, (*last, *folds), log)
    return a.rewritten(body, log)


def safe_backward(backward: Backward) -> Backward:
    """Return the adjoints and gradients with guards from the brackets of derivatives."""
    safe = DerivativeGuards(backward.lets)

    return backward.each(lambda a: replace(a, body=safe.flat(a.body)))


def safe_forward(tangents: Backward) -> Backward:
    """Return the tangents with these guards, and with guards for the cofactors of their sums.

    A gradient has its sums in the equations; a tangent sums over the reads of an equation. These
    guards introduce names, so shown formulas omit them.
    """
    lets = tangents.lets.apart()
    safe = DerivativeGuards(lets)
    made = tangents.each(lambda a: replace(a, body=safe.flat(guarded_sums(lets, a.body))))
    return replace(made, lets=lets)

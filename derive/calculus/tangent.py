"""Forward mode over the lets: one tangent for each active equation.

    d_F[j] = Sum over accesses X[i] in F[j]:  dF[j]/dX[i] * d_X[i]

The tangents of the inputs are given. Accesses keep their positions, so the only deltas to eliminate
are those of the equations themselves. Every tangent has a name here; `derive.calculus.inline`
inlines those whose name costs more than it saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from derive.algebra.rules import DELTA_RULES, FUNCTION_RULES, Log, Rules, Step, simplify
from derive.budget import at
from derive.calculus.adjoint import (
    Adjoint,
    Backward,
    active_equations,
    finish,
    unit_axes,
    with_subject,
)
from derive.calculus.chain_rule import reads, tangent_of_let
from derive.calculus.fold import fold_rules, masked_fold
from derive.calculus.guards import bounds_of
from derive.calculus.lets import Let, Lets
from derive.calculus.ratio_rules import quotient_rules
from derive.notation.operation import Operation


def differentiate_forward(
    op: Operation, lets: Lets, wrt: Sequence[str] | None = None, of: Sequence[str] | None = None
) -> Backward:
    """The tangents of all active outputs, and of the equations that lead to them.

    ``wrt`` names the active float inputs, by default all. ``of`` names the equations whose tangents
    are results, by default the outputs. ``cotangents`` of the result has (input, the name of its
    tangent), ``adjoints`` the tangents in the order of computation; there are no gradients.
    """
    inputs = [t.name for t in op.inputs if t.kind == "float" and (wrt is None or t.name in wrt)]
    moving = active_equations(lets, inputs, frozenset())
    wanted = frozenset(moving.intersection(op.outputs if of is None else of))
    read = _leading_to(lets, moving, wanted)
    names = {name: _tangent_name(lets, name) for name in inputs if name in read}
    given = tuple(names.items())
    made: dict[str, Let] = {}
    rules: Rules = (
        *DELTA_RULES,
        *unit_axes(op),
        *fold_rules(lets, made),
        *FUNCTION_RULES,
        *quotient_rules(lets),
    )
    masked = masked_fold(lets)
    found: list[Adjoint] = []
    for let in [let for let in lets if let.name in read]:
        at(f"the tangent of {lets.display_name(let.name)}")
        subject = (_tangent_name(lets, let.name), let.formals)
        partial, log = tangent_of_let(lets, let, names), Log()
        rule = Step("tangent", "dF[j] = Σᵢ ∂F[j]/∂X[i]·dX[i]", partial, partial)
        folded = simplify(partial, (masked,), log)
        body, steps = finish(subject, folded, rule, rules, with_subject(subject, log))
        if body.terms or let.name in wanted:
            found.append(Adjoint(let.name, *subject, body, steps))
            made[subject[0]] = found[-1].as_let()
            names[let.name] = subject[0]
    return Backward(lets, given, tuple(found), (), wanted, bounds_of(op))


def _tangent_name(lets: Lets, name: str) -> str:
    return lets.derived_name(name, f"d_{lets.display_name(name)}")


def _leading_to(lets: Lets, moving: set[str], wanted: Iterable[str]) -> set[str]:
    """These equations, and the inputs and equations that they depend on smoothly."""
    found = set(wanted)
    for let in reversed(list(lets)):
        if let.name in found and let.name in moving:
            found |= set(reads(lets, let))
    return found

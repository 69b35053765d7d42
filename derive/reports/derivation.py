"""A differentiated operation, and its formulas and steps for presentation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from derive.algebra.expr import Expr
from derive.algebra.factor import factor
from derive.calculus.adjoint import Adjoint
from derive.calculus.unit import Unit
from derive.cost.costs import costs_of
from derive.errors import no_recursion_leaves
from derive.notation.operation import Operation
from derive.notation.options import options
from derive.notation.original_axes import as_given
from derive.program.program import Program
from derive.program.torch_ops import count
from derive.reports.formula import DerivationStep, Formula
from derive.reports.presentation_names import PresentationNames, definitions, shown, steps_of
from derive.reports.result import Cost
from derive.reports.shared_gradients import reused, written_in
from derive.reports.symmetric_kernels import sort_symmetric_reads, symmetric


def as_formulas(op: Operation) -> tuple[Formula, ...]:
    """Return the equations as the user wrote them."""
    return tuple(Formula(e.name, e.axes, as_given(op, e.body)) for e in op.equations)


def trees(derived: Unit, speech: PresentationNames) -> list[Expr]:
    """Return the tensors of all adjoints and gradients, then their bodies as formulas show them."""
    every = (*derived.backward.adjoints, *derived.backward.gradients)
    lets = (derived.lets.get(a.tensor) for a in every)
    bodies = [speech.written_out(factor(a.body)) for a in every]
    return [*(let.access for let in lets if let is not None), *bodies]


def as_shown(
    derived: Unit, speech: PresentationNames, wanted: Sequence[str] | None
) -> tuple[Formula, ...]:
    """Return the kept adjoints, then the gradients, in the short form of the printed text.

    ``wanted`` selects and orders the gradients; None means all.
    """
    backward, display_name = derived.backward, derived.lets.display_name
    known = symmetric(derived.lets)
    adjoints = [sort_symmetric_reads(a, known) for a in backward.adjoints]
    every = [sort_symmetric_reads(a, known) for a in backward.gradients] + adjoints
    found = {display_name(a.tensor): a for a in every}
    kept = [a for a in adjoints if a.tensor not in backward.wanted]
    results = [a for a in adjoints if a.tensor in backward.wanted]
    names = wanted or [display_name(a.tensor) for a in (*backward.gradients, *results)]

    @cache
    def length(a: Adjoint) -> int:
        return len(str(shown(a, speech)))

    kept, gradients = written_in(kept, [found[n] for n in names], length)
    return tuple(shown(a, speech) for a in (*kept, *reused(gradients, length)))


@no_recursion_leaves
def steps_and_names(
    derive: Callable[..., Unit], op: Operation, option: str | None, *asked: Any
) -> tuple[tuple[DerivationStep, ...], tuple[Formula, ...]]:
    """Return the rewrites to the stable form, and the definitions that any step reads."""
    given = dict(options(op))[option]
    derived = derive(op, option, *asked)
    every = (*derived.backward.adjoints, *derived.backward.gradients)
    lets, speech = derived.lets, PresentationNames.of(given, derived.lets, every)
    steps = [s for a in every for s in a.steps]
    in_steps = [e for s in (*steps, *lets.steps) for e in (s.before, s.after)]
    named = definitions(lets, [*trees(derived, speech), *in_steps], speech)
    return steps_of(lets.steps, speech), named


def cost_of(op: Operation, option: str | None, code: Program) -> Cost:
    """Return the cost of the code of an option."""
    counted = [entry.line.code for entry in code.backward]
    operations, contractions = count(counted)
    costs = vars(costs_of(dict(options(op))[option], code))
    return Cost(**costs, operations=operations, contractions=contractions, lines=len(counted))

"""A differentiated operation, and its formulas and steps for presentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations
from typing import Any

from derive.algebra.expr import Access, Expr, tensors
from derive.algebra.factor import factor
from derive.algebra.match import match
from derive.algebra.poly import Poly, Term, atom, make_term, poly, scale
from derive.algebra.rules import Step
from derive.calculus.adjoint import Adjoint
from derive.calculus.lets import inline
from derive.calculus.softmax import sums_apart
from derive.calculus.sum_rules import sum_instances
from derive.calculus.unit import Unit
from derive.cost.costs import costs_of
from derive.errors import no_recursion_leaves
from derive.notation.operation import Operation, options
from derive.notation.split import as_given
from derive.program.program import Program
from derive.program.torch_ops import count
from derive.reports.formula import DerivationStep, Formula
from derive.reports.presentation_names import PresentationNames, definitions, shown, steps_of
from derive.reports.result import Cost

# --------------------------------------------------------------------------------- shared gradients
# Express gradients by other gradients, or inline them, whichever is shorter.
#
#     grad_b[n] = -G[n]*f(a[n] - b[n])            -grad_a[n]
#     grad_x[n,c] = .. Sum_n G[n,c]*h[n,c] ..     .. grad_w[c] ..
#     grad_s[n] = G[n]*y[n]/(2*s[n])              (inlined)
#     grad_x[n,k] = 2*grad_s[n]*x[n,k] + ..       G[n]*y[n]*x[n,k]/s[n] + ..
#
# This is for presentation only: the code computes each gradient on its own.


def reused(gradients: Sequence[Adjoint], length: Callable[[Adjoint], int]) -> tuple[Adjoint, ...]:
    """Return the gradients, each in terms of others where that is shorter, without cycles.

    What another gradient is made of comes before it, and otherwise the order is kept.
    """
    found = {a.name: a for a in gradients}
    reads: dict[str, set[str]] = {name: {name} for name in found}
    pairs = list(combinations(gradients, 2))
    # A sum that two gradients are is named after the earlier one.
    for (other, a), later in [(p, True) for p in pairs] + [(p[::-1], False) for p in pairs]:
        if a.name in reads[other.name]:
            continue
        given = found[a.name]
        for rule, body in _bodies_by_reference(given, other, later):
            made = given.rewritten(body, [Step("gradient", rule, given.body, body)])
            if length(made) < length(given):
                found[a.name] = made
                for known in reads.values():
                    known |= reads[other.name] if a.name in known else set()
                break
    order = {name: [n for n in found if n in reads[name]] for name in found}
    read_first = (sorted(names, key=lambda n: len(reads[n])) for names in order.values())
    return tuple(found[n] for n in dict.fromkeys(n for names in read_first for n in names))


def written_in(
    adjoints: Sequence[Adjoint], gradients: Sequence[Adjoint], length: Callable[[Adjoint], int]
) -> tuple[list[Adjoint], list[Adjoint]]:
    """Inline adjoints that are single products with a single reader, where that is shorter.

    Returns the adjoints that remain, and the gradients.
    """
    found = {a.name: a for a in (*adjoints, *gradients)}
    for a in adjoints:
        readers = [b for b in found.values() if a.name in tensors(b.body)]
        terms = [t for b in readers for t in b.body.terms if a.name in tensors(t)]
        if len(terms) != 1 or len(a.body.terms) != 1 or a.body.terms[0].binders:
            continue
        (b,) = readers
        body = inline(b.body, found[a.name].as_let())
        step = Step("write out", "a name equals its definition", b.body, body)
        made = b.rewritten(body, [step], a.steps)
        if a.name not in tensors(body) and length(made) < length(b) + length(found[a.name]):
            found[b.name] = made
            del found[a.name]
    left = ([found[a.name] for a in every if a.name in found] for every in (adjoints, gradients))
    return next(left), next(left)


def _bodies_by_reference(a: Adjoint, other: Adjoint, later: bool) -> Iterator[tuple[str, Poly]]:
    """Yield (rule, body) for each body of ``a`` in terms of another gradient.

    Of two gradients that are multiples of each other, the later one refers to the earlier one,
    unless the earlier one is a multiple of a name already.
    """
    plain = all(len(t.factors) == 1 and not t.binders for t in other.body.terms)
    whole = _multiple(a.body, other) if later and not plain else None
    if whole is not None:
        yield "a multiple of a gradient is one of its name", whole
    elif len(other.body.terms) == 1 and other.body.terms[0].binders:
        terms = [_with_sum_named(t, other) for t in a.body.terms]
        if terms != list(a.body.terms):
            yield "a sum that is a gradient is its name", poly(terms)


def _multiple(p: Poly, other: Adjoint) -> Poly | None:
    """Return c*name if p is c times the other gradient, else None."""
    if not p.terms or len(p.terms) != len(other.body.terms):
        return None
    for c in {abs(t.coef / other.body.terms[0].coef) for t in p.terms}:
        for signed in (c, -c):
            name = _matching_access(scale(other.body, signed), p, other)
            if name is not None:
                return scale(atom(name), signed)
    return None


def _matching_access(pattern: Poly | Term, target: Poly | Term, other: Adjoint) -> Access | None:
    """Return an access to the other gradient at the indices where the pattern equals the target."""
    for binding in match(pattern, target, frozenset(other.formals), {}):
        if all(i in binding for i in other.formals):
            return Access(other.name, tuple(binding[i] for i in other.formals))
    return None


def _with_sum_named(t: Term, other: Adjoint) -> Term:
    """Replace a sum in the term, and its cofactors in the other gradient, by its name."""
    (definition,) = other.body.terms
    for binders, factors in sums_apart(t):
        beside = [f for f in t.factors if f not in factors]
        found = sum_instances(definition, other.formals, binders, factors, beside)
        for binding, rest in found:
            name = Access(other.name, tuple(binding[i] for i in other.formals))
            left = [i for i in t.binders if i not in binders]
            return make_term(t.coef / definition.coef, left, [*rest, name])
    return t


# --------------------------------------------------------------------------------------- derivation


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
    adjoints = backward.adjoints
    every = (*backward.gradients, *adjoints)
    found = {display_name(a.tensor): a for a in every}
    kept = [a for a in adjoints if a.tensor not in backward.wanted]
    results = [a for a in adjoints if a.tensor in backward.wanted]
    names = wanted or [display_name(a.tensor) for a in (*backward.gradients, *results)]

    @cache
    def length(a: Adjoint) -> int:
        return len(str(shown(a, speech)))

    kept, gradients = written_in(kept, [found[n] for n in names], length)
    return tuple(shown(a, speech) for a in reused([*kept, *gradients], length))


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
    counted = [line.code for line in code.backward]
    operations, contractions = count(counted)
    costs = vars(costs_of(dict(options(op))[option], code))
    return Cost(**costs, operations=operations, contractions=contractions, lines=len(counted))

"""Chooses the saved statistics that the graph of a gradient leads through.

Such a statistic is an output with a cotangent of its own. The backward of any order reads it as
that of first order does, and autograd leads from it to what it is made of. So both have the same
lines, and no input is kept only to compute the statistic again:

    y = f(s), s = g(x):    grad_s = f'(s)*G + G_s,    grad_x = g'(x)*grad_s
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher

from derive.algebra.expr import Expr, Iverson, tensors
from derive.calculus.adjoint import Adjoint
from derive.kernels.recognise import backward_rows, smooth_rows
from derive.lowering.backward import BackwardInput, lower_backward
from derive.lowering.ground.value import NeedsFlatGroups
from derive.lowering.lowering_input import LoweringInput, noted_patterns
from derive.lowering.program import (
    Lowered,
    active,
    constants,
    count_operations,
    has_kernels,
    single_kernels,
)
from derive.lowering.saved_values import Offer
from derive.program.program import Program, with_first_order
from derive.program.torch_ir import names_in

_FEWER_LINES = 6
"""The lines that statistics with cotangents must spare."""
_LINES_OF_COTANGENTS = 2
"""The lines that a module has for cotangents of statistics."""
_LINES_OF_INPUT = 10
"""The lines that any order may spare by keeping another input."""
_MORE_OPERATIONS = 1.2
"""First order may have a fifth more operations, of few elements, to have the lines of any order."""
_MOST_REMOVED = 6
"""The statistics that are tried without: each takes a derivation, as long as the operation is."""

Derive = Callable[[Sequence[str]], LoweringInput]
"""Returns the derivation in which the adjoints of these equations are results."""


def through_statistics(lowered: Lowered, derive: Derive) -> Program:
    """Return the program whose graph leads through the statistics that make it shortest."""
    program, first = lowered.program, lowered.first
    several = sum(cotangent is not None for _, cotangent in program.cotangents) != 1
    if lowered.every is not lowered.given or not program.first_order or several:
        return program
    names = _candidates(lowered)
    lets, inputs = lowered.given.lets, lowered.given.border.op.inputs
    least = min((len(lets[n].formals) for n in names), default=0)
    large = {t.name for t in inputs if len(t.axes) >= least} - {s.name for s in first.saved}

    def kept(made: Program) -> int:
        """Count the large inputs that are kept for any order alone."""
        return sum(s.name in large for s in made.saved)

    def cost(made: Program, names: Collection[str] = ()) -> tuple[int, int]:
        """Count the lines of both orders, and those that a kept input stands for."""
        lines = _count_lines(made) + bool(names) * _LINES_OF_COTANGENTS + len(names)
        return lines + _LINES_OF_INPUT * kept(made), len(names)

    made, chosen, best = program, frozenset[str](), cost(program)
    most = best[0] - _FEWER_LINES
    if most < len(first.backward):
        return program
    # All of them, then with one removed or added, until both orders have the same lines.
    single = [frozenset([n]) for n in names[:_MOST_REMOVED]]
    for changed in dict.fromkeys((frozenset(names), *single)):
        tried = chosen ^ changed
        for other, masked in _through(lowered, [n for n in names if n in tried], derive):
            if (masked or kept(other) < kept(program)) and cost(other, tried) < best:
                made, chosen, best = other, tried, cost(other, tried)
        if not chosen or not made.first_order:
            break
    if best[0] > most:
        return program
    patterns = noted_patterns(lowered.forward.scope, lets)
    recognised = tuple(dict.fromkeys((*patterns, *made.recognised)))
    return replace(
        made,
        forward=program.forward,
        forward_precision=program.forward_precision,
        composed=program.composed,
        composed_precision=program.composed_precision,
        rearranges=program.rearranges,
        recognised=recognised,
        log={**program.log, **made.log},
    )


def _candidates(lowered: Lowered) -> list[str]:
    """Return the equations with a derivative that first order reads, or a saved map of them."""
    offered, lets = lowered.forward.offered, lowered.given.lets
    saved = {s.name for s in lowered.first.saved}
    read = [n for n in offered.values if lets.display_name(n) in saved]
    sources = {n for m in read for n in ({m} if m in lets.given else offered.of.get(m, ()))}
    given = sources.intersection(lets.given) - {*constants(lowered.given, offered)}
    stored = lowered.forward.stored
    return [n for n in offered.values if n in given and lets.display_name(n) not in stored]


def _through(
    lowered: Lowered, names: Sequence[str], derive: Derive
) -> Iterator[tuple[Program, bool]]:
    """Yield programs whose any order reads these statistics like outputs; True if no mask is lost.

    There is none if a gradient leads past the adjoint of one, to which its cotangent would be
    added: of x - logsumexp x all sums of gradients may be 0, so that the gradient of x is the
    reader's. First order may be made of the same adjoints, unless a mask is lost by that.
    """
    if not names:
        return
    given, first, body = derive(names), lowered.first, lowered.body
    outputs, stored, said = given.op.outputs, lowered.forward.stored, given.lets.display_name
    cotangents = {n: given.lets.derived_name(n, f"G_{said(n)}") for n in names}
    pulled = {n: said(cotangent) for n, cotangent in cotangents.items()}
    offered = lowered.forward.offered.without_maps_of(names)
    saved = {s.name for s in first.saved}
    held = [n for n in constants(given, offered) if said(n) in saved]
    offer = Offer({n: offered.values[n] for n in (*held, *names)})
    smooth = [single_kernels(given, smooth_rows)]
    with suppress(NeedsFlatGroups):
        request = BackwardInput(given, body, outputs, offer, stored, smooth, True, pulled=pulled)
        made = lower_backward(request)
        read = [n for n in names if said(n) in made.statistics]
        if len(read) < len(names):
            # A cotangent of what no gradient reads is that of an output nobody has.
            yield from _through(lowered, read, derive)
            return
        lost = {said(n) for n in active(given).intersection(names)} - made.pulled.keys()
        if lost or not _reads_cotangents(given, made, pulled):
            return
        masked = _has_masks_of(given, lowered.given)
        yield with_first_order(made, first), masked
        if not masked:
            return
        alike = not has_kernels(first)
        kernels = smooth if alike else [single_kernels(given, backward_rows)]
        same = lower_backward(replace(request, offer=offered, kernels=kernels, smooth=alike))
        few = count_operations(same) <= _MORE_OPERATIONS * count_operations(first)
        if few and _reads_cotangents(given, same, pulled):
            whole = made if same.backward == made.backward else with_first_order(made, same)
            yield whole, masked


def _reads_cotangents(given: LoweringInput, made: Program, pulled: Mapping[str, str]) -> bool:
    """True if each gradient reads the cotangents of all statistics that it leads through.

    A copy of an adjoint in the code of a gradient would lack the cotangent.
    """
    through: dict[str, set[str]] = {}
    for a in (*given.backward.adjoints, *given.backward.gradients):
        before = (through[name] for name in tensors(a.body) if name in through)
        through[a.name] = {pulled[a.tensor]} if a.tensor in pulled else set()
        through[a.name].update(*before)
    read: dict[str, set[str]] = {t: set() for t in made.gradients}
    for x in made.backward:
        for t in x.needs or made.gradients:
            read[t].update(names_in(x.code))
    said = given.lets.display_name
    return all(through[g.name] <= read[said(g.tensor)] for g in given.backward.gradients)


def _has_masks_of(given: LoweringInput, other: LoweringInput) -> bool:
    """True if each adjoint has as many brackets as that of ``other``: what they exclude is 0."""
    adjoints, others = ((*x.backward.adjoints, *x.backward.gradients) for x in (given, other))
    brackets = {a.tensor: len(_brackets(a)) for a in adjoints}
    return all(len(_brackets(a)) <= brackets.get(a.tensor, 0) for a in others)


def _brackets(a: Adjoint) -> set[Expr]:
    return {f for t in a.body.terms for f in t.factors if isinstance(f, Iverson)}


def _count_lines(made: Program) -> int:
    """Count the lines of both orders: shared ones stand once, with two for a fork between them."""
    first, every = made.first_order, made.backward
    runs = SequenceMatcher(None, first, every, autojunk=False).get_opcodes()
    shared = sum(b - a for tag, a, b, *_ in runs if tag == "equal")
    forks = sum(tag != "equal" for tag, *_ in runs)
    return len(first) + len(every) - max(0, shared - 2 * forks)

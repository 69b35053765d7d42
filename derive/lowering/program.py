"""Lowers one operation to a program: its forward, its saved tensors, and its backward.

The differentiable backward reads only inputs and outputs, and recomputes all else. The first-order
backward also reads what the forward offers (`derive.lowering.saved_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from derive.algebra.poly import as_atom
from derive.algebra.squares import RobustCenter
from derive.calculus.adjoint import active_equations
from derive.kernels.attention import Attentions
from derive.kernels.normalization import NormalizationPattern
from derive.kernels.recognise import (
    Pattern,
    SingleKernels,
    backward_rows,
    forward_rows,
    smooth_rows,
)
from derive.kernels.table import ATTENTIONS, KERNELS, NORMALISATIONS
from derive.lowering.assembly import Body, rearranges
from derive.lowering.backward import BackwardInput, lower_backward
from derive.lowering.forward import Forward, forward_of
from derive.lowering.ground.group_axes import MeansFrame
from derive.lowering.ground.value import NeedsFlatGroups
from derive.lowering.lowering_input import LoweringInput, float_axes, noted_patterns, short_axes
from derive.lowering.saved_values import Offer, Statistics
from derive.program.program import Program, with_first_order
from derive.program.torch_ir import FunctionCall, names_in, subexpressions
from derive.program.torch_ops import count, has_forward_mode

_FEWER_LINES = 6
"""The lines that statistics with cotangents must spare."""
_LINES_OF_COTANGENTS = 2
"""The lines that a module has for cotangents of statistics."""
_MORE_OPERATIONS = 1.2
"""First order may have a fifth more operations, of few elements, to have the lines of any order."""
_LINES_OF_INPUT = 10
"""The lines that any order may spare by keeping another input."""


@dataclass(frozen=True)
class Lowered:
    """A program, and the bodies of which it is made."""

    program: Program
    given: LoweringInput
    """The layout of the first-order backward."""
    every: LoweringInput
    """The layout of the backward of any order."""
    forward: Forward
    body: Body
    """The forward before statistics are added."""
    first: Program
    """The first-order backward."""
    plain: Program
    """The backward of any order."""
    flat: bool = False
    """True if each group is one axis in all bodies."""


def lower_program(
    layouts: Callable[[bool], LoweringInput],
    available: Collection[str] | None = None,
    keeps: bool = True,
) -> Lowered:
    """Lower the forward and the backward; ``layouts(True)`` has one axis for each group.

    ``available`` are the outputs that the backward may read. If it is given, or if ``keeps`` is
    false, the backward reads no statistics.

    Flat groups are less readable and equally fast. They are used if some call takes no group.
    Kernels take groups as they are, so that possibly only the body without kernels needs them.
    """
    named = layouts(False)
    try:
        return _Planner.of(named, named, available, keeps).lowered()
    except NeedsFlatGroups:
        flat = layouts(True)
    try:
        return _Planner.of(named, flat, available, keeps).lowered()
    except NeedsFlatGroups:
        return replace(_Planner.of(flat, flat, available, keeps).lowered(), flat=True)


@dataclass(frozen=True)
class _Planner:
    """Decides which bodies an operation has, and what they save."""

    given: LoweringInput
    every: LoweringInput
    forward: Forward
    body: Body
    outputs: tuple[str, ...]
    """The outputs that a backward may read."""
    offered: Offer
    means: Attentions
    kernels: tuple[Pattern, ...]
    """The kernels of the first-order backward, attention apart."""
    ahead: Pattern
    """The kernels of a forward that torch itself differentiates."""

    @classmethod
    def of(
        cls,
        given: LoweringInput,
        every: LoweringInput,
        available: Collection[str] | None,
        keeps: bool,
    ) -> _Planner:
        """Lower the forward, with the differentiable backward in the layout of ``every``."""
        own = replace(given, lets=given.lets.apart())
        given, every = own, own if every is given else every
        named = Statistics(given.lets).named
        norms = [NormalizationPattern(NORMALISATIONS, named, back) for back in (False, True)]
        known = short_axes(given.op, given.lets), float_axes(given.op, given.lets)
        ahead, back = (SingleKernels(rows(*known)) for rows in (forward_rows, backward_rows))
        optional = [t.name for t in given.op.inputs if t.default is not None]
        means = Attentions({})
        keeps = keeps and available is None
        if keeps:
            means = Attentions.of(ATTENTIONS, given.lets, given.backward, named, optional)
        forward = forward_of(given, [means, norms[0], ahead])
        if every is not given and not forward.scope.results:
            raise NeedsFlatGroups("a body without kernels")
        said = {n: given.lets.display_name(n) for n in given.op.outputs}
        outputs = tuple(n for n in said if available is None or said[n] in available)
        offered = forward.offered if keeps else Offer()
        kernels = (norms[1], back)
        return cls(given, every, forward, forward.body(), outputs, offered, means, kernels, ahead)

    def lowered(self) -> Lowered:
        """Return the program: all bodies and what they save."""
        first, plain, made = self._in_orders()
        forward = self.body
        if made.statistics:
            display_name = self.given.lets.display_name
            said = {display_name(name): name for name in self.forward.offered.values}
            forward = self.forward.body([said[name] for name in made.statistics])
        composed = self._composed(forward)
        if composed is not None:
            made = replace(made, composed=composed.lines, composed_precision=composed.precision)
        patterns = noted_patterns(self.forward.scope, self.given.lets)
        made = replace(
            made,
            forward=forward.lines,
            forward_precision=forward.precision,
            recognised=tuple(dict.fromkeys((*patterns, *made.recognised))),
            rearranges=rearranges(self.given.border.op, forward.lines),
            log={"forward": forward.log, **made.log},
        )
        return Lowered(made, self.given, self.every, self.forward, self.body, first, plain)

    def _composed(self, forward: Body) -> Body | None:
        """Return the forward for torch's forward mode, if it differs."""
        if self.forward.scope.results:
            return forward_of(self.every, [self.ahead]).body()
        if has_forward_mode(line.code for line in forward.lines):
            return None
        # A kernel's own forward mode is wrong somewhere. That of a choice between two formulas
        # moves both, which takes longer than the tangent.
        plain = forward_of(self.every, []).body()
        codes = [line.code for line in plain.lines]
        parts = (part for code in codes for part in subexpressions(code))
        chooses = any(isinstance(x, FunctionCall) and x.name == "rt.where" for x in parts)
        return plain if has_forward_mode(codes) and not chooses else None

    def _first_order(self, offered: Offer) -> Program:
        """Return the backward with kernels, which reads what is offered."""
        means = self.means if self.means.kept <= set(offered.values) else Attentions({})
        parts = self.given, self.body, self.outputs, offered, self.forward.stored
        kernels, kept = (means, *self.kernels), self.means.kept
        return lower_backward(BackwardInput(*parts, kernels=kernels, shapeless=kept))

    def _plain(
        self,
        outputs: Collection[str],
        kept: Collection[str] = (),
        others: Collection[str] = (),
        kernels: bool = False,
    ) -> Program:
        """Return the backward of any order, which reads these outputs and integer statistics.

        ``others`` are the statistics of the first-order backward, and ``kernels`` is true if it
        has kernels, so that no line of this body is among its lines.
        """
        given = self.every
        if kernels and given is self.given:
            given = replace(given, frames=MeansFrame)
        held = Offer({n: v for n, v in self.forward.offered.values.items() if n in kept})
        stored = self.forward.stored
        smooth = [SingleKernels(smooth_rows())]
        parts = given, self.body, outputs, held, stored
        return lower_backward(BackwardInput(*parts, smooth, smooth=True, kept=others))

    def _in_orders(self) -> tuple[Program, Program, Program]:
        """Return a first-order backward, one of any order, and the program with both.

        Both share the saved tensors: an output that only one of them would save is recomputed.
        """
        first = self._first_order(self.offered)
        plain = self._beside(first)
        large = set(map(self.given.lets.display_name, self.offered.of))
        fewer = _count_operations(plain) <= _count_operations(first)
        if first.statistics and (fewer or not large.isdisjoint(first.statistics)):
            # Reading the statistics may spare nothing.
            with suppress(NeedsFlatGroups):
                bare = self._first_order(Offer())
                if _count_operations(bare) <= _count_operations(first):
                    first, plain = bare, self._beside(bare)
        if first.backward == plain.backward:
            return plain, plain, plain
        first = _without_recomputed(first, plain)
        forked = first.statistics or _has_kernels(first)
        return first, plain, with_first_order(plain, first) if forked else plain

    def _beside(self, first: Program) -> Program:
        """Return the backward of any order beside this first-order backward."""
        display_name, outputs = self.given.lets.display_name, self.outputs
        alike = self.every is self.given
        kernels = _has_kernels(first)
        if not kernels and not first.statistics:
            return first if alike and not self.offered.values else self._plain(outputs)
        saved = {s.name for s in first.saved}
        kept = [name for name in outputs if display_name(name) in saved]
        constants = _constants(self.given, self.offered) if alike else []
        shared = [n for n in constants if display_name(n) in saved]
        plain = self._plain(outputs, shared, first.statistics, kernels)
        if {s.name for s in plain.saved}.intersection(map(display_name, outputs)) - saved:
            others = [plain, self._plain(kept, shared, first.statistics, kernels)]
            plain = min(others, key=lambda m: len(saved.union(s.name for s in m.saved)))
        return plain


def _backward_kernels(given: LoweringInput) -> SingleKernels:
    return SingleKernels(
        backward_rows(short_axes(given.op, given.lets), float_axes(given.op, given.lets))
    )


def _constants(given: LoweringInput, offered: Offer) -> list[str]:
    """Return the statistics without a derivative, as positions are, which all orders may read."""
    inputs = {t.name for t in given.op.inputs if t.kind == "float"}
    lets, active = given.lets, active_equations(given.lets, inputs, frozenset())

    def is_constant(name: str) -> bool:
        let = lets.get(name)
        is_centre = let is not None and isinstance(as_atom(let.body), RobustCenter)
        return is_centre or (name in lets.given and name not in active)

    return [n for n, v in offered.values.items() if v.kind == "int" or is_constant(n)]


def through_statistics(
    lowered: Lowered, derive: Callable[[Sequence[str]], LoweringInput]
) -> Program:
    """Return the program whose graph leads through the statistics that make it shortest.

    Such a statistic is an output with a cotangent of its own: any order reads it as first order
    does, and autograd leads from it to what it is made of. ``derive`` returns the derivation in
    which the adjoints of these equations are results.
    """
    given, program, first = lowered.given, lowered.program, lowered.first
    if lowered.every is not given or not program.first_order:
        return program
    if sum(c is not None for _, c in program.cotangents) != 1:
        return program
    lets, offered, own = given.lets.given, lowered.forward.offered, {s.name for s in first.saved}
    read = [n for n in offered.values if given.lets.display_name(n) in own]
    sources = {n for name in read for n in ({name} if name in lets else offered.of.get(name, ()))}
    names = [
        n
        for n, value in offered.values.items()
        if n in sources
        and n in lets
        and value.kind == "float"
        and given.lets.display_name(n) not in lowered.forward.stored
    ]
    least = min((len(lets[n].formals) for n in names), default=0)
    large = {t.name for t in given.border.op.inputs if len(t.axes) >= least} - own

    def cost(made: Program, names: Collection[str]) -> tuple[int, int]:
        """Count the lines of both orders, and the inputs kept for any order alone."""
        lines = _count_lines(made) + bool(names) * _LINES_OF_COTANGENTS + len(names)
        return lines + _LINES_OF_INPUT * sum(s.name in large for s in made.saved), len(names)

    made, chosen, best = program, frozenset[str](), cost(program, ())
    if best[0] < len(first.backward) + _FEWER_LINES:
        return program
    for changed in dict.fromkeys((frozenset(names), *(frozenset([n]) for n in names))):
        tried = chosen ^ changed
        with suppress(NeedsFlatGroups):
            for other in _through(lowered, [n for n in names if n in tried], derive):
                if cost(other, tried) < best:
                    made, chosen, best = other, tried, cost(other, tried)
        if not chosen or not made.first_order:
            break
    if cost(program, ())[0] < best[0] + _FEWER_LINES:
        return program
    patterns = noted_patterns(lowered.forward.scope, lowered.given.lets)
    recognised = tuple(dict.fromkeys((*patterns, *made.recognised)))
    return replace(_with_backward_of(program, made), recognised=recognised)


def _through(
    lowered: Lowered, names: Sequence[str], derive: Callable[[Sequence[str]], LoweringInput]
) -> Iterator[Program]:
    """Yield programs whose any order reads statistics like outputs, which have cotangents then.

    There is none if a gradient leads past the adjoint of one, to which its cotangent would be
    added: of x - logsumexp x all sums of gradients may be 0, so that the gradient of x is the
    reader's. First order may be made of the same adjoints, unless a mask is lost by that.
    """
    if not names:
        return
    outputs, given, first = lowered.given.op.outputs, derive(names), lowered.first
    lets, stored, body = given.lets, lowered.forward.stored, lowered.body
    said = {name: lets.display_name(name) for name in names}
    pulled = {n: lets.display_name(lets.derived_name(n, f"G_{own}")) for n, own in said.items()}
    offered = lowered.forward.offered.without_maps_of(names)
    saved = {s.name for s in first.saved}
    held = [n for n in _constants(given, offered) if lets.display_name(n) in saved]
    read = Offer({name: offered.values[name] for name in (*held, *names)})
    smooth = [SingleKernels(smooth_rows())]
    parts = given, body, outputs, read, stored
    made = lower_backward(BackwardInput(*parts, smooth, smooth=True, pulled=pulled))
    inputs = {t.name for t in given.op.inputs if t.kind == "float"}
    active = active_equations(lets, inputs, frozenset())
    if {said[n] for n in names if n in active} - made.pulled.keys():
        return
    yield with_first_order(made, first)
    if not _has_masks_of(given, lowered.given):
        return
    kernels = [_backward_kernels(given)] if _has_kernels(first) else smooth
    parts = given, body, outputs, offered, stored
    alike = not _has_kernels(first)
    same = lower_backward(BackwardInput(*parts, kernels, smooth=alike, pulled=pulled))
    if _count_operations(same) <= _MORE_OPERATIONS * _count_operations(first):
        yield made if same.backward == made.backward else with_first_order(made, same)


def _has_masks_of(given: LoweringInput, other: LoweringInput) -> bool:
    """True if each gradient is 0 wherever that of ``other`` is, whatever is read there."""
    masks = {g.tensor: len(g.masks) for g in given.backward.gradients}
    return all(len(g.masks) <= masks[g.tensor] for g in other.backward.gradients)


def _with_backward_of(program: Program, other: Program) -> Program:
    return replace(
        other,
        forward=program.forward,
        forward_precision=program.forward_precision,
        composed=program.composed,
        composed_precision=program.composed_precision,
        rearranges=program.rearranges,
        log={**program.log, **other.log},
    )


def _without_recomputed(first: Program, plain: Program) -> Program:
    """Return first order without the gradients that share matrix products in ``plain`` alone.

    The kernel for the other gradients computes these products inside, so that they would be
    computed twice. Where such a gradient is needed, ``plain`` computes them all.
    """

    def own_products(made: Program, name: str) -> int:
        return count([x.code for x in made.backward if x.needs == (name,)])[1]

    names = first.gradients
    apart = {name for name in names if own_products(first, name) > own_products(plain, name)}
    if len(apart) == len(names):
        return first

    def left(needs: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in needs if name not in apart)

    lines = tuple(replace(x, needs=left(x.needs)) for x in first.backward if left(x.needs))
    saved = tuple(replace(s, needs=left(s.needs)) for s in first.saved if left(s.needs))
    read = {name for x in lines for name in names_in(x.code)}
    gone = {x.name for x in first.backward if not left(x.needs)}
    casts = first.backward_precision
    narrow, broad = (tuple(n for n in names if n in read) for names in (casts.narrow, casts.broad))
    return replace(
        first,
        backward=lines,
        saved=saved,
        recognised=tuple(r for r in first.recognised if r.equation not in gone),
        statistics=tuple(n for n in first.statistics if any(n == s.name for s in saved)),
        backward_precision=replace(casts, narrow=narrow, broad=broad),
    )


def _has_kernels(made: Program) -> bool:
    """True if the program calls a kernel of which torch has no derivatives of every order."""
    rows = (KERNELS[r.pattern] for r in made.recognised if r.pattern in KERNELS)
    return not all(row.smooth for row in rows)


def _count_lines(made: Program) -> int:
    """Count the lines of both orders: shared ones stand once, with two for a fork between them."""
    first, every = made.first_order, made.backward
    runs = SequenceMatcher(None, first, every, autojunk=False).get_opcodes()
    shared = sum(b - a for tag, a, b, *_ in runs if tag == "equal")
    forks = sum(tag != "equal" for tag, *_ in runs)
    return len(first) + len(every) - max(0, shared - 2 * forks)


def _count_operations(made: Program) -> int:
    return sum(count([x.code for x in made.backward]))

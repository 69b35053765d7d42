"""Lowers one operation to a program: its forward, its saved tensors, and its backward.

The differentiable backward reads inputs, outputs and statistics without a derivative, and
recomputes all else, unless `derive.lowering.pulled_statistics` lets it read more. The first-order
backward also reads what the forward offers (`derive.lowering.saved_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from derive.algebra.poly import as_atom
from derive.algebra.squares import RobustCenter
from derive.calculus.adjoint import active_equations
from derive.kernels.attention import Attentions
from derive.kernels.axis_patterns import Short
from derive.kernels.normalization import NormalizationPattern
from derive.kernels.recognise import (
    Pattern,
    Plain,
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
from derive.lowering.lowering_input import LoweringInput, noted_patterns, short_axes
from derive.lowering.saved_values import Offer, Statistics
from derive.program.program import Program, with_first_order
from derive.program.torch_ir import FunctionCall, names_in, subexpressions
from derive.program.torch_ops import count, has_forward_mode


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
        ahead, back = (single_kernels(given, rows) for rows in (forward_rows, backward_rows))
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
        smooth = [single_kernels(given, smooth_rows)]
        parts = given, self.body, outputs, held, stored
        return lower_backward(BackwardInput(*parts, smooth, smooth=True, kept=others))

    def _in_orders(self) -> tuple[Program, Program, Program]:
        """Return a first-order backward, one of any order, and the program with both.

        Both share the saved tensors: an output that only one of them would save is recomputed.
        """
        first = self._first_order(self.offered)
        plain = self._beside(first)
        large = set(map(self.given.lets.display_name, self.offered.of))
        fewer = count_operations(plain) <= count_operations(first)
        if first.statistics and (fewer or not large.isdisjoint(first.statistics)):
            # Reading the statistics may spare nothing.
            with suppress(NeedsFlatGroups):
                bare = self._first_order(Offer())
                if count_operations(bare) <= count_operations(first):
                    first, plain = bare, self._beside(bare)
        if first.backward == plain.backward:
            return plain, plain, plain
        first = _without_recomputed(first, plain)
        forked = first.statistics or any(r.pattern in KERNELS for r in first.recognised)
        return first, plain, with_first_order(plain, first) if forked else plain

    def _beside(self, first: Program) -> Program:
        """Return the backward of any order beside this first-order backward."""
        display_name, outputs = self.given.lets.display_name, self.outputs
        alike = self.every is self.given
        kernels = has_kernels(first)
        if not kernels and not first.statistics:
            return first if alike and not self.offered.values else self._plain(outputs)
        saved = {s.name for s in first.saved}
        kept = [name for name in outputs if display_name(name) in saved]
        same = constants(self.given, self.offered) if alike else []
        shared = [n for n in same if display_name(n) in saved]
        plain = self._plain(outputs, shared, first.statistics, kernels)
        if {s.name for s in plain.saved}.intersection(map(display_name, outputs)) - saved:
            others = [plain, self._plain(kept, shared, first.statistics, kernels)]
            plain = min(others, key=lambda m: len(saved.union(s.name for s in m.saved)))
        return plain


def single_kernels(given: LoweringInput, rows: Callable[[Short], Sequence[Plain]]) -> SingleKernels:
    """Return these kernels with one result, for the tensors of this operation."""
    return SingleKernels(rows(short_axes(given.op, given.lets)))


def active(given: LoweringInput) -> set[str]:
    """Return the equations through which derivatives by the inputs pass."""
    inputs = {t.name for t in given.op.inputs if t.kind == "float"}
    return active_equations(given.lets, inputs, frozenset())


def constants(given: LoweringInput, offered: Offer) -> list[str]:
    """Return the statistics without a derivative, as positions are, which all orders may read."""
    lets, moving = given.lets, active(given)

    def is_constant(name: str) -> bool:
        let = lets.get(name)
        is_centre = let is not None and isinstance(as_atom(let.body), RobustCenter)
        return is_centre or (name in lets.given and name not in moving)

    return [n for n, v in offered.values.items() if v.kind == "int" or is_constant(n)]


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


def has_kernels(made: Program) -> bool:
    """True if the program calls a kernel of which torch has no derivatives of every order."""
    rows = (KERNELS[r.pattern] for r in made.recognised if r.pattern in KERNELS)
    return not all(row.smooth for row in rows)


def count_operations(made: Program) -> int:
    """Count the operations of the backward, of which a product is one."""
    return sum(count([x.code for x in made.backward]))

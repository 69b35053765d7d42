"""Lowers the forward of one operation to lines, and offers its intermediates to the backward."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from derive.calculus.lets import Let
from derive.kernels.recognise import Pattern
from derive.lowering.assembly import (
    WIDTH,
    LoweringInput,
    float_outputs,
    frame_of,
    input_values,
    integer_tensors,
    integers_of,
    legalize_lines,
    like_input,
    noted_patterns,
    scope_statements,
    sources_of,
    vectors_of,
    with_display_names,
)
from derive.lowering.ground.value import Frame
from derive.lowering.keepdim import added_axes
from derive.lowering.layout_conversion import (
    enter_layout,
    leave_layout,
    multiplied_once,
    own_shapes,
    resolve_sizes,
    shapes_before,
    store_layout,
)
from derive.lowering.nodes.lower import Lowering
from derive.lowering.saved_values import Offer, offered
from derive.notation.operation import Choice, Operation
from derive.program.aliasing import is_rearrangement, unalias_outputs
from derive.program.cse import Line, tidy
from derive.program.mixed_precision import NAMES, Precision, in_precision, rounded
from derive.program.program import Recognised
from derive.program.roundings import Roundings
from derive.program.torch_ir import (
    Attribute,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    MethodCall,
    Name,
    names_in,
)
from derive.program.torch_ops import torch_op


@dataclass(frozen=True)
class Forward:
    """The statements of a forward.

    ``offered`` lists the computed values that the backward may read.
    """

    given: LoweringInput
    scope: Lowering
    offered: Offer
    stored: set[str] = field(default_factory=set)
    """The names that hold a tensor in its outer layout, in which the backward receives it."""

    def lines(
        self, statistics: Collection[str] = ()
    ) -> tuple[tuple[Line, ...], Precision, tuple[Recognised, ...]]:
        """Return the lines of the forward, with these statistics as additional results."""
        op, lets, border = self.given.op, self.given.lets, self.given.border.again()
        taken, said = self.given.taken(), [lets.display_name(name) for name in statistics]
        lines = [
            replace(x, kept=x.kept or x.name in statistics) for x in scope_statements(self.scope)
        ]
        for name in op.outputs:
            lines = keep_axes(op, lets[name], frame_of(op), lines)
        made = self.scope.results
        lines += [Line(name, made[name].code) for name in statistics if name in made]
        lines = with_display_names(lines, lets)
        read = {name for x in lines for name in names_in(x.code)}
        tensors = input_values(op)
        inputs, outputs = (
            [lets.display_name(name) for name in names] for names in (tensors, op.outputs)
        )
        lines, entry = enter_layout(border, lines, {t: t for t in inputs if t in read})
        inside = (e.name for e in border.op.equations if e.name not in outputs)
        chosen = {name: name in self.stored for name in said}
        lines = store_layout(border, lines, {name: name for name in inside}, chosen)
        self.stored.update(border.stored)
        for name in outputs:
            lines, code = leave_layout(border, lines, name, name, kept=True)
            lines += [Line(name, code)] if code is not Name(name) else []
        lines = [*entry, *resolve_sizes(border, lines, sources_of(border, lets, tensors))]
        lines = own_shapes(lines, set(inputs) - border.entered)
        floats = [t.name for t in border.op.inputs if t.kind == "float"]
        returned = float_outputs(border.op)
        held = vectors_of(border.op), integer_tensors(border.op)
        lines, precision = in_precision(lines, floats, returned, *held)
        if statistics and precision.roundings is Roundings.ONCE:
            # Values saved for the backward have the precision of float32.
            precision = replace(precision, roundings=Roundings.MORE)
        lines = tidy(multiplied_once(border, lines, taken), taken | NAMES, WIDTH)
        lines = rounded(legalize_lines(border, lines), precision.returned, WIDTH)
        if not rearranges(border.op, lines):
            lines = unalias_outputs(lines, [*outputs, *said], inputs)
        return (*shapes_before(border, lines), *lines), precision, noted_patterns(self.scope, lets)


def forward_of(given: LoweringInput, kernels: Sequence[Pattern]) -> Forward:
    """Lower the forward with these kernels."""
    op, lets = given.op, given.lets
    tensors = input_values(op)
    parts = (lets.get, frame_of(op), dict(tensors), like_input(op), integers_of(op))
    scope = Lowering(*parts, kernels=kernels)
    for name in op.outputs:
        scope.tensor(name)
    return Forward(given, scope, offered(given, scope))


def rearranges(op: Operation, forward: Sequence[Line]) -> bool:
    """True if the forward returns only views of its inputs, for every option of a choice."""
    chosen = any(isinstance(p, Choice) for p in op.parameters)
    return not chosen and is_rearrangement(forward, op.outputs, [t.name for t in op.inputs])


def keep_axes(op: Operation, let: Let, frame: Frame, lines: Sequence[Line]) -> list[Line]:
    """Append the lines that keep each reduced axis of an output if its flag is true."""
    added = added_axes(op, let.formals, frame)
    if len(added) == 1:
        ((flag, place),) = added
        n = next(n for n, line in enumerate(lines) if line.name == let.name)
        kept = _with_keepdim(lines[n].code, place, flag)
        if kept is not None and not any(let.name in set(names_in(x.code)) for x in lines):
            return [*lines[:n], replace(lines[n], code=kept), *lines[n + 1 :]]
    name = Name(let.name)
    wide = (Conditional(flag, MethodCall(name, "unsqueeze", (at,)), name) for flag, at in added)
    return [*lines, *(Line(let.name, code) for code in wide)]


def _with_keepdim(code: Code, place: Code, flag: Code) -> Code | None:
    """Return a reduction over one axis with ``keepdim=flag``; None if the code is none."""
    keyword = Keyword("keepdim", flag)
    match code:
        case MethodCall(obj, name, args) if torch_op(code).keeps and args == (place,):
            return MethodCall(obj, name, (*args, keyword))
        case FunctionCall(name, (*before, at)) if torch_op(code).keeps and at is place:
            return FunctionCall(name, (*before, at, keyword))
        case Attribute(inner, ("values" | "indices") as which):
            kept = _with_keepdim(inner, place, flag)
            return None if kept is None else Attribute(kept, which)
    return None

"""Lowers the forward of one operation to lines, and offers its intermediates to the backward."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from derive.calculus.lets import Let
from derive.kernels.recognise import Pattern
from derive.lowering.assembly import FORWARD, Body, BodySpec, assemble
from derive.lowering.ground.value import Frame
from derive.lowering.keepdim import added_axes
from derive.lowering.lowering_input import (
    LoweringInput,
    argument_kinds,
    float_outputs,
    frame_of,
    input_values,
    lowered,
    scope_statements,
    with_display_names,
)
from derive.lowering.nodes.lower import Lowering
from derive.lowering.saved_values import Offer, offered
from derive.notation.operation import Operation
from derive.passes import Pass
from derive.program.cse import Line
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

    def body(
        self, statistics: Collection[str] = (), passes: Sequence[Pass[Body]] = FORWARD
    ) -> Body:
        """Return the body of the forward, with these statistics as additional results."""
        op, lets, border = self.given.op, self.given.lets, self.given.border.again()
        said = [lets.display_name(name) for name in statistics]
        inputs = [lets.display_name(t.name) for t in op.inputs]
        outputs = [lets.display_name(name) for name in op.outputs]
        spec = BodySpec(
            self.given,
            border,
            entering={name: name for name in inputs},
            leaving={name: name for name in outputs},
            inside={e.name: e.name for e in border.op.equations if e.name not in outputs},
            layouts={name: name in self.stored for name in said},
            keeps_axes=True,
            sizes=input_values(op),
            present=inputs,
            kinds=argument_kinds(border.op),
            returned=float_outputs(border.op),
            exact=bool(statistics),
            kept=said,
            unaliased=[*outputs, *said],
        )
        made = assemble(spec, self._statements(statistics), passes)
        self.stored.update(border.stored)
        return made

    def _statements(self, statistics: Collection[str]) -> list[Line]:
        """Return the statements, with kept axes and with the statistics under their names."""
        op, lets = self.given.op, self.given.lets
        made = scope_statements(self.scope, self.given)
        lines = [replace(x, kept=x.kept or x.name in statistics) for x in made]
        for name in op.outputs:
            lines = keep_axes(op, lets[name], frame_of(op), lines)
        results = self.scope.results
        for name, value in ((n, results[n]) for n in statistics if n in results):
            lines.append(Line(name, value.code, type=self.given.type_of(value.axes, value.kind)))
        return with_display_names(lines, lets)


def forward_of(given: LoweringInput, kernels: Sequence[Pattern]) -> Forward:
    """Lower the forward with these kernels."""
    scope = lowered(given, input_values(given.op), given.op.outputs, kernels=kernels)
    return Forward(given, scope, offered(given, scope))


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

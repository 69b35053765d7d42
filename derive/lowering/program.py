"""The code of one operation: what runs forward, what is saved, and what runs backward.

Only inputs and outputs are saved, so that the backward can itself be differentiated; everything
else is computed again. A backward line says which gradients need it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from derive.algebra.expr import Index
from derive.calculus.adjoint import Backward
from derive.calculus.lets import Let, Lets
from derive.calculus.positions import bounds_of
from derive.errors import LoweringError
from derive.kernels.recognise import Pattern, patterns
from derive.kernels.table import KERNELS
from derive.lowering.border import (
    Border,
    enter,
    leave,
    lines_read,
    multiplied_once,
    own_shapes,
    shapes_before,
    sized,
    store,
)
from derive.lowering.ground.extents import Source
from derive.lowering.ground.scope import Scope
from derive.lowering.ground.value import Frame, Value
from derive.lowering.groups import named_axes
from derive.lowering.kept import added_axes, entered_axes
from derive.lowering.nodes.lower import Lowering
from derive.notation.operation import Choice, Operation, SizeOf, Tensor
from derive.program.along import along
from derive.program.apart import apart, is_rearrangement
from derive.program.code import (
    Attribute,
    Code,
    Conditional,
    Dim,
    Function,
    Keyword,
    Method,
    Name,
    names_in,
)
from derive.program.needs import Needs, needed_by, ordered, softmaxes_shared
from derive.program.orders import with_first_order
from derive.program.positions import of_its_kind
from derive.program.precision import NAMES, Precision, all_wide, in_precision, rounded
from derive.program.program import BackwardLine, Program, Recognised, Saved
from derive.program.ruled import ruled
from derive.program.tidy import Line, tidy
from derive.program.torch_ops import torch_op

WIDTH = 76
"""Columns that a line of code may take; its indentation comes on top."""


def program(
    op: Operation,
    lets: Lets,
    backward: Backward,
    border: Border,
    at_hand: Collection[str] | None = None,
) -> Program:
    """Lower forward and backward, tensors as the border says, these outputs or all at hand."""
    frame = frame_of(op)
    integers = integers_of(op)
    taken = {*lets.reserved, *(lets.say(let.name) for let in lets)}
    forward, precision, noted = _forward(op, lets, frame, integers, set(taken), border)
    products = precision.has_products

    def lowered(kernels: Sequence[Pattern], outputs: Collection[str]) -> Program:
        given = (op, lets, backward, frame, integers, set(taken), border.again())
        return _backward(*given, forward, products, kernels, outputs)

    outputs = [n for n in op.outputs if at_hand is None or lets.say(n) in at_hand]
    made = _in_orders(outputs, lets.say, lowered)
    noted = (*noted, *made.recognised)
    views = rearranges(border.op, forward)
    return replace(made, recognised=noted, rearranges=views, forward_precision=precision)


def _in_orders(
    outputs: Sequence[str],
    say: Callable[[str], str],
    lowered: Callable[[Sequence[Pattern], Collection[str]], Program],
) -> Program:
    """The backward for all orders, and with kernels where no graph of it is wanted.

    What one saves the other reads: an output that one body alone would ask for is computed again.
    """
    first = lowered(patterns(backward=True), outputs)
    if not any(r.pattern in KERNELS for r in first.recognised):
        return first
    saved = {s.name for s in first.saved}
    kept = [name for name in outputs if say(name) in saved]
    tried = [lowered((), outputs)]
    if len(kept) < len(outputs):
        tried.append(lowered((), kept))
    every = min(tried, key=lambda made: len(saved.union(s.name for s in made.saved)))
    if first.backward == every.backward:
        return every
    return with_first_order(every, first)


def _noted(scope: Scope, lets: Lets) -> tuple[Recognised, ...]:
    return tuple(Recognised(lets.say(name), *row) for name, *row in scope.noted)


def integers_of(op: Operation) -> frozenset[str]:
    """The parameters that are integers."""
    return frozenset(
        p.name for p in op.parameters if isinstance(p, SizeOf) or getattr(p, "integer", False)
    )


def frame_of(op: Operation) -> Frame:
    """The positions that parameters name at run time, and what is certain of all."""
    given = frozenset(p.extent for p in op.parameters if isinstance(p, SizeOf))
    return Frame(named_axes(op), bounds_of(op), given)


def input_values(op: Operation) -> dict[str, Value]:
    """The inputs as they are at hand."""
    return {
        t.name: Value(Name(t.name), tuple(i for i in t.axes if isinstance(i, Index)), t.kind)
        for t in op.inputs
    }


def like_input(op: Operation) -> Code:
    """The input that new tensors take dtype and device from."""
    floats = sorted(
        (t for t in op.inputs if t.kind == "float"), key=lambda t: t.default is not None
    )
    if not floats:
        raise LoweringError(
            "it reads no floating-point tensor, so there is nothing to differentiate"
        )
    return Name(floats[0].name)


def sources_of(border: Border, lets: Lets, tensors: Mapping[str, Value]) -> list[Source]:
    """The shapes of tensors at hand that are no None, each by the name that a reader knows."""
    found = []
    absent = {t.name for t in border.op.inputs if t.default is not None}
    for name, value in tensors.items():
        ((said, tensor),) = tensors_of(lets, [name]).items()
        if tensor in absent:
            continue
        axes = tuple(i and Index(i.name, lets.say(i.extent), i.group) for i in value.axes)
        if border.changes(tensor) and said not in border.entered:
            axes = border.axes_outside(tensor)
        found.append(Source(said, Attribute(Name(said), "shape"), axes))
    return found


def tensors_of(lets: Lets, names: Iterable[str]) -> dict[str, str]:
    """Each name and the tensor whose axes it has, as a reader knows them."""
    return {lets.say(n): lets.say(lets.derived_from.get(n, n)) for n in names}


def statements(scope: Scope) -> list[Line]:
    """What was written, in lines."""
    lines = []
    for s in scope.statements:
        let = scope.find(s.name)
        assert let is not None
        lines.append(Line(s.name, s.code, kept=not let.internal))
    return lines


def _forward(
    op: Operation,
    lets: Lets,
    frame: Frame,
    integers: frozenset[str],
    taken: set[str],
    border: Border,
) -> tuple[tuple[Line, ...], Precision, tuple[Recognised, ...]]:
    tensors = input_values(op)
    given = (lets.get, frame, dict(tensors), like_input(op), integers)
    scope = Lowering(*given, kernels=patterns(backward=False))
    for name in op.outputs:
        scope.tensor(name)
    lines = statements(scope)
    for name in op.outputs:
        lines = keep_axes(op, lets[name], frame, lines)
    lines = spoken_lines(lines, lets)
    read = {name for x in lines for name in names_in(x.code)}
    inputs, outputs = ([lets.say(name) for name in names] for names in (tensors, op.outputs))
    lines, entry = enter(border, lines, {t: t for t in inputs if t in read})
    inside = (e.name for e in border.op.equations if e.name not in outputs)
    lines = store(border, lines, {name: name for name in inside})
    for name in outputs:
        lines, code = leave(border, lines, name, name, kept=True)
        lines += [Line(name, code)] if code is not Name(name) else []
    lines = [*entry, *sized(border, lines, sources_of(border, lets, tensors))]
    lines = own_shapes(lines, set(inputs) - border.entered)
    floats = [t.name for t in border.op.inputs if t.kind == "float"]
    returned = float_outputs(border.op)
    lines, precision = in_precision(lines, floats, returned, vectors_of(border.op))
    lines = tidy(multiplied_once(border, lines, taken), taken | NAMES, WIDTH)
    lines = rounded(for_any_axes(border, lines), precision.returned, WIDTH)
    if not rearranges(border.op, lines):
        lines = apart(lines, outputs, inputs)
    return (*shapes_before(border, lines), *lines), precision, _noted(scope, lets)


def rearranges(op: Operation, forward: Sequence[Line]) -> bool:
    """Whether the forward makes nothing but views, for all options of a choice."""
    chosen = any(isinstance(p, Choice) for p in op.parameters)
    return not chosen and is_rearrangement(forward, op.outputs, [t.name for t in op.inputs])


def spoken_lines(lines: Sequence[Line], lets: Lets) -> list[Line]:
    """The lines under the names that a reader knows."""

    def say(code: Code) -> Code:
        if isinstance(code, Name):
            bare = code.id.removesuffix("_shape")
            return Name(lets.say(bare) + code.id[len(bare) :])
        if isinstance(code, Dim):
            return Dim(lets.say(code.extent))
        return code.map(say)  # type: ignore[no-any-return]

    return [replace(x, name=lets.say(x.name), code=say(x.code)) for x in lines]


def keep_axes(op: Operation, let: Let, frame: Frame, lines: Sequence[Line]) -> list[Line]:
    """The output with each axis kept where its flag says so."""
    added = added_axes(op, let.formals, frame)
    if len(added) == 1:
        ((flag, place),) = added
        n = next(n for n, line in enumerate(lines) if line.name == let.name)
        kept = _with_keepdim(lines[n].code, place, flag)
        if kept is not None and not any(let.name in set(names_in(x.code)) for x in lines):
            return [*lines[:n], replace(lines[n], code=kept), *lines[n + 1 :]]
    name = Name(let.name)
    wide = (Conditional(flag, Method(name, "unsqueeze", (at,)), name) for flag, at in added)
    return [*lines, *(Line(let.name, code) for code in wide)]


def _with_keepdim(code: Code, place: Code, flag: Code) -> Code | None:
    """The reduction over one axis that keeps it where the flag says so."""
    keyword = Keyword("keepdim", flag)
    match code:
        case Method(obj, name, args) if torch_op(code).keeps and args == (place,):
            return Method(obj, name, (*args, keyword))
        case Function(name, (*before, at)) if torch_op(code).keeps and at is place:
            return Function(name, (*before, at, keyword))
        case Attribute(inner, ("values" | "indices") as which):
            kept = _with_keepdim(inner, place, flag)
            return None if kept is None else Attribute(kept, which)
    return None


def _backward(
    op: Operation,
    lets: Lets,
    backward: Backward,
    frame: Frame,
    integers: frozenset[str],
    taken: set[str],
    border: Border,
    forward: tuple[Line, ...],
    products: bool,
    kernels: Sequence[Pattern],
    outputs_at_hand: Collection[str],
) -> Program:
    say, cotangents = lets.say, dict(backward.cotangents)
    tensors = _at_hand(op, lets, cotangents, outputs_at_hand)
    entry = _enter_kept(op, lets, frame, cotangents, tensors)
    adjoints = {a.name: a.as_let() for a in (*backward.adjoints, *backward.gradients)}
    like = _like(op, cotangents)

    def find(name: str) -> Let | None:
        return adjoints.get(name) or lets.get(name)

    names = frozenset(adjoints)
    scope = Lowering(find, frame, dict(tensors), like, integers, names, kernels)
    for g in backward.gradients:
        scope.tensor(g.name)
    gradients = {say(g.tensor): say(g.name) for g in backward.gradients}
    lines = _crossed(op.inputs, lets, backward, border, scope, tensors, gradients)
    floats = [t.name for t in border.op.inputs if t.kind == "float"]
    known = {say(name) for name in outputs_at_hand}
    outer = [name for name in float_outputs(border.op) if name in known]
    given = [*floats, *outer, *map(say, cotangents.values())]
    if products:
        lines, precision = in_precision(lines, given, vectors=vectors_of(border.op))
    else:
        lines, precision = all_wide(lines, given)
    lines = tidy(multiplied_once(border, lines, taken), taken | NAMES, WIDTH)
    lines = [*lines_read(spoken_lines(entry, lets), lines), *lines]
    found = zip(lines, needed_by(lines, gradients), strict=True)
    read = [(line, own) for line, own in found if own]
    lines = ordered([line for line, _ in read], [own for _, own in read])
    needs = needed_by(lines, gradients)
    places = {say(t.name): n for n, t in enumerate(op.inputs)}
    outputs = {name: say(name) for name in op.outputs}
    said = (*places, *(outputs[name] for name in outputs_at_hand))
    lines = _with_saved_shapes(lines, needs, [n for n in said if n not in border.entered])
    readers = _readers(lines, needs)
    shared = softmaxes_shared(lines, needs, places, WIDTH)
    made = for_any_axes(border, [replace(line, code=ruled(line.code)) for line, _ in shared])
    shared = [(line, wanted) for line, (_, wanted) in zip(made, shared, strict=True)]
    setup = lines_read(border.groups, lines)
    parameters = tuple(p.name for p in border.op.parameters)
    return Program(
        inputs=tuple(t.name for t in border.op.inputs),
        parameters=parameters,
        outputs=border.op.outputs,
        forward=forward,
        differentiable=tuple(gradients),
        cotangents=tuple(
            (spoken, say(cotangents[name]) if name in cotangents else None)
            for name, spoken in outputs.items()
        ),
        saved=_saved(said, gradients, readers),
        kept_parameters=tuple(name for name in parameters if name in readers),
        kept_shapes=tuple(t for t in border.shapes.used if f"{t}_shape" in readers),
        backward=tuple(BackwardLine(line, wanted) for line, wanted in shared),
        gradients=gradients,
        setup=tuple(setup),
        kept_groups=tuple(g.name for g in setup if g.name.endswith("_shape")),
        recognised=_noted(scope, lets),
        backward_precision=precision,
    )


def for_any_axes(border: Border, lines: Sequence[Line]) -> list[Line]:
    """The lines with softmaxes that are fast where groups have no axes, and any positions."""
    lines = [replace(line, code=of_its_kind(line.code)) for line in lines]
    if not border.flattens:
        return lines
    return [replace(line, code=along(line.code)) for line in lines]


def vectors_of(op: Operation) -> set[str]:
    """The tensors with one axis at most."""
    inputs = {t.name for t in op.inputs if len(t.axes) < 2}
    return inputs | {e.name for e in op.equations if len(e.axes) < 2}


def float_outputs(op: Operation) -> list[str]:
    return [e.name for e in op.equations if e.name in op.outputs and e.kind == "float"]


def _like(op: Operation, cotangents: Mapping[str, str]) -> Code:
    """The tensor that new ones take dtype and device from: a cotangent, where one is given."""
    return Name(next(iter(cotangents.values()))) if cotangents else like_input(op)


def _at_hand(
    op: Operation, lets: Lets, cotangents: Mapping[str, str], outputs: Collection[str]
) -> dict[str, Value]:
    """Inputs, these outputs, and cotangents."""
    tensors = input_values(op)
    for name in op.outputs:
        let = lets[name]
        if name in outputs:
            tensors[name] = Value(Name(name), let.formals, let.dtype)
        if name in cotangents:
            tensors[cotangents[name]] = Value(Name(cotangents[name]), let.formals)
    return tensors


def _crossed(
    inputs: Sequence[Tensor],
    lets: Lets,
    backward: Backward,
    border: Border,
    scope: Scope,
    tensors: Mapping[str, Value],
    gradients: Mapping[str, str],
) -> list[Line]:
    """The statements between tensors as they look outside, with sizes read from what is saved."""
    read = {name for s in scope.statements for name in names_in(s.code)}
    lines = spoken_lines(statements(scope), lets)
    known = tensors_of(lets, [name for name in tensors if name in read])
    lines, first = enter(border, lines, known)
    made = [e for e in lets.given if e not in tensors]
    lines = store(border, lines, tensors_of(lets, [*made, *(a.name for a in backward.adjoints)]))
    for tensor, name in gradients.items():
        lines, code = leave(border, lines, name, tensor)
        lines += [Line(name, code)] if code is not Name(name) else []
    at_hand = {name: value for name, value in tensors.items() if name in read}
    others = {t.name: tensors[t.name] for t in inputs if t.name not in read}
    kept = [
        replace(source, shape=Name(f"{source.tensor}_shape"))
        for source in sources_of(border, lets, others)
    ]
    return [*first, *sized(border, lines, sources_of(border, lets, at_hand), kept)]


def _with_saved_shapes(
    lines: Sequence[Line], needs: Sequence[Needs], at_hand: Sequence[str]
) -> list[Line]:
    """The lines with shapes read on tensors that are saved anyway where they are needed."""
    readers = _readers(lines, needs)
    saved = [n for n in at_hand if n in readers and readers.get(f"{n}_shape", set()) <= readers[n]]
    return own_shapes(lines, saved)


def _saved(
    names: Sequence[str], gradients: Mapping[str, str], readers: Mapping[str, Collection[str]]
) -> tuple[Saved, ...]:
    """Those of the names that are read, each with the gradients that read it."""
    read = [name for name in names if name in readers]
    return tuple(Saved(n, tuple(g for g in gradients if g in readers[n])) for n in read)


def _readers(lines: Sequence[Line], needs: Sequence[Needs]) -> dict[str, set[str]]:
    """The gradients whose lines read each name."""
    readers: dict[str, set[str]] = {}
    for line, wanted in zip(lines, needs, strict=True):
        for name in names_in(line.code):
            readers.setdefault(name, set()).update(wanted)
    return readers


def _enter_kept(
    op: Operation,
    lets: Lets,
    frame: Frame,
    cotangents: Mapping[str, str],
    tensors: dict[str, Value],
) -> list[Line]:
    """Outputs and cotangents get the axes that flags may have kept."""
    entry = []
    for output in op.outputs:
        axes, missing = entered_axes(op, lets[output].formals, frame)
        for name in (output, cotangents.get(output)):
            if name in tensors and missing:
                assert name is not None
                tensors[name] = replace(tensors[name], axes=axes)
                whole = Name(name)
                for flag, place in missing:
                    wide = Method(whole, "unsqueeze", (place,))
                    entry.append(Line(name, Conditional(flag, whole, wide)))
    return entry

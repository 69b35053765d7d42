"""The code of one operation: what runs forward, what is saved, and what runs backward.

Only inputs and outputs are saved, so that the backward can itself be differentiated; everything
else is computed again. A backward line says which gradients need it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Index
from derive.calculus.adjoint import Backward
from derive.calculus.bounds import Bounds
from derive.calculus.lets import Let, Lets
from derive.errors import LoweringError
from derive.lowering.code import (
    Attribute,
    Code,
    Conditional,
    Function,
    Keyword,
    Method,
    Name,
)
from derive.lowering.kept import added_axes, entered_axes
from derive.lowering.lower import Lowering
from derive.lowering.needs import needed_by, ordered
from derive.lowering.resolve import Shapes, Source
from derive.lowering.scope import Scope
from derive.lowering.softmaxes import softmaxes_shared
from derive.lowering.tidy import Line, names_in, tidy
from derive.lowering.value import Axes, Frame, Value
from derive.notation.operation import AxisOf, Operation, SizeOf

__all__ = [
    "WIDTH",
    "BackwardLine",
    "Program",
    "Saved",
    "frame_of",
    "input_values",
    "integers_of",
    "like_input",
    "program",
    "sources_of",
    "spoken_lines",
    "with_winners",
]

WIDTH = 76
"""Columns that a line of code may take; its indentation comes on top."""


@dataclass(frozen=True)
class Saved:
    """A tensor kept for backward, and the inputs whose gradients read it."""

    name: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class BackwardLine:
    """A line, and the inputs whose gradients need it."""

    line: Line
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """Forward and backward of one operation (one option of a choice)."""

    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    forward: tuple[Line, ...]
    differentiable: tuple[str, ...]
    """The inputs that have a gradient."""
    cotangents: tuple[tuple[str, str | None], ...]
    """(output, the name of its cotangent or None where it has none), in order."""
    saved: tuple[Saved, ...]
    kept_parameters: tuple[str, ...]
    kept_shapes: tuple[str, ...]
    """Inputs of which the backward needs the shape alone."""
    backward: tuple[BackwardLine, ...]
    gradients: Mapping[str, str]
    """input -> the name of its gradient in the backward."""
    setup: tuple[Line, ...] = ()
    """What is computed from the inputs when the backward is prepared."""
    kept_groups: tuple[str, ...] = ()
    """The names of ``setup`` that the backward reads."""


def program(op: Operation, lets: Lets, backward: Backward) -> Program:
    """Lower the forward and the backward of ``op``."""
    frame = frame_of(op)
    integers = integers_of(op)
    taken = {*lets.reserved, *(lets.say(let.name) for let in lets)}
    forward = _forward(op, lets, frame, integers, set(taken))
    return _backward(op, lets, backward, frame, integers, set(taken), forward)


def integers_of(op: Operation) -> frozenset[str]:
    """The parameters that are integers."""
    return frozenset(
        p.name for p in op.parameters if isinstance(p, SizeOf) or getattr(p, "integer", False)
    )


def frame_of(op: Operation) -> Frame:
    """The positions that parameters name at run time, and what is certain of all."""
    given = frozenset(p.extent for p in op.parameters if isinstance(p, SizeOf))
    return Frame(tuple(_named_axes(op)), Bounds.of(op), given)


def _named_axes(op: Operation) -> list[tuple[str, Index, Axes]]:
    named = []
    for p in op.parameters:
        if isinstance(p, AxisOf):
            homes = [t.axes for t in op.inputs if p.index in t.axes]
            axes = tuple(i if isinstance(i, Index) else None for i in homes[0])
            named.append((p.name, p.index, axes))
    return named


def input_values(op: Operation) -> dict[str, Value]:
    """The inputs as they are at hand."""
    return {
        t.name: Value(Name(t.name), tuple(i for i in t.axes if isinstance(i, Index)), t.kind)
        for t in op.inputs
    }


def like_input(op: Operation) -> Code:
    """The input that new tensors take dtype and device from."""
    floats = [t for t in op.inputs if t.kind == "float"]
    if not floats:
        raise LoweringError(
            "it reads no floating-point tensor, so there is nothing to differentiate"
        )
    return Name(floats[0].name)


def sources_of(tensors: Mapping[str, Value]) -> list[Source]:
    """The shapes of tensors at hand."""
    return [Source(name, Attribute(v.code, "shape"), v.axes) for name, v in tensors.items()]


def _forward(
    op: Operation, lets: Lets, frame: Frame, integers: frozenset[str], taken: set[str]
) -> tuple[Line, ...]:
    tensors = input_values(op)
    scope = Lowering(lets.get, frame, dict(tensors), like_input(op), integers)
    for name in op.outputs:
        scope.tensor(name)
    shapes = Shapes({e.name: e for e in op.extents}, frame, sources_of(tensors))
    lines = []
    same = set(tensors)
    """Names of inputs as they are: autograd has no output that is one."""
    for s in scope.statements:
        code = shapes.resolve(s.code)
        if s.name in op.outputs:
            code = _apart(code, same)
        elif _apart(code, same) != code:
            same.add(s.name)
        lines.append(Line(s.name, code, kept=not lets[s.name].internal))
    lines = with_winners(lines)
    for name in op.outputs:
        lines = _keep_axes(op, lets[name], frame, lines)
    return tuple(tidy(spoken_lines(lines, lets), taken, WIDTH))


def _apart(code: Code, same: Collection[str]) -> Code:
    """The code, where it is one of these names as it stands a copy."""
    match code:
        case Name(name) if name in same:
            return Method(code, "clone")
        case Conditional(test, then, other):
            return Conditional(test, _apart(then, same), _apart(other, same))
    return code


def spoken_lines(lines: Sequence[Line], lets: Lets) -> list[Line]:
    """The lines under the names that a reader knows."""

    def say(code: Code) -> Code:
        if isinstance(code, Name):
            bare = code.id.removesuffix("_shape")
            return Name(lets.say(bare) + code.id[len(bare) :])
        return code.map(say)  # type: ignore[no-any-return]

    return [replace(x, name=lets.say(x.name), code=say(x.code)) for x in lines]


def with_winners(lines: Sequence[Line]) -> list[Line]:
    """The winner of a maximum that is computed anyway comes with it."""
    both: dict[Code, Code] = {}
    for line in lines:
        match line.code:
            case Attribute(Method(obj, ("max" | "min") as name, args) as call, "values"):
                both[Method(obj, f"arg{name}", args)] = Attribute(call, "indices")
    return [replace(line, code=both.get(line.code, line.code)) for line in lines]


def _keep_axes(op: Operation, let: Let, frame: Frame, lines: Sequence[Line]) -> list[Line]:
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
        case Method(obj, name, args) if name in _KEEPING and args == (place,):
            return Method(obj, name, (*args, keyword))
        case Function(name, (obj, at)) if name in _KEEPING and at is place:
            return Function(name, (obj, at, keyword))
        case Attribute(inner, ("values" | "indices") as which):
            kept = _with_keepdim(inner, place, flag)
            return None if kept is None else Attribute(kept, which)
    return None


_KEEPING = (
    *("sum", "mean", "prod", "max", "min", "amax", "amin", "argmax", "argmin", "any", "all"),
    "torch.logsumexp",
)


def _backward(
    op: Operation,
    lets: Lets,
    backward: Backward,
    frame: Frame,
    integers: frozenset[str],
    taken: set[str],
    forward: tuple[Line, ...],
) -> Program:
    cotangents = dict(backward.cotangents)
    tensors = input_values(op)
    for name in op.outputs:
        let = lets[name]
        tensors[name] = Value(Name(name), let.formals, let.dtype)
        if name in cotangents:
            tensors[cotangents[name]] = Value(Name(cotangents[name]), let.formals)
    entry = _enter_kept(op, lets, frame, cotangents, tensors)
    adjoints = {a.name: a.as_let() for a in (*backward.adjoints, *backward.gradients)}
    like: Code = like_input(op)
    if cotangents:
        like = Name(next(iter(cotangents.values())))

    def find(name: str) -> Let | None:
        return adjoints.get(name) or lets.get(name)

    scope = Lowering(find, frame, dict(tensors), like, integers, adjoints=frozenset(adjoints))
    for g in backward.gradients:
        scope.tensor(g.name)
    say = lets.say
    gradients = {say(g.tensor): say(g.name) for g in backward.gradients}
    resolved, shape_names = _resolved(op, frame, tensors, scope, lets, find)
    lines = tidy(spoken_lines(resolved, lets), taken, WIDTH)
    entry = spoken_lines(entry, lets)
    used = {name for line in lines for name in names_in(line.code)}
    lines = [e for e in entry if e.name in used] + lines
    lines = ordered(lines, needed_by(lines, gradients))
    needs = needed_by(lines, gradients)
    places = {say(t.name): n for n, t in enumerate(op.inputs)}
    readers: dict[str, set[str]] = {}
    for line, wanted in zip(lines, needs, strict=True):
        for name in names_in(line.code):
            readers.setdefault(name, set()).update(wanted)
    at_hand = [say(name) for name in (*(t.name for t in op.inputs), *op.outputs)]
    saved = [
        Saved(name, tuple(g for g in gradients if g in readers[name]))
        for name in at_hand
        if name in readers
    ]
    return Program(
        inputs=tuple(say(t.name) for t in op.inputs),
        parameters=tuple(say(p.name) for p in op.parameters),
        outputs=tuple(say(name) for name in op.outputs),
        forward=forward,
        differentiable=tuple(gradients),
        cotangents=tuple(
            (say(name), say(cotangents[name]) if name in cotangents else None)
            for name in op.outputs
        ),
        saved=tuple(saved),
        kept_parameters=tuple(say(p.name) for p in op.parameters if say(p.name) in readers),
        kept_shapes=tuple(say(name) for name in shape_names if f"{say(name)}_shape" in readers),
        backward=tuple(
            BackwardLine(line, wanted) for line, wanted in softmaxes_shared(lines, needs, places)
        ),
        gradients=gradients,
    )


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
            if name is not None and missing:
                tensors[name] = replace(tensors[name], axes=axes)
                whole = Name(name)
                for flag, place in missing:
                    wide = Method(whole, "unsqueeze", (place,))
                    entry.append(Line(name, Conditional(flag, whole, wide)))
    return entry


def _resolved(
    op: Operation,
    frame: Frame,
    tensors: Mapping[str, Value],
    scope: Scope,
    lets: Lets,
    find: Callable[[str], Let | None],
) -> tuple[list[Line], list[str]]:
    """The statements with sizes read from what is saved anyway, or from kept shapes."""
    read = {name for s in scope.statements for name in names_in(s.code)}
    at_hand = sources_of({name: v for name, v in tensors.items() if name in read})
    inputs = {t.name for t in op.inputs}
    kept = [
        Source(name, Name(f"{name}_shape"), v.axes)
        for name, v in tensors.items()
        if name in inputs and name not in read
    ]
    shapes = Shapes({e.name: e for e in op.extents}, frame, at_hand, kept)
    lines = []
    for s in scope.statements:
        let = find(s.name)
        assert let is not None
        lines.append(Line(s.name, shapes.resolve(s.code), kept=not let.internal))
    return lines, list(shapes.used)

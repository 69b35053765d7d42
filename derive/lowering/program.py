"""The code of one operation: what runs forward, what is saved, and what runs backward.

Only inputs and outputs are saved, so that the backward can itself be differentiated; everything
else is computed again. A backward line says which gradients need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Index
from derive.calculus.adjoint import Backward
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
from derive.lowering.lower import Lowering
from derive.lowering.resolve import Shapes, Source
from derive.lowering.scope import Scope
from derive.lowering.tidy import Line, names_in, tidy
from derive.lowering.value import Axes, Frame, Value
from derive.spec.operation import AxisOf, KeepDim, Operation, SizeOf

__all__ = ["WIDTH", "BackwardLine", "Program", "Saved", "frame_of", "program"]

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
    integers = frozenset(
        p.name for p in op.parameters if isinstance(p, SizeOf) or getattr(p, "integer", False)
    )
    taken = {*lets.reserved, *(lets.say(let.name) for let in lets)}
    forward = _forward(op, lets, frame, integers, set(taken))
    return _backward(op, lets, backward, frame, integers, set(taken), forward)


def frame_of(op: Operation) -> Frame:
    """The positions that parameters name at run time."""
    return Frame(tuple(_named_axes(op)))


def _named_axes(op: Operation) -> list[tuple[str, Index, Axes]]:
    named = []
    for p in op.parameters:
        if isinstance(p, AxisOf):
            homes = [t.axes for t in op.inputs if p.index in t.axes]
            axes = tuple(i if isinstance(i, Index) else None for i in homes[0])
            named.append((p.name, p.index, axes))
    return named


def _inputs(op: Operation) -> dict[str, Value]:
    return {
        t.name: Value(Name(t.name), tuple(i for i in t.axes if isinstance(i, Index)), t.kind)
        for t in op.inputs
    }


def _like(op: Operation) -> Code:
    floats = [t for t in op.inputs if t.kind == "float"]
    if not floats:
        raise LoweringError(
            f"{op.name} reads no floating-point tensor, so there is nothing to differentiate"
        )
    return Name(floats[0].name)


def _sources(tensors: Mapping[str, Value]) -> list[Source]:
    return [Source(name, Attribute(v.code, "shape"), v.axes) for name, v in tensors.items()]


def _forward(
    op: Operation, lets: Lets, frame: Frame, integers: frozenset[str], taken: set[str]
) -> tuple[Line, ...]:
    tensors = _inputs(op)
    scope = Lowering(lets.get, frame, dict(tensors), _like(op), integers)
    for name in op.outputs:
        scope.tensor(name)
    shapes = Shapes({e.name: e for e in op.extents}, frame, _sources(tensors))
    lines = []
    for s in scope.statements:
        code = shapes.resolve(s.code)
        if isinstance(code, Name) and code.id in tensors and s.name in op.outputs:
            code = Method(code, "clone")
        lines.append(Line(s.name, code, kept=not lets[s.name].internal))
    lines = _winners(lines)
    for p in op.parameters:
        if isinstance(p, KeepDim):
            for name in op.outputs:
                lines = _keep_axis(op, lets[name], p, frame, lines)
    return tuple(tidy(_spoken(lines, lets), taken, WIDTH))


def _spoken(lines: Sequence[Line], lets: Lets) -> list[Line]:
    """The lines under the names that a reader knows."""

    def say(code: Code) -> Code:
        if isinstance(code, Name):
            bare = code.id.removesuffix("_shape")
            return Name(lets.say(bare) + code.id[len(bare) :])
        return code.map(say)  # type: ignore[no-any-return]

    return [replace(x, name=lets.say(x.name), code=say(x.code)) for x in lines]


def _winners(lines: Sequence[Line]) -> list[Line]:
    """The winner of a maximum that is computed anyway comes with it."""
    both: dict[Code, Code] = {}
    for line in lines:
        match line.code:
            case Attribute(Method(obj, ("max" | "min") as name, args) as call, "values"):
                both[Method(obj, f"arg{name}", args)] = Attribute(call, "indices")
    return [replace(line, code=both.get(line.code, line.code)) for line in lines]


def _kept_axes(op: Operation, formals: Axes, p: KeepDim) -> Axes | None:
    """The axes of an output with the lost axis as size 1 in its place; None if it is not lost."""
    if p.index in formals:
        return None
    home = next((t.axes for t in op.inputs if p.index in t.axes), None)
    if home is None:
        raise LoweringError(f"{p.name}=keep({p.index.name}): no input has the axis")
    n = home.index(p.index)
    before = [formals.index(i) for i in home[:n] if isinstance(i, Index) and i in formals]
    after = [formals.index(i) for i in home[n + 1 :] if isinstance(i, Index) and i in formals]
    at = before[-1] + 1 if before else (after[0] if after else len(formals))
    return (*formals[:at], None, *formals[at:])


def _keep_axis(
    op: Operation, let: Let, p: KeepDim, frame: Frame, lines: Sequence[Line]
) -> list[Line]:
    """The output with the axis kept where the flag says so."""
    axes = _kept_axes(op, let.formals, p)
    if axes is None:
        return list(lines)
    place = frame.position(axes, axes.index(None))
    n = next(n for n, line in enumerate(lines) if line.name == let.name)
    flag = Name(p.name)
    kept = _with_keepdim(lines[n].code, place, flag)
    if kept is not None and not any(let.name in set(names_in(x.code)) for x in lines):
        return [*lines[:n], replace(lines[n], code=kept), *lines[n + 1 :]]
    name = Name(let.name)
    wide = Conditional(flag, Method(name, "unsqueeze", (place,)), name)
    return [*lines, Line(let.name, wide)]


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
    tensors = _inputs(op)
    for name in op.outputs:
        let = lets[name]
        tensors[name] = Value(Name(name), let.formals, let.dtype)
        if name in cotangents:
            tensors[cotangents[name]] = Value(Name(cotangents[name]), let.formals)
    entry: list[Line] = []
    for p in op.parameters:
        if isinstance(p, KeepDim):
            _enter_kept(op, lets, p, frame, cotangents, tensors, entry)
    adjoints = {a.name: a.as_let() for a in (*backward.adjoints, *backward.gradients)}
    like: Code = _like(op)
    if cotangents:
        like = Name(next(iter(cotangents.values())))

    def find(name: str) -> Let | None:
        return adjoints.get(name) or lets.get(name)

    scope = Lowering(find, frame, dict(tensors), like, integers)
    for g in backward.gradients:
        scope.tensor(g.name)
    say = lets.say
    gradients = {say(g.tensor): say(g.name) for g in backward.gradients}
    resolved, shape_names = _resolved(op, frame, tensors, scope, lets, find)
    lines = tidy(_spoken(resolved, lets), taken, WIDTH)
    entry = _spoken(entry, lets)
    used = {name for line in lines for name in names_in(line.code)}
    lines = [e for e in entry if e.name in used] + lines
    lines = _ordered(lines, _needs(lines, gradients))
    needs = _needs(lines, gradients)
    at_hand = [say(name) for name in (*(t.name for t in op.inputs), *op.outputs)]
    saved = []
    for name in at_hand:
        readers = [needs[n] for n, x in enumerate(lines) if name in set(names_in(x.code))]
        if readers:
            wanted = tuple(g for g in gradients if any(g in r for r in readers))
            saved.append(Saved(name, wanted))
    read = {name for line in lines for name in names_in(line.code)}
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
        kept_parameters=tuple(say(p.name) for p in op.parameters if say(p.name) in read),
        kept_shapes=tuple(say(name) for name in shape_names if f"{say(name)}_shape" in read),
        backward=tuple(BackwardLine(line, needs[n]) for n, line in enumerate(lines)),
        gradients=gradients,
    )


def _enter_kept(
    op: Operation,
    lets: Lets,
    p: KeepDim,
    frame: Frame,
    cotangents: Mapping[str, str],
    tensors: dict[str, Value],
    entry: list[Line],
) -> None:
    """Outputs and cotangents get the axis that a flag may have kept."""
    for output in op.outputs:
        axes = _kept_axes(op, lets[output].formals, p)
        if axes is None:
            continue
        place = frame.position(axes, axes.index(None))
        for name in (output, cotangents.get(output)):
            if name is not None:
                whole = Name(name)
                wide = Method(whole, "unsqueeze", (place,))
                entry.append(Line(name, Conditional(Name(p.name), whole, wide)))
                tensors[name] = replace(tensors[name], axes=axes)


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
    at_hand = _sources({name: v for name, v in tensors.items() if name in read})
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


def _ordered(lines: Sequence[Line], needs: Sequence[tuple[str, ...]]) -> list[Line]:
    """The lines with those for the same gradients together, what all need first.

    A line stays behind every earlier one that it reads, and that writes what it writes.
    """
    reads = [set(names_in(line.code)) for line in lines]
    pending = list(range(len(lines)))
    result: list[Line] = []
    current: tuple[str, ...] = ()
    while pending:
        ready = [
            n
            for at, n in enumerate(pending)
            if not any(
                lines[m].name in reads[n]
                or lines[m].name == lines[n].name
                or lines[n].name in reads[m]
                for m in pending[:at]
            )
        ]
        n = next(
            (n for n in ready if needs[n] == current),
            max(ready, key=lambda n: (len(needs[n]), -n)),
        )
        current = needs[n]
        pending.remove(n)
        result.append(lines[n])
    return result


def _needs(lines: Sequence[Line], gradients: Mapping[str, str]) -> list[tuple[str, ...]]:
    """For each line the inputs whose gradients it leads to."""
    by_name = {name: tensor for tensor, name in gradients.items()}
    wanted: dict[str, set[str]] = {}
    result: list[tuple[str, ...]] = [()] * len(lines)
    for n in range(len(lines) - 1, -1, -1):
        line = lines[n]
        mine = set(wanted.get(line.name, ()))
        if line.name in by_name:
            mine.add(by_name[line.name])
        for name in names_in(line.code):
            wanted.setdefault(name, set()).update(mine)
        result[n] = tuple(t for t in gradients if t in mine)
    return result

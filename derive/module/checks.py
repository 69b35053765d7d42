"""What the public function checks before it runs: rank, dtype, device and sizes of its inputs.

A message names the tensor, the axis and both sizes. Nothing here looks at the values of a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from derive.algebra.expr import Call, Composite, Const, Expr, Index, Mul, Num, Param, Size, walk
from derive.errors import LoweringError
from derive.lowering.code import Attribute, Binary, Code, Name, Shape, Subscript, text
from derive.lowering.groups import (
    OuterFrame,
    SizeFrame,
    colon,
    group_shapes,
    groups_of,
    shape_name,
)
from derive.lowering.resolve import Shapes, Source, axes_of
from derive.lowering.tidy import Line, cut, names_in
from derive.lowering.value import Axes, Frame, NeedsFlatGroups, index_key
from derive.module.arguments import Check, divisors, is_tensor, parameter_kinds
from derive.notation.build import product
from derive.notation.operation import AxisOf, Extent, Operation, SizeOf, Tensor
from derive.notation.split import composites

__all__ = ["Check", "checks", "constant_text"]

WIDTH = 80
"""Columns of a line in the public function."""

SHORT = 60
"""Columns of a size that stands in a check and its message."""


def checks(op: Operation, frame: Frame) -> list[Check]:
    """All checks of op, in the order in which each may rely on the earlier ones."""
    required = [t for t in op.inputs if t.default is None]
    optional = [t for t in op.inputs if t.default is not None]
    result = [is_tensor(op, t.name) for t in required] + parameter_kinds(op)
    for t in required:
        result += _rank(op, t)
    for p in op.parameters:
        if isinstance(p, AxisOf):
            result += _axis(op, p)
    result += _in_turn(op)
    for p in op.parameters:
        if isinstance(p, SizeOf):
            message = f"{op.name}: {p.name} must be positive, not {{{p.name}}}"
            result.append(Check((), f"{p.name} < 1", message=message))
    for t in optional:
        result += [_fill(op, frame, t, required), is_tensor(op, t.name), *_rank(op, t)]
    result += _kinds(op)
    result += divisors(op, _shapes(op, SizeFrame(), op.inputs))
    single = [e for e in op.extents if not e.group]
    # What divides comes first: the quotient may be read by any other check.
    sizes = [check for e in single for check in _divides(op, frame, e)]
    sizes += [check for e in single for check in _sizes(op, frame, e)]
    return result + _groups(op, frame, sizes) + sizes


def constant_text(value: Fraction | Expr | int | None) -> str:
    """A default as Python text: a number, pi, inf, or the negative of one."""
    if isinstance(value, Const):
        return f"math.{value.name}"
    if isinstance(value, Mul):
        return "-" + constant_text(value.args[-1])
    if isinstance(value, Num):
        value = value.value
    if not isinstance(value, Fraction | int):
        raise LoweringError(f"a default given by {value!r}")
    return repr(int(value)) if value == int(value) else repr(float(value))


def _letters(t: Tensor) -> str:
    return ", ".join(map(_letter, t.axes))


def _letter(axis: Expr) -> str:
    """The axis as it is written."""
    if isinstance(axis, Composite):
        return f"({' '.join(map(_letter, axis.args))})"
    assert isinstance(axis, Index)
    return f"*{axis.name}" if axis.group else axis.name


def _rank(op: Operation, t: Tensor) -> list[Check]:
    single = sum(1 for i in t.axes if not (isinstance(i, Index) and i.group))
    grouped = single < len(t.axes)
    if grouped and not single:
        return []
    relation, words = ("<", "at least ") if grouped else ("!=", "")
    plural = "axis" if single == 1 else "axes"
    message = (
        f"{op.name}: {t.name} must have {words}{single} {plural} [{_letters(t)}], "
        f"not {{{t.name}.dim()}}"
    )
    return [Check((), f"{t.name}.dim() {relation} {single}", message=message)]


def _axis(op: Operation, p: AxisOf) -> list[Check]:
    home = next((t for t in op.inputs if p.index in t.axes), None)
    if home is None:
        raise LoweringError(f"{p.name}=axis({p.index.name}): no input has the axis")
    name, rank = p.name, f"{home.name}.dim()"
    found = [
        Check(
            (),
            f"not -{rank} <= {name} < {rank}",
            message=f"{op.name}: {name} must be in [{{-{rank}}}, {{{rank}}}) for {home.name}, "
            f"not {{{name}}}",
        )
    ]
    n = home.axes.index(p.index)
    before = any(isinstance(i, Index) and i.group for i in home.axes[:n])
    after = any(isinstance(i, Index) and i.group for i in home.axes[n + 1 :])
    message = (
        f"{op.name}: {name} must be the axis {p.index.name} of "
        f"{home.name}[{_letters(home)}], not {{{name}}}"
    )
    if before and after:
        ahead, behind = (
            sum(1 for i in axes if not (isinstance(i, Index) and i.group))
            for axes in (home.axes[:n], home.axes[n + 1 :])
        )
        if not ahead and not behind:
            return found
        end = f"{rank} - {behind}" if behind else rank
        test = f"not {ahead} <= {name} % {rank} < {end}"
        return [*found, Check((), test, message=message)]
    place = f"{n}" if not before else f"{rank} - {len(home.axes) - n}"
    return [*found, Check((), f"{name} % {rank} != {place}", message=message)]


def _in_turn(op: Operation) -> list[Check]:
    """Axes of one tensor stand in the order in which it lists them."""
    found: list[Check] = []
    placed = [p for p in op.parameters if isinstance(p, AxisOf)]
    for t in op.inputs:
        own = sorted((p for p in placed if p.index in t.axes), key=lambda p: t.axes.index(p.index))
        for one, two in pairwise(own):
            between = t.axes[t.axes.index(one.index) + 1 : t.axes.index(two.index)]
            if not any(isinstance(i, Index) and i.group for i in between):
                continue
            rank = f"{t.name}.dim()"
            single = sum(1 for i in between if not (isinstance(i, Index) and i.group))
            least = f"{one.name} % {rank} + {single}" if single else f"{one.name} % {rank}"
            message = (
                f"{op.name}: {one.name} and {two.name} must be axes {one.index.name} and "
                f"{two.index.name} of {t.name}[{_letters(t)}], in this order, "
                f"not {{{one.name}}} and {{{two.name}}}"
            )
            found.append(Check((), f"{least} >= {two.name} % {rank}", message=message))
        placed = [p for p in placed if p not in own]
    return found


def _fill(op: Operation, frame: Frame, t: Tensor, required: Sequence[Tensor]) -> Check:
    """The constant that None stands for."""
    likes = [r for r in required if r.kind == "float"]
    if not likes:
        raise LoweringError(f"{t.name} is optional, but no required float tensor gives its dtype")
    shapes = _shapes(op, frame, required)
    shape = Shape(tuple(Name(index_key(i)) for i in axes_of(op, t) if i is not None))
    try:
        code = shapes.resolve(shape)
    except (LoweringError, StopIteration) as error:
        raise LoweringError(
            f"{t.name} is optional, but no required tensor tells its shape: {error}"
        ) from None
    value = constant_text(t.default)
    like = likes[0].name
    return Check(
        then=(f"if {t.name} is None:", f"    {t.name} = {like}.new_full({text(code)}, {value})")
    )


def _shapes(op: Operation, frame: Frame, tensors: Sequence[Tensor]) -> Shapes:
    sources = [Source(t.name, Attribute(Name(t.name), "shape"), axes_of(op, t)) for t in tensors]
    return Shapes({e.name: e for e in op.extents}, frame, sources)


def _kinds(op: Operation) -> list[Check]:
    """One floating dtype, int64 for integers, one device."""
    result: list[Check] = []
    floats = [t for t in op.inputs if t.kind == "float"]
    for t in op.inputs:
        if t.kind == "float" and t is floats[0]:
            test = f"not {t.name}.is_floating_point()"
            want = "must be a floating-point tensor"
        elif t.kind == "float":
            test = f"{t.name}.dtype != {floats[0].name}.dtype"
            want = f"must have the dtype of {floats[0].name}, {{{floats[0].name}.dtype}}"
        else:
            dtype = "int64" if t.kind == "int" else "bool"
            test, want = f"{t.name}.dtype != torch.{dtype}", f"must be {dtype}"
        message = f"{op.name}: {t.name} {want}, not {{{t.name}.dtype}}"
        result.append(Check((), test, "TypeError", message))
    first = op.inputs[0]
    for t in op.inputs[1:]:
        message = (
            f"{op.name}: {t.name} is on {{{t.name}.device}}, "
            f"{first.name} on {{{first.name}.device}}"
        )
        result.append(Check((), f"{t.name}.device != {first.name}.device", message=message))
    return result


def _sizes(op: Operation, frame: Frame, extent: Extent) -> list[Check]:
    """Every axis of an extent agrees with the first one, or with the size that is given."""
    places = _places(op, frame, extent)
    if extent.size is not None and not _divisors(op, extent):
        return _given(op, extent, places)
    result: list[Check] = []
    for name, place, _ in places[1:]:
        first, at, _ = places[0]
        one, other = text(_size(first, at)), text(_size(name, place))
        message = (
            f"{op.name}: index {extent.name} has size {{{one}}} on axis {_place(at)} of {first} "
            f"but {{{other}}} on axis {_place(place)} of {name}"
        )
        result.append(Check((), f"{other} != {one}", message=message))
    return result


def _places(op: Operation, frame: Frame, extent: Extent) -> list[tuple[str, Code, str]]:
    """(tensor, position, the axis where it is a composite) of the axes with this extent."""
    tensors = {t.name: t for t in op.inputs}
    places: list[tuple[str, Code, str]] = []
    for name, n in extent.sources:
        axis = tensors[name].axes[n]
        words = f" {_letter(axis)}" if isinstance(axis, Composite) else ""
        try:
            places.append((name, frame.position(axes_of(op, tensors[name]), n), words))
        except NeedsFlatGroups:
            # The shape of the whole tensor is compared instead.
            continue
    return places


def _given(op: Operation, extent: Extent, places: Sequence[tuple[str, Code, str]]) -> list[Check]:
    """Every axis has the size that follows from elsewhere; where there is none, it is not negative.

    An expression in sizes is negative where it subtracts more than there is, or adds a parameter
    that is negative.
    """
    assert extent.size is not None
    sizes = {p.name for p in op.parameters if isinstance(p, SizeOf)}
    signed = any(isinstance(e, Param) and e.name not in sizes for e in walk(extent.size))
    subtracts = signed or any(isinstance(e, Num) and e.value < 0 for e in walk(extent.size))
    if not places and not subtracts:
        return []
    prepare, size = _sized(op, extent.name)
    if not places:
        message = f"{op.name}: no value of index {extent.name} keeps every access in bounds"
        certain = not (prepare or signed or "-" in size)
        return [] if certain else [Check(prepare, f"{size} < 0", message=message)]
    want = size if size.isdigit() else f"{{{size}}}"
    reason = f"not the {want} that the operation asks for"
    parts = extent.size.args if isinstance(extent.size, Mul) else ()
    if parts and all(isinstance(p, Size) for p in parts):
        product = "*".join(f"size({p.extent})" for p in parts if isinstance(p, Size))
        reason = f"but {product} is {want}"
    result: list[Check] = []
    for name, place, words in places:
        code = text(_size(name, place))
        message = f"{op.name}: axis {_place(place)}{words} of {name} has size {{{code}}}, {reason}"
        result.append(Check(prepare, f"{code} != {size}", message=message))
        prepare = ()
    return result


def _sized(op: Operation, extent: str) -> tuple[tuple[str, ...], str]:
    """The lines that compute a size which is too long for a check, and what it is called."""
    code = _elsewhere(op, extent)
    if len(text(code)) <= SHORT:
        return (), text(code)
    # No input or parameter is called so: it is a word of the notation.
    name = "size"
    taken = {given.name for given in (*op.inputs, *op.parameters)} | {"torch", "math", name}
    lines = cut([Line(name, code)], taken, WIDTH)
    return tuple(f"{line.name} = {text(line.code)}" for line in lines), name


def _elsewhere(op: Operation, extent: str) -> Code:
    """The size of an extent by its definition, read on none of its own axes."""
    sources = []
    for t in op.inputs:
        axes = tuple(None if i is not None and i.extent == extent else i for i in axes_of(op, t))
        sources.append(Source(t.name, Attribute(Name(t.name), "shape"), axes))
    return Shapes({e.name: e for e in op.extents}, SizeFrame(), sources).size(extent)


def _divisors(op: Operation, extent: Extent) -> list[tuple[str, ...]]:
    """The extents whose sizes together must divide that of the extent.

    The one part of a composite that is not among them is the quotient.
    """
    sizes = {e.name: e.size for e in op.extents}
    forms = list(composites(op).get(extent.name, ()))
    for name, n in extent.sources:
        axis = next(t.axes[n] for t in op.inputs if t.name == name)
        if isinstance(axis, Composite):
            forms.append(tuple(p.extent for p in axis.args if isinstance(p, Index)))
    found: dict[Expr, tuple[str, ...]] = {}
    for parts in forms:
        for n, part in enumerate(parts):
            others = (*parts[:n], *parts[n + 1 :])
            rest = product(map(Size, others))
            if sizes.get(part) is Call("floordiv", (Size(extent.name), rest)):
                found.setdefault(rest, others)
    return list(found.values())


def _divides(op: Operation, frame: Frame, extent: Extent) -> list[Check]:
    """The size of the extent is a multiple of what it is divided by, and that is not 0."""
    divisors = _divisors(op, extent)
    if not divisors:
        return []
    sizes = {e.name: e.size for e in op.extents}
    shapes = _shapes(op, SizeFrame(), op.inputs)
    places = _places(op, frame, extent)
    result: list[Check] = []
    for parts in divisors:
        code = shapes.size(parts[0])
        for part in parts[1:]:
            code = Binary("*", code, shapes.size(part))
        if places:
            name, place, axis = places[0]
            whole, what = _size(name, place), f"axis {_place(place)}{axis} of {name}"
        else:
            whole, what = shapes.size(extent.name), f"index {extent.name}"
        known = [sizes[part] for part in parts]
        words = "*".join(
            size.name if isinstance(size, Param) else f"size({part})"
            for size, part in zip(known, parts, strict=True)
        )
        message = (
            f"{op.name}: {what} has size {{{text(whole)}}}, which {words} = {{{text(code)}}} "
            "does not divide"
        )
        test = f"{text(Binary('%', whole, code))} != 0"
        if not all(isinstance(size, Num | Param) for size in known):
            test = f"{text(code)} == 0 or {test}"
        result.append(Check((), test, message=message))
    return result


def _place(code: Code) -> str:
    """A position inside a message: a number as it is, anything else by its value."""
    words = text(code)
    return words if words.lstrip("-").isdigit() else f"{{{words}}}"


def _size(name: str, place: Code) -> Code:
    return Subscript(Attribute(Name(name), "shape"), (place,))


def _groups(op: Operation, frame: Frame, later: Sequence[Check]) -> list[Check]:
    """A group has one shape in all tensors; axes between groups are compared here too.

    What ``later`` checks read of the groups' shapes is computed first.
    """
    grouped = [t for t in op.inputs if groups_of(t)]
    if not grouped:
        return []
    shapes_of = group_shapes(op)
    home = {
        line.name: next(n for n in names_in(line.code) if any(t.name == n for t in grouped))
        for line in shapes_of
    }
    outer = OuterFrame()
    sources = [Source(t.name, Attribute(Name(t.name), "shape"), axes_of(op, t)) for t in op.inputs]
    shapes = Shapes({e.name: e for e in op.extents}, outer, sources)
    result: list[Check] = []
    for t in grouped:
        if all(home[shape_name(i)] == t.name for i in groups_of(t)):
            continue
        axes = axes_of(op, t)
        rank = text(outer.position(axes, len(axes)))
        message = f"{op.name}: {t.name} must have {{{rank}}} axes [{_letters(t)}], not "
        result.append(
            Check((), f"{t.name}.dim() != {rank}", message=message + f"{{{t.name}.dim()}}")
        )
        for n, i in enumerate(axes):
            if i is None:
                continue
            start, stop = text(outer.position(axes, n)), text(outer.position(axes, n + 1))
            prepare: tuple[str, ...] = ()
            if i.group:
                first, last = "" if start == "0" else start, "" if n + 1 == len(axes) else stop
                at = _place(outer.position(axes, n))
                want, name = shape_name(i), f"index *{i.name}"
                if len(first + last) > SHORT:
                    # As for sizes: the word of the notation is no other name.
                    prepare = (f"axis = {start}",)
                    at, first = "{axis}", "axis"
                    last = last and f"axis + len({want})"
                ends = colon(first, last)
                own = f"{t.name}.shape" if ends == ":" else f"{t.name}.shape[{ends}]"
                message = (
                    f"{op.name}: {name} has shape {{tuple({want})}} in {home[want]} "
                    f"but {{tuple({own})}} on axes from {at} of {t.name}"
                )
            elif _is_static(frame, axes, n) or any(g.extent == i.extent for g in groups_of(t)):
                continue
            else:
                own, want = f"{t.name}.shape[{start}]", text(shapes.size(i.extent))
                message = (
                    f"{op.name}: index {i.name} has size {{{want}}} "
                    f"but {{{own}}} on axis {_place(outer.position(axes, n))} of {t.name}"
                )
            if own != want:
                result.append(Check(prepare, f"{own} != {want}", message=message))
    prelude = _prelude(shapes_of, [*result, *later])
    return [prelude, *result] if prelude.prepare or result else []


def _prelude(shapes_of: Sequence[Line], checks: Sequence[Check]) -> Check:
    """The lines that compute the shapes of groups, as far as the checks read them."""
    read = (" ".join((*c.prepare, c.test, c.message)) for c in checks)
    words = {word for line in read for word in re.findall(r"\w+", line)}
    prepare: list[str] = []
    for line in reversed(shapes_of):
        if line.name in words:
            prepare.insert(0, f"{line.name} = {text(line.code)}")
            words |= set(names_in(line.code))
    return Check(prepare=tuple(prepare))


def _is_static(frame: Frame, axes: Axes, n: int) -> bool:
    """Whether the axis has a position that its size was compared by already."""
    try:
        frame.position(axes, n)
    except NeedsFlatGroups:
        return False
    return True

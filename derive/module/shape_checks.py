"""Size checks of the public function: axes of one index agree, and groups have one shape."""

from __future__ import annotations

import re
from collections.abc import Sequence

from derive.algebra.expr import Call, Composite, Expr, Index, Mul, Num, Param, Size, walk
from derive.lowering.ground.runtime_sizes import ShapeSource, ShapeSources, axes_of
from derive.lowering.ground.value import Axes, Frame, NeedsFlatGroups
from derive.lowering.groups import (
    OuterFrame,
    SizeFrame,
    group_shapes,
    groups_of,
    part_of_shape,
    shape_name,
)
from derive.module.arguments import (
    TWO_SIZES,
    WRONG_RANK,
    ArgumentCheck,
    argument_check,
    checks_if_given,
    required_of,
)
from derive.notation.operation import Extent, Operation, SizeOf, Tensor
from derive.notation.shapes import factors
from derive.notation.smart_constructors import product
from derive.notation.split import composites
from derive.program.cse import Line
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    FunctionCall,
    Name,
    Subscript,
    literal,
    names_in,
    text,
)
from derive.program.torch_printer import broken

SHORT = 60
"""Maximum columns of a size inside a check and its message."""


def axes_agree(op: Operation, frame: Frame) -> list[ArgumentCheck]:
    """Return the size checks, ordered so that each may rely on the earlier ones."""
    single = [e for e in op.extents if not e.group]
    # Divisibility comes first: any other check may read the quotient.
    found = [check for e in single for check in _divisibility_checks(op, frame, e)]
    found += [check for e in single for check in _size_checks(op, frame, e)]
    return _group_checks(op, frame, found) + found


def letters(t: Tensor) -> str:
    return ", ".join(map(_axis_letters, t.axes))


def _axis_letters(axis: Expr) -> str:
    """Return the axis in its notation."""
    if isinstance(axis, Composite):
        return f"({' '.join(map(_axis_letters, axis.args))})"
    assert isinstance(axis, Index)
    return f"*{axis.name}" if axis.group else axis.name


def shapes_from(op: Operation, frame: Frame, tensors: Sequence[Tensor]) -> ShapeSources:
    sources = [
        ShapeSource(t.name, Attribute(Name(t.name), "shape"), axes_of(op, t)) for t in tensors
    ]
    return ShapeSources({e.name: e for e in op.extents}, frame, sources)


def _size_checks(op: Operation, frame: Frame, extent: Extent) -> list[ArgumentCheck]:
    """Return the checks that the axes of an extent have the size of the first, or the given one."""
    places = _axis_places(op, frame, extent)
    if extent.size is not None and not _divisors(op, extent):
        return _defined_size_checks(op, extent, places)
    result: list[ArgumentCheck] = []
    tensors = {t.name: t for t in op.inputs}
    for name, place, _ in places[1:]:
        first, at, _ = places[0]
        one, other = text(_shape_item(first, at)), text(_shape_item(name, place))
        message = (
            f"index {extent.name} has size {{{one}}} on axis {_position_in_message(at)} of {first} "
            f"but {{{other}}} on axis {_position_in_message(place)} of {name}"
        )
        clash = argument_check(
            op, f"{other} != {one}", message, subject=extent.name, clause=TWO_SIZES
        )
        result += checks_if_given(tensors[name], [clash])
    return result


def _axis_places(op: Operation, frame: Frame, extent: Extent) -> list[tuple[str, Code, str]]:
    """Return (tensor, position, axis text if composite) for each axis with this extent."""
    tensors = {t.name: t for t in op.inputs}
    places: list[tuple[str, Code, str]] = []
    for name, n in sorted(extent.sources, key=lambda place: tensors[place[0]].default is not None):
        axis = tensors[name].axes[n]
        words = f" {_axis_letters(axis)}" if isinstance(axis, Composite) else ""
        try:
            places.append((name, frame.position(axes_of(op, tensors[name]), n), words))
        except NeedsFlatGroups:
            # The shape of the whole tensor is compared instead.
            continue
    return places


def _defined_size_checks(
    op: Operation, extent: Extent, places: Sequence[tuple[str, Code, str]]
) -> list[ArgumentCheck]:
    """Return the checks that each axis has its defined size; without axes, that it is not negative.

    A size expression is negative if it subtracts too much or adds a negative parameter.
    """
    assert extent.size is not None
    if not places:
        return _not_negative(op, extent.name, extent.size)
    prepare, size = _sized(op, extent.name)
    want = size if size.isdigit() else f"{{{size}}}"
    reason = f"but must have size {want}"
    parts = extent.size.args if isinstance(extent.size, Mul) else ()
    factors = [f"size({p.extent})" for p in parts if isinstance(p, Size)]
    if factors and len(factors) == len(parts):
        reason = f"but {'*'.join(factors)} is {want}"
    result: list[ArgumentCheck] = []
    tensors = {t.name: t for t in op.inputs}
    for name, place, words in places:
        code = text(_shape_item(name, place))
        message = (
            f"axis {_position_in_message(place)}{words} of {name} has size {{{code}}}, {reason}"
        )
        check = argument_check(
            op,
            f"{code} != {size}",
            message,
            prepare=prepare,
            subject=name,
            clause="{} has an axis of the wrong size",
        )
        result += checks_if_given(tensors[name], [check])
        prepare = ()
    return result


def _not_negative(op: Operation, name: str, definition: Expr) -> list[ArgumentCheck]:
    """Return the check of an index size that no axis has, if the size may be negative."""
    sizes = {p.name for p in op.parameters if isinstance(p, SizeOf)}
    parts = list(walk(definition))
    signed = any(isinstance(e, Param) and e.name not in sizes for e in parts)
    if not signed and not any(isinstance(e, Num) and e.value < 0 for e in parts):
        return []
    prepare, size = _sized(op, name)
    message = f"no value of index {name} keeps every access in bounds"
    certain = not (prepare or signed or "-" in size)
    clause = "no value of index {} keeps every access in bounds"
    check = argument_check(op, f"{size} < 0", message, prepare=prepare, subject=name, clause=clause)
    return [] if certain else [check]


def _sized(op: Operation, extent: str) -> tuple[tuple[str, ...], str]:
    """Return the lines that compute a size too long for a check, and its name."""
    code = _size_by_definition(op, extent)
    if len(text(code)) <= SHORT:
        return (), text(code)
    # No input or parameter has this name in the code.
    return tuple(broken("size = ", code, indent=4)), "size"


def _size_by_definition(op: Operation, extent: str) -> Code:
    """Return the size of an extent by its definition, without reading its own axes."""
    sources = []
    for t in required_of(op):
        axes = tuple(None if i is not None and i.extent == extent else i for i in axes_of(op, t))
        sources.append(ShapeSource(t.name, Attribute(Name(t.name), "shape"), axes))
    return ShapeSources({e.name: e for e in op.extents}, SizeFrame(), sources).size(extent)


def _divisors(op: Operation, extent: Extent) -> list[tuple[str, ...]]:
    """Return the tuples of extents whose product must divide the size of the extent.

    The remaining part of the composite axis is the quotient.
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
            match sizes.get(part):
                case Call("floordiv", (Size(extent.name), below)):
                    if factors(below, sizes.get) == factors(rest, sizes.get):
                        found.setdefault(rest, others)
    return list(found.values())


def _divisibility_checks(op: Operation, frame: Frame, extent: Extent) -> list[ArgumentCheck]:
    """Return the checks that the divisors of an extent are nonzero and divide its size."""
    divisors = _divisors(op, extent)
    if not divisors:
        return []
    sizes = {e.name: e.size for e in op.extents}
    shapes = shapes_from(op, SizeFrame(), required_of(op))
    tensors = {t.name: t for t in op.inputs}
    places = _axis_places(op, frame, extent)
    result: list[ArgumentCheck] = []
    for parts in divisors:
        code = shapes.size(parts[0])
        for part in parts[1:]:
            code = Binary("*", code, shapes.size(part))
        if places:
            name, place, axis = places[0]
            whole, what = (
                _shape_item(name, place),
                f"axis {_position_in_message(place)}{axis} of {name}",
            )
            subject = f"axis{axis or f' {extent.name}'} of {name}"
        else:
            whole, what = shapes.size(extent.name), f"index {extent.name}"
            subject = what
        known = [sizes[part] for part in parts]
        words = "*".join(
            size.name if isinstance(size, Param) else f"size({part})"
            for size, part in zip(known, parts, strict=True)
        )
        message = (
            f"{what} has size {{{text(whole)}}}, which is not divisible by "
            f"{words} = {{{text(code)}}}"
        )
        test = f"{text(Binary('%', whole, code))} != 0"
        if not all(isinstance(size, Num | Param) for size in known):
            test = f"{text(code)} == 0 or {test}"
        clause = f"the size of {{}} is not divisible by {words}"
        check = argument_check(op, test, message, subject=subject, clause=clause)
        result += checks_if_given(tensors[places[0][0]], [check]) if places else [check]
    return result


def _position_in_message(code: Code) -> str:
    """Return a position for a message: a literal number, else its value in braces."""
    words = text(code)
    return words if words.lstrip("-").isdigit() else f"{{{words}}}"


def _shape_item(name: str, place: Code) -> Code:
    return Subscript(Attribute(Name(name), "shape"), (place,))


def _group_checks(
    op: Operation, frame: Frame, later: Sequence[ArgumentCheck]
) -> list[ArgumentCheck]:
    """Return the checks that a group has one shape in all tensors, and of axes between groups.

    The group shapes that these or the ``later`` checks read are computed first.
    """
    grouped = [t for t in op.inputs if groups_of(t)]
    if not grouped:
        return []
    shapes_of = group_shapes(op)
    home = {
        line.name: next(n for n in names_in(line.code) if any(t.name == n for t in grouped))
        for line in shapes_of
    }
    shapes = shapes_from(op, OuterFrame(), required_of(op))
    result: list[ArgumentCheck] = []
    for t in grouped:
        if all(home[shape_name(i)] == t.name for i in groups_of(t)):
            continue
        axes = axes_of(op, t)
        rank = text(shapes.frame.position(axes, len(axes)))
        message = f"{t.name} must have {{{rank}}} axes [{letters(t)}], not {{{t.name}.dim()}}"
        test = f"{t.name}.dim() != {rank}"
        found = [argument_check(op, test, message, subject=t.name, clause=WRONG_RANK)]
        for n, i in enumerate(axes):
            if i is not None and i.group:
                found += _group_check(op, t, axes, n, home[shape_name(i)])
            elif i is not None and not _is_static(frame, axes, n):
                if all(g.extent != i.extent for g in groups_of(t)):
                    found += _between_groups_check(op, t, shapes, axes, n)
        result += checks_if_given(t, found)
    prelude = _prelude(shapes_of, [*result, *later])
    return [prelude, *result] if prelude.prepare or result else []


def _group_check(op: Operation, t: Tensor, axes: Axes, n: int, home: str) -> list[ArgumentCheck]:
    """Return the check that the group at axis n of t has the shape read from its home tensor."""
    group, outer = axes[n], OuterFrame()
    assert group is not None
    start = outer.position(axes, n)
    stop = None if n + 1 == len(axes) else outer.position(axes, n + 1)
    want, prepare = shape_name(group), tuple[str, ...]()
    if len(text(start)) + len(text(stop) if stop else "") > SHORT:
        # As with sizes, no other name in the code equals this one.
        prepare, start = (f"axis = {text(start)}",), Name("axis")
        stop = stop and Binary("+", start, FunctionCall("len", (Name(want),)))
    own = text(part_of_shape(t.name, None if start is literal(0) else start, stop))
    message = (
        f"index *{group.name} has shape {{tuple({want})}} in {home} "
        f"but {{tuple({own})}} in {t.name}, from axis {_position_in_message(start)} on"
    )
    check = argument_check(
        op, f"{own} != {want}", message, prepare=prepare, subject=f"*{group.name}", clause=TWO_SIZES
    )
    return [check] if own != want else []


def _between_groups_check(
    op: Operation, t: Tensor, shapes: ShapeSources, axes: Axes, n: int
) -> list[ArgumentCheck]:
    """Return the size check of axis n of t, whose position depends on the ranks of groups."""
    i, place = axes[n], shapes.frame.position(axes, n)
    assert i is not None
    own, want = text(_shape_item(t.name, place)), text(shapes.size(i.extent))
    axis = f"axis {_position_in_message(place)} of {t.name}"
    message = f"index {i.name} has size {{{want}}} but {{{own}}} on {axis}"
    check = argument_check(op, f"{own} != {want}", message, subject=i.name, clause=TWO_SIZES)
    return [check] if own != want else []


def _prelude(shapes_of: Sequence[Line], checks: Sequence[ArgumentCheck]) -> ArgumentCheck:
    """Return the lines that compute the group shapes that the checks read."""
    read = (" ".join((*c.prepare, c.test, c.message)) for c in checks)
    words = {word for line in read for word in re.findall(r"\w+", line)}
    prepare: list[str] = []
    for line in reversed(shapes_of):
        if line.name in words:
            prepare.insert(0, f"{line.name} = {text(line.code)}")
            words |= set(names_in(line.code))
    return ArgumentCheck(prepare=tuple(prepare))


def _is_static(frame: Frame, axes: Axes, n: int) -> bool:
    """True if the axis has a static position, so that its size is checked already."""
    try:
        frame.position(axes, n)
    except NeedsFlatGroups:
        return False
    return True

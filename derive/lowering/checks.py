"""What the public function checks before it runs: rank, dtype, device and sizes of its inputs.

A message names the tensor, the axis and both sizes. Nothing here looks at the values of a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.algebra.expr import Const, Index
from derive.errors import LoweringError
from derive.lowering.code import Attribute, Binary, Code, Literal, Name, Shape, Subscript, text
from derive.lowering.resolve import Shapes, Source
from derive.lowering.value import Axes, Frame, NeedsFlatGroups, index_key
from derive.spec.operation import AxisOf, Extent, Operation, SizeOf, Tensor

__all__ = ["Check", "checks"]


@dataclass(frozen=True)
class Check:
    """``prepare``; if ``test``: raise ``error``(``message``); ``then``. Each part may be empty."""

    prepare: tuple[str, ...] = ()
    test: str = ""
    error: str = "ValueError"
    message: str = ""
    then: tuple[str, ...] = ()


def checks(op: Operation, frame: Frame) -> list[Check]:
    """All checks of op, in the order in which each may rely on the earlier ones."""
    required = [t for t in op.inputs if t.default is None]
    optional = [t for t in op.inputs if t.default is not None]
    result: list[Check] = []
    for t in required:
        result += _rank(op, t)
    for p in op.parameters:
        if isinstance(p, AxisOf):
            result += _axis(op, p)
    for p in op.parameters:
        if isinstance(p, SizeOf):
            result.append(
                Check((), f"{p.name} < 1", message=f"{op.name}: {p.name} must be positive, "
                      f"not {{{p.name}}}")
            )
    for t in optional:
        result.append(_fill(op, frame, t, required))
        result += _rank(op, t)
    result += _kinds(op)
    for extent in op.extents:
        if extent.group:
            continue
        result += _sizes(op, frame, extent)
    result += _groups(op, frame)
    return result


def _letters(t: Tensor) -> str:
    return ", ".join(
        ("*" if i.group else "") + i.name if isinstance(i, Index) else "( )" for i in t.axes
    )


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
    if before and after:
        return found
    place = f"{n}" if not before else f"{rank} - {len(home.axes) - n}"
    found.append(
        Check(
            (),
            f"{name} % {rank} != {place}",
            message=f"{op.name}: {name} must be the axis {p.index.name} of "
            f"{home.name}[{_letters(home)}], not {{{name}}}",
        )
    )
    return found


def _fill(op: Operation, frame: Frame, t: Tensor, required: Sequence[Tensor]) -> Check:
    """The constant that None stands for."""
    likes = [r for r in required if r.kind == "float"]
    if not likes:
        raise LoweringError(f"{t.name} is optional, but no required float tensor gives its dtype")
    shapes = _shapes(op, frame, required)
    shape = Shape(tuple(Name(index_key(i)) for i in t.axes if isinstance(i, Index)))
    try:
        code = shapes.resolve(shape)
    except (LoweringError, StopIteration) as error:
        raise LoweringError(
            f"{t.name} is optional, but no required tensor tells its shape: {error}"
        ) from None
    default = t.default
    if isinstance(default, Const):
        value = f"math.{default.name}"
    else:
        assert default is not None
        value = repr(int(default)) if default.denominator == 1 else repr(float(default))
    like = likes[0].name
    return Check(
        then=(f"if {t.name} is None:", f"    {t.name} = {like}.new_full({text(code)}, {value})")
    )


def _shapes(op: Operation, frame: Frame, tensors: Sequence[Tensor]) -> Shapes:
    sources = [
        Source(t.name, Attribute(Name(t.name), "shape"), _axes(t)) for t in tensors
    ]
    return Shapes({e.name: e for e in op.extents}, frame, sources)


def _axes(t: Tensor) -> Axes:
    return tuple(i if isinstance(i, Index) else None for i in t.axes)


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
    tensors = {t.name: t for t in op.inputs}
    places: list[tuple[str, Code]] = []
    for name, n in extent.sources:
        try:
            places.append((name, frame.position(_axes(tensors[name]), n)))
        except NeedsFlatGroups:
            # The shape of the whole tensor is compared instead.
            continue
    result: list[Check] = []
    letter = extent.name
    if extent.size is not None:
        size = text(_shapes(op, frame, op.inputs).size(extent.name))
        for name, place in places:
            code = _size(name, place)
            message = (
                f"{op.name}: axis {text(place)} of {name} has size {{{code}}}, "
                f"not the {{{size}}} that the operation asks for"
            )
            result.append(Check((), f"{code} != {size}", message=message))
        if not places and not isinstance(extent.size, Index) and "-" in size:
            message = f"{op.name}: no value of index {letter} keeps every access in bounds"
            result.append(Check((), f"{size} < 0", message=message))
        return result
    if not places:
        return []
    first, at = places[0]
    for name, place in places[1:]:
        one, other = _size(first, at), _size(name, place)
        message = (
            f"{op.name}: index {letter} has size {{{one}}} on axis {text(at)} of {first} "
            f"but {{{other}}} on axis {text(place)} of {name}"
        )
        result.append(Check((), f"{other} != {one}", message=message))
    return result


def _size(name: str, place: Code) -> str:
    return text(Subscript(Attribute(Name(name), "shape"), (place,)))


def _groups(op: Operation, frame: Frame) -> list[Check]:
    """A group has one shape: on each further tensor that has it, its slice is compared."""
    grouped = [
        t for t in op.inputs if any(isinstance(i, Index) and i.group for i in t.axes)
    ]
    result: list[Check] = []
    known: dict[str, Code] = {}
    prepared: list[str] = []
    for t in grouped:
        slices = _slices(op, frame, t, known, prepared)
        wanted: list[Code] = []
        for n, i in enumerate(t.axes):
            if isinstance(i, Index) and i.group:
                if i.extent in known:
                    wanted.append(known[i.extent])
                elif slices is not None:
                    known[i.extent] = slices[n]
                    wanted.append(slices[n])
                else:
                    raise LoweringError(
                        f"nothing tells how the axes of {t.name} split into [{_letters(t)}]"
                    )
            else:
                assert isinstance(i, Index)
                wanted.append(_one(op, frame, i))
        whole = wanted[0]
        for code in wanted[1:]:
            whole = Binary("+", whole, code)
        own = text(Attribute(Name(t.name), "shape"))
        if slices is not None and t is grouped[0]:
            continue
        name = f"{t.name}_expected"
        message = (
            f"{op.name}: {t.name}[{_letters(t)}] must have shape {{tuple({name})}}, "
            f"not {{tuple({own})}}"
        )
        result.append(
            Check((*prepared, f"{name} = {text(whole)}"), f"{own} != {name}", message=message)
        )
        prepared = []
    return result


def _one(op: Operation, frame: Frame, i: Index) -> Code:
    """The shape of one axis, as a tuple."""
    size = _shapes(op, frame, op.inputs).size(i.extent)
    return Literal(f"({text(size)},)")


def _slices(
    op: Operation, frame: Frame, t: Tensor, known: dict[str, Code], prepared: list[str]
) -> dict[int, Code] | None:
    """The slice of the shape of t for each of its groups, where its positions are known."""
    axes = _axes(t)
    shape = Attribute(Name(t.name), "shape")
    groups = [n for n, i in enumerate(axes) if i is not None and i.group]
    if len(groups) == 1:
        n = groups[0]
        after = len(axes) - n - 1
        if len(axes) == 1:
            return {n: shape}
        end = f"-{after}" if after else ""
        return {n: Subscript(shape, (Literal(f"{n or ''}:{end}"),))}
    for name, index, home in frame.named:
        if home == axes and len(groups) == 2:
            k = home.index(index)
            if groups != [k - 1, k + 1] or k != 1 or len(axes) != 3:
                return None
            axis = f"{name}_axis"
            prepared.append(f"{axis} = {name} % {t.name}.dim()")
            return {
                k - 1: Subscript(shape, (Literal(f":{axis}"),)),
                k + 1: Subscript(shape, (Literal(f"{axis} + 1 :"),)),
            }
    return None

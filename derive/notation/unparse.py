"""Unparse an operation to text that parses to the same operation."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import chain, combinations, islice

from derive.algebra.expr import Call, Composite, Expr, Index, Num, Reduce, Size, num, walk
from derive.algebra.substitution import replace_inside_out, substitution
from derive.errors import SpecError
from derive.notation.operation import (
    AxisOf,
    Choice,
    KeepDim,
    Number,
    Operation,
    Parameter,
    SizeOf,
    Tensor,
)
from derive.notation.shapes import shown
from derive.notation.syntax import STEM
from derive.notation.text_form import operation_of
from derive.show.formula import equation

_TRIES = 32
"""Maximum number of sets of explicit sizes that are tried."""
_Given = tuple[str, Expr]
_UNSAID = "# read back, this text gives an index another size"


def written(op: Operation) -> str:
    """Return the op line, then one equation a line.

    A size that does not follow from the equations is given on the op line. If the text still
    parses to another operation, its last line warns of it.
    """
    sizes = _explicit_sizes(op)
    sets = chain.from_iterable(combinations(sizes, n) for n in range(len(sizes) + 1))
    apart = _not_of_composites(op, sizes)
    # What is left follows from no other size.
    given = [(letter, size) for letter, size in apart if isinstance(size, Num | Size)]
    for said in (*islice(sets, _TRIES), given, apart):
        text = _unparse_text(op, dict(said))
        if _reads_as(text, op):
            return text
    return f"{_unparse_text(op, dict(sizes))}\n{_UNSAID}"


def _not_of_composites(op: Operation, sizes: Iterable[_Given]) -> list[_Given]:
    """Return the sizes but those that a composite (a b) on an axis n gives: n = a*b, a = n//b."""
    known = {e.name: e.size for e in op.extents}
    parts = {
        letter: size.args[0].extent
        for letter, size in known.items()
        if isinstance(size, Call) and isinstance(size.args[0], Size)
        if size.function == "floordiv"
        and Size(letter) in (known[size.args[0].extent] or size).parts()
    }
    return [(letter, size) for letter, size in sizes if letter not in {*parts, *parts.values()}]


def _explicit_sizes(op: Operation) -> list[_Given]:
    """Return (letter, size) for each letter whose size may have to be given."""
    given = {p.extent for p in op.parameters if isinstance(p, SizeOf)}
    known = {e.name: e.size for e in op.extents}
    written = [*(e for q in op.equations for e in (*q.axes, q.body))]
    written += [axis for t in op.inputs for axis in t.axes]
    found: dict[str, Expr] = {}
    for i in (i for e in written for i in walk(e) if isinstance(i, Index)):
        letter, size = _bare_letter(i), known[i.extent]
        if letter != i.extent:
            found[letter] = Size(i.extent)
        elif size is not None and letter not in given:
            found[letter] = size
    for letter in (s.extent for e in written for s in walk(e) if isinstance(s, Size)):
        size = known[letter]
        if size is not None and letter not in given:
            found.setdefault(letter, size)
    order = {e.name: n for n, e in enumerate(op.extents)}
    # Another letter of an extent follows it.
    return sorted(found.items(), key=lambda item: order.get(item[0], len(order)))


def _reads_as(text: str, op: Operation) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return same_operation(operation_of(text), op)
        except SpecError:
            return False


def same_operation(a: Operation, b: Operation) -> bool:
    """True if the operations are equal up to the names of bound indices."""
    return _operation_normal_form(a) == _operation_normal_form(b)


def _operation_normal_form(op: Operation) -> tuple[object, ...]:
    """Return a normal form of the operation: its sizes, in no order, are named by axes."""
    names = {e.name: "{}@{}".format(*min(e.sources)) if e.sources else e.name for e in op.extents}

    def sized(e: Expr) -> Expr:
        if isinstance(e, Index):
            return Index(e.name, names[e.extent], e.group)
        return Size(names[e.extent]) if isinstance(e, Size) else e

    called = partial(replace_inside_out, f=sized)

    def by_axes(axes: Iterable[Expr]) -> tuple[Expr, ...]:
        return tuple(map(called, axes))

    bodies = ((e, _renumbered(called(e.body), 0)) for e in op.equations)
    equations = [(e.name, by_axes(e.axes), e.kind, body) for e, body in bodies]
    tensors = [(t.name, t.kind, t.default, by_axes(t.axes)) for t in op.inputs]
    extents = {
        (names[e.name], e.group, *sorted(e.sources), None if e.size is None else called(e.size))
        for e in op.extents
    }
    parameters = [_renamed(p, names) for p in op.parameters]
    return op.name, tensors, parameters, equations, op.outputs, extents, op.stable


def _renamed(p: Parameter, names: Mapping[str, str]) -> Parameter:
    match p:
        case SizeOf():
            return replace(p, extent=names[p.extent])
        case AxisOf(index=i) | KeepDim(index=i):
            return replace(p, index=Index(i.name, names[i.extent], i.group))
    return p


def _renumbered(e: Expr, depth: int) -> Expr:
    """Rename bound indices by their depth."""
    if isinstance(e, Reduce):
        names = [Index(f"%{depth + n}", i.extent, i.group) for n, i in enumerate(e.indices)]
        e = e.map(substitution(dict(zip(e.indices, names, strict=True))))
        depth += len(names)
    result: Expr = e.map(lambda part: _renumbered(part, depth))
    return result


# The op line


def _unparse_text(op: Operation, said: Mapping[str, Expr]) -> str:
    units = unit_letters(op)
    said = {letter: size for letter, size in said.items() if letter not in units}
    inputs = ", ".join(_input_text(t, units) for t in op.inputs)
    options = [_parameter_text(p) for p in op.parameters] + ["stable"] * op.stable
    options += [f"size({letter})={shown(size)}" for letter, size in said.items()]
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    results = " | ".join(f"{o}: {n}" for o, n in choice.outputs) if choice else None
    after = "; " + ", ".join(options) if options else ""
    head = f"op {op.name}({inputs}{after}) -> {results or ', '.join(op.outputs)}"
    return "\n".join((head, *(e.text or equation(e.name, e.axes, e.body) for e in op.equations)))


def unit_letters(op: Operation) -> frozenset[str]:
    """Return the generated indices of axes that are written 0."""
    own = re.compile(rf"{STEM}\d*")
    ones = {e.name for e in op.extents if e.size is num(1) and own.fullmatch(e.name)}
    parts = (part for e in op.equations for x in (*e.axes, e.body) for part in walk(x))
    used = {x.extent for x in parts if isinstance(x, Index | Size)}
    return frozenset(ones - used)


def _input_text(t: Tensor, units: Collection[str] = ()) -> str:
    ones = {axis for axis in t.axes if isinstance(axis, Index) and axis.extent in units}
    shown_axes = ("0" if axis in ones else _axis_source(axis) for axis in t.axes)
    axes = f"[{', '.join(shown_axes)}]" if t.axes else ""
    kind = "" if t.kind == "float" else f": {t.kind}"
    return t.name + axes + kind + ("" if t.default is None else f"={_constant_source(t.default)}")


def _axis_source(e: Expr) -> str:
    if isinstance(e, Composite):
        return f"({' '.join(_axis_source(part) for part in e.args)})"
    if isinstance(e, Index):
        return ("*" if e.group else "") + _bare_letter(e)
    assert isinstance(e, Num)
    return str(e.value)


def _bare_letter(index: Index) -> str:
    return index.name.rstrip("'")


def _constant_source(value: Fraction | Expr) -> str:
    return shown(Num(value) if isinstance(value, Fraction) else value)


def _parameter_text(p: Parameter) -> str:
    match p:
        case Number(name, default, _, bounds):
            given = name if default is None else f"{name}={_constant_source(default)}"
            limits = (f"{name} {r} {_constant_source(value)}" for r, value in bounds)
            return ", ".join((given, *limits))
        case AxisOf(name, index, default):
            return f"{name}=axis({index.name}{_second(default)})"
        case KeepDim(name, index):
            return f"{name}=keep({_axis_source(index)})"
        case SizeOf(name, extent, default):
            return f"{name}=size({extent}{_second(default)})"
        case Choice(name, outputs):
            return f"{name}={'|'.join(option for option, _ in outputs)}"


def _second(default: int | None) -> str:
    return "" if default is None else f",{default}"

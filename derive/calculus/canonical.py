"""An operation under names that say nothing, and the way back.

Terms and factors are put in an order by their structure, names included. Under canonical names,
given by order of appearance, that order does not depend on what a person called things: renaming
an operation, its tensors or its letters renames its derivation and its code, and changes nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from derive.algebra.expr import Access, Expr, Index, Param, Size, walk
from derive.algebra.substitution import replace_inside_out
from derive.notation.operation import AxisOf, KeepDim, Operation, Parameter, SizeOf

__all__ = ["canonical", "renamed"]


def canonical(op: Operation) -> tuple[Operation, dict[str, str]]:
    """op under canonical names, and canonical name -> given name."""
    spoken: dict[str, str] = {}
    tensors = {
        name: f"t{n:03d}"
        for n, name in enumerate([t.name for t in op.inputs] + [e.name for e in op.equations])
    }
    parameters = {p.name: f"p{n:03d}" for n, p in enumerate(op.parameters)}
    indices: dict[str, str] = {}
    letters = 0
    extents = {e.name: f"e{n:03d}" for n, e in enumerate(op.extents)}
    for e in _expressions(op):
        for part in walk(e):
            if isinstance(part, Index) and part.name not in indices:
                # i' is i and a prime here too: what is made apart from i is apart from it.
                bare = part.name.rstrip("'")
                if bare not in indices:
                    indices[bare] = f"i{letters:03d}"
                    letters += 1
                indices[part.name] = indices[bare] + part.name[len(bare) :]
    for names in (tensors, parameters, indices, extents):
        spoken |= {new: old for old, new in names.items()}

    def rename(e: Expr) -> Expr:
        new = tensors.__getitem__, parameters.__getitem__, indices.__getitem__
        return _under(e, *new, lambda extent: extents.get(extent, extent))

    inputs = tuple(
        replace(t, name=tensors[t.name], axes=tuple(rename(i) for i in t.axes)) for t in op.inputs
    )
    equations = tuple(
        replace(
            e,
            name=tensors[e.name],
            axes=tuple(rename(i) for i in e.axes),
            body=rename(e.body),
        )
        for e in op.equations
    )
    new_extents = tuple(
        replace(
            e,
            name=extents[e.name],
            sources=tuple((tensors[name], n) for name, n in e.sources),
            size=None if e.size is None else rename(e.size),
        )
        for e in op.extents
    )
    made = Operation.resolved(
        op.name,
        inputs,
        tuple(_parameter(p, parameters, rename, extents) for p in op.parameters),
        equations,
        tuple(tensors[name] for name in op.outputs),
        new_extents,
        op.stable,
    )
    return made, spoken


def _expressions(op: Operation) -> Iterator[Expr]:
    for t in op.inputs:
        yield from t.axes
    for p in op.parameters:
        if isinstance(p, AxisOf | KeepDim):
            yield p.index
    for e in op.equations:
        yield from e.axes
        yield e.body
    for extent in op.extents:
        if extent.size is not None:
            yield extent.size


def _parameter(
    p: Parameter,
    names: dict[str, str],
    rename: Callable[[Expr], Expr],
    extents: dict[str, str],
) -> Parameter:
    if isinstance(p, AxisOf | KeepDim):
        index = rename(p.index)
        assert isinstance(index, Index)
        return replace(p, name=names[p.name], index=index)
    if isinstance(p, SizeOf):
        return replace(p, name=names[p.name], extent=extents[p.extent])
    return replace(p, name=names[p.name])


def renamed(e: Expr, say: Callable[[str], str]) -> Expr:
    """A nested expression with every name as ``say`` gives it."""
    return _under(e, say, say, say, say)


def _under(
    e: Expr,
    tensor: Callable[[str], str],
    parameter: Callable[[str], str],
    index: Callable[[str], str],
    extent: Callable[[str], str],
) -> Expr:
    """e under the names that these give for each sort of name."""

    def named(part: Expr) -> Expr:
        match part:
            case Index(name, size, group):
                return Index(index(name), extent(size), group)
            case Size(size):
                return Size(extent(size))
            case Param(name):
                return Param(parameter(name))
            case Access(name, positions):
                return Access(tensor(name), positions)
        return part

    return replace_inside_out(e, named)

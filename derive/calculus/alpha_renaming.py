"""Rename an operation to canonical names, and back.

Terms and factors are sorted by structure, names included. Canonical names follow the order of
appearance, so this order does not depend on the names a user chose. Renaming an operation, its
tensors or its letters therefore only renames its derivation and its code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from derive.algebra.expr import Access, Expr, Index, Param, Size, walk
from derive.algebra.substitution import replace_inside_out
from derive.notation.operation import AxisOf, Choice, KeepDim, Operation, Parameter, SizeOf


def canonical(op: Operation) -> tuple[Operation, dict[str, str]]:
    """op under canonical names, and canonical name -> given name."""
    display_names: dict[str, str] = {}
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
                # i' stays a primed i: an index made distinct from i remains distinct from it.
                bare = part.name.rstrip("'")
                if bare not in indices:
                    indices[bare] = f"i{letters:03d}"
                    letters += 1
                indices[part.name] = indices[bare] + part.name[len(bare) :]
    for names in (tensors, parameters, indices, extents):
        display_names |= {new: old for old, new in names.items()}

    return under_names(op, tensors | parameters, indices, extents), display_names


def under_names(
    op: Operation,
    names: Mapping[str, str],
    indices: Mapping[str, str] | None = None,
    extents: Mapping[str, str] | None = None,
) -> Operation:
    """op with its tensors, parameters, indices and extents renamed by these mappings."""

    def said(mapping: Mapping[str, str] | None) -> Callable[[str], str]:
        return lambda name: (mapping or {}).get(name, name)

    name, size = said(names), said(extents)

    def rename(e: Expr) -> Expr:
        return _map_names(e, name, name, said(indices), size)

    def axes(every: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(rename, every))

    return Operation.resolved(
        op.name,
        tuple(replace(t, name=name(t.name), axes=axes(t.axes)) for t in op.inputs),
        tuple(_renamed_parameter(p, name, rename, size) for p in op.parameters),
        tuple(
            replace(e, name=name(e.name), axes=axes(e.axes), body=rename(e.body))
            for e in op.equations
        ),
        tuple(map(name, op.outputs)),
        tuple(
            replace(
                e,
                name=size(e.name),
                sources=tuple((name(tensor), n) for tensor, n in e.sources),
                size=None if e.size is None else rename(e.size),
            )
            for e in op.extents
        ),
        op.stable,
    )


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


def _renamed_parameter(
    p: Parameter,
    name: Callable[[str], str],
    rename: Callable[[Expr], Expr],
    size: Callable[[str], str],
) -> Parameter:
    if isinstance(p, AxisOf | KeepDim):
        index = rename(p.index)
        assert isinstance(index, Index)
        return replace(p, name=name(p.name), index=index)
    if isinstance(p, SizeOf):
        return replace(p, name=name(p.name), extent=size(p.extent))
    if isinstance(p, Choice):
        outputs = tuple((option, name(output)) for option, output in p.outputs)
        return replace(p, name=name(p.name), outputs=outputs)
    return replace(p, name=name(p.name))


def renamed(e: Expr, display_name: Callable[[str], str]) -> Expr:
    """A nested expression with every name mapped by ``display_name``."""
    return _map_names(e, display_name, display_name, display_name, display_name)


def _map_names(
    e: Expr,
    tensor: Callable[[str], str],
    parameter: Callable[[str], str],
    index: Callable[[str], str],
    extent: Callable[[str], str],
) -> Expr:
    """e with each sort of name mapped by its own function."""

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

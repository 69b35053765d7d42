"""Outputs that alias nothing else, so that each may be changed in place.

    a view of a local tensor                 _no_view(view), a tensor of its own; nothing is copied
    a view of an input or of another output  view.clone()

Autograd forbids in-place changes of a view returned by a Function. It also gives a gradient the
strides of its output: those of overlapping windows would silently make it wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.program.cse import Line
from derive.program.torch_ir import (
    Attribute,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    MethodCall,
    Name,
    Subscript,
    text,
)
from derive.program.torch_ops import torch_op


@dataclass(frozen=True)
class AliasSet:
    """The owners of the memory of a value, and the kind of alias."""

    owners: frozenset[str | int]
    view: bool = False
    overlaps: bool = False
    several: bool = False
    """The value is a tuple of tensors, none of which is a view."""


def unalias_outputs(
    lines: Sequence[Line], outputs: Collection[str], inputs: Iterable[str]
) -> list[Line]:
    """Return the lines with each output, at its last line, a tensor that is not a view."""
    known = {name: AliasSet(frozenset({name})) for name in inputs}
    claimed: set[str | int] = set(known)
    last = {line.name: n for n, line in enumerate(lines)}
    result = []
    for n, line in enumerate(lines):
        code = line.code
        if line.name in outputs and last[line.name] == n:
            code, owners = _own_tensor(code, known, claimed, n)
            known[line.name] = AliasSet(owners)
            claimed |= owners
        else:
            known[line.name] = memory(code, known, n)
        result.append(replace(line, code=code))
    return result


def copy_aliases(
    lines: Sequence[Line], results: Mapping[str, Code], given: Collection[str]
) -> dict[str, Code]:
    """Return the results, copied if they alias each other or an argument in ``given``.

    Views of local tensors stay: outside autograd they may be changed in place.
    """
    known = {name: AliasSet(frozenset({name})) for name in given}
    for n, line in enumerate(lines):
        known[line.name] = memory(line.code, known, n)
    claimed: set[str | int] = set(given)
    made = {}
    for n, (name, code) in enumerate(results.items(), len(lines)):
        owners = memory(code, known, n).owners
        made[name] = MethodCall(code, "clone") if owners & claimed else code
        claimed |= owners
    return made


def is_rearrangement(
    lines: Sequence[Line], outputs: Collection[str], inputs: Iterable[str]
) -> bool:
    """True if all outputs are views of inputs, which torch's autograd tracks itself."""
    known = {name: AliasSet(frozenset({name})) for name in inputs}
    given = frozenset(known)
    for n, line in enumerate(lines):
        known[line.name] = memory(line.code, known, n)
    return all(known[name].view and known[name].owners <= given for name in outputs)


def _own_tensor(
    code: Code, known: dict[str, AliasSet], claimed: set[str | int], n: int
) -> tuple[Code, frozenset[str | int]]:
    """Return the code as a tensor of its own, and the owners of its memory."""
    if isinstance(code, Conditional):
        then, one = _own_tensor(code.then, known, claimed, n)
        other, two = _own_tensor(code.other, known, claimed, n)
        return Conditional(code.test, then, other), one | two
    found = memory(code, known, n)
    if found.overlaps or found.owners & claimed:
        return MethodCall(code, "clone"), frozenset({n})
    return FunctionCall("_no_view", (code,)) if found.view else code, found.owners


def memory(code: Code, known: dict[str, AliasSet], n: int) -> AliasSet:
    """Return the owners of the memory of the code, computed at line n."""
    match code:
        case Name(name) if name in known:
            return known[name]
        case Conditional(_, then, other):
            one, two = memory(then, known, n), memory(other, known, n)
            overlaps = one.overlaps or two.overlaps
            return AliasSet(one.owners | two.owners, one.view or two.view, overlaps)
        case MethodCall(obj, "to"):
            return memory(obj, known, n)
        case FunctionCall("_no_view", (shown,)):
            return replace(memory(shown, known, n), view=False)
        case _ if (written := _written_to(code)) is not None:
            return AliasSet(frozenset({n}), view=memory(written, known, n).view)
        case Attribute(obj, "mT" | "T") | Subscript(obj):
            inside = memory(obj, known, n)
            if inside.several:
                return AliasSet(frozenset({n, text(code)}))
            return replace(inside, view=True)
    op = torch_op(code)
    if op.several:
        return AliasSet(frozenset({n}), several=True)
    if op.view:
        inside = memory(code.parts()[0], known, n)
        return replace(inside, view=True, overlaps=inside.overlaps or op.overlaps)
    return AliasSet(frozenset({n}), view=op.ends_in_view)


def _written_to(code: Code) -> Code | None:
    """Return the operand that the code overwrites with its result, else None."""
    match code:
        case MethodCall(obj, name) if name.endswith("_"):
            return obj
        case FunctionCall(name, (first, *_)) if name.startswith("_") and name.endswith("_"):
            return first
        case FunctionCall(_, args):
            named = (a for a in args if isinstance(a, Keyword) and a.name in _RESULTS)
            return next((a.value for a in named), None)
    return None


_RESULTS = ("out", "grad_input")

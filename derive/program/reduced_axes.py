"""Reductions that keep their axes where each reader broadcasts them again.

mu = x.mean(1); x - mu.unsqueeze(1)        mu = x.mean(1, keepdim=True); x - mu
(x.sum(1) / n).unsqueeze(1)                x.sum(1, keepdim=True) / n
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from derive.program.cse import Line
from derive.program.torch_ir import (
    Binary,
    Code,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Tuple,
    Unary,
    names_in,
    replaced,
    text,
    values_in,
)
from derive.program.torch_ops import torch_op

_Views = tuple[Code, ...]
"""Positions of axes of size 1, in the order in which they are inserted; a group has a name."""

_KEEPS = Keyword("keepdim", Literal("True"))


def with_kept_axes(
    lines: Sequence[Line], results: Collection[str], numbers: Collection[str]
) -> list[Line]:
    """Return the lines with reductions that keep their axes, if all readers insert them.

    ``numbers`` are the names of numbers. The values of ``results`` keep their shapes.
    """
    names = {line.name for line in lines} - set(results)
    while True:
        made, kept = _with_axes_of(lines, names, numbers)
        if kept == names:
            return [line.having(_hoisted(line.code, numbers)) for line in made]
        names = kept


def _with_axes_of(
    lines: Sequence[Line], names: Collection[str], numbers: Collection[str]
) -> tuple[list[Line], set[str]]:
    """Return the lines with the axes of these names kept where possible, and for which it is."""
    inside = _Inside(names, numbers)
    made = [line.having(inside.sunk(line.code)) for line in lines]
    counted = [line.name for line in lines]
    found = set[str]()
    for n in reversed(range(len(made))):
        name = made[n].name
        if name not in names or counted.count(name) > 1:
            continue
        views = _common_views(name, [line.code for line in made])
        kept = inside.absorbed(made[n].code, views) if views else None
        if kept is not None:
            found.add(name)
            made[n] = replace(made[n], code=kept, type=None)
            whole = {_viewed(Name(name), views): Name(name)}
            made = [line.having(replaced(line.code, whole)) for line in made]
    return made, found


def _hoisted(code: Code, numbers: Collection[str]) -> Code:
    """Return the code with axes inserted once where all operands of arithmetic insert the same."""
    if not _has_insertions(code):
        return code
    inside: Code = code.map(lambda part: _hoisted(part, numbers))
    match inside:
        case Binary(op, a, b) if op in _ELEMENTWISE:
            (x, left), (y, right) = _views_of(a), _views_of(b)
            if left == right and not any(isinstance(_place(v), int) for v in left):
                # A position from the start is another one in a tensor with fewer axes.
                return _viewed(Binary(op, x, y), left)
            if left and _are_numbers((b,), numbers):
                return _viewed(Binary(op, x, y), left)
            if right and _are_numbers((a,), numbers):
                return _viewed(Binary(op, x, y), right)
        case Unary("-", a):
            x, views = _views_of(a)
            return _viewed(Unary("-", x), views)
    return inside


def _views_of(code: Code) -> tuple[Code, _Views]:
    """Return the code without insertions of axes, and these, the first one first."""
    views: list[Code] = []
    while True:
        match code:
            case MethodCall(inner, "unsqueeze", (at,)) | FunctionCall("rt.unsqueeze", (inner, at)):
                code = inner
                views.insert(0, at)
            case _:
                return code, tuple(views)


@lru_cache(maxsize=2**13)
def _has_insertions(code: Code) -> bool:
    """True if axes are inserted anywhere inside of the code."""
    return bool(_views_of(code)[1]) or any(map(_has_insertions, code.parts()))


def _viewed(code: Code, views: _Views) -> Code:
    """Return the code with these axes inserted."""
    for view in views:
        if isinstance(view, Name) and view.id.endswith("_axes"):
            code = FunctionCall("rt.unsqueeze", (code, view))
        else:
            code = MethodCall(code, "unsqueeze", (view,))
    return code


def _common_views(name: str, codes: Sequence[Code]) -> _Views:
    """Return the axes that each reader of a name inserts, none if one reads it otherwise."""
    readers = (code for code in codes if name in names_in(code))
    views = {views for code in readers for views in _reads(name, code)}
    return views.pop() if len(views) == 1 else ()


def _reads(name: str, code: Code) -> Iterator[_Views]:
    """Yield the axes that are inserted at each read of a name."""
    inner, views = _views_of(code)
    if isinstance(inner, Name):
        if inner.id == name:
            yield views
        return
    for part in inner.parts():
        yield from _reads(name, part)


@dataclass(frozen=True)
class _Inside:
    """Insertions of axes, moved to reductions and to these names."""

    names: Collection[str]
    numbers: Collection[str]

    def sunk(self, code: Code) -> Code:
        """Return the code with insertions of axes moved inside, where they can be."""
        if not _has_insertions(code):
            return code
        inner, views = _views_of(code)
        if views and not isinstance(inner, Name):
            kept = self.absorbed(inner, views)
            if kept is not None:
                return self.sunk(kept)
        each: Code = code.map(self.sunk)
        return each

    def absorbed(self, code: Code, views: _Views) -> Code | None:
        """Return the code with axes inserted inside of it, by reductions that keep theirs."""

        def of_numbers(*codes: Code) -> bool:
            return _are_numbers(codes, self.numbers)

        match code:
            case Name(name):
                return _viewed(code, views) if name in self.names else None
            case MethodCall(x, name, (dims,)) if _keeps(code, dims, views):
                return MethodCall(x, name, (dims, _KEEPS))
            case FunctionCall(name, (x, dims)) if _keeps(code, dims, views):
                return FunctionCall(name, (x, dims, _KEEPS))
            case MethodCall(x, "squeeze", (place,)) if views == (place,):
                return x
            case Unary("-", x):
                inner = self.absorbed(x, views)
                return None if inner is None else Unary("-", inner)
            case MethodCall(x, name, args) if _is_elementwise(code) and of_numbers(*args):
                inner = self.absorbed(x, views)
                return None if inner is None else MethodCall(inner, name, args)
            case Binary(op, a, b) if op in _ELEMENTWISE and of_numbers(b):
                inner = self.absorbed(a, views)
                return None if inner is None else Binary(op, inner, b)
            case Binary(op, a, b) if op in _ELEMENTWISE and of_numbers(a):
                inner = self.absorbed(b, views)
                return None if inner is None else Binary(op, a, inner)
        return None


def _are_numbers(codes: Sequence[Code], numbers: Collection[str]) -> bool:
    """True if the codes read no tensor but its shape."""
    read = (name for code in codes for name in values_in(code))
    return all(name in numbers or name.endswith("_shape") for name in read)


_ELEMENTWISE = ("+", "-", "*", "/", "**", "<", "<=", ">", ">=", "==", "!=")


def _is_elementwise(code: Code) -> bool:
    """True for a call that maps each element."""
    op = torch_op(code)
    return op.shape is None and not (op.view or op.keeps or op.contracts or op.makes)


def _keeps(code: Code, dims: Code, views: _Views) -> bool:
    """True for a reduction that can keep its axes, and has those of the views then."""
    return torch_op(code).keeps and _inserts(dims, views)


def _inserts(dims: Code, views: _Views) -> bool:
    """True if the views insert the reduced axes again, and no others.

    >>> _inserts(Tuple((Literal("1"), Literal("2"))), (Literal("1"), Literal("2")))
    True
    >>> _inserts(Tuple((Literal("0"), Literal("2"))), (Literal("1"),))
    False
    """
    reduced = list(dims.items) if isinstance(dims, Tuple) else [dims]
    places = [_place(d) for d in reduced]
    inserted = [_place(v) for v in views]
    if len(reduced) == 1 and not isinstance(places[0], int):
        return places == inserted
    ends = [p for p in places if not isinstance(p, int)]
    singles = [p for p in places if isinstance(p, int)]
    if ends != [v for v in inserted if not isinstance(v, int)] or ends != places[len(singles) :]:
        return False
    return _same_axes(singles, [v for v in inserted if isinstance(v, int)])


def _place(code: Code) -> int | str:
    """Return a position from the start as a number, another one or a group as text."""
    words = text(code).lstrip("*")
    return int(words) if words.isdigit() else words


def _same_axes(singles: Sequence[int], inserted: Sequence[int]) -> bool:
    """True if keeping the axes ``singles`` gives the axes that the insertions give.

    The axes after the last reduced one are one item. An axis of size 1 in front is one of them:
    what reads the value may not broadcast.
    """
    last = max(singles, default=-1)
    kept = ["1" if n in singles else str(n) + "k" for n in range(last + 1)]
    made = [item for item in kept if item != "1"]
    kept, made = [*kept, "rest"], [*made, "rest"]
    for place in inserted:
        if place > len(made) - 1:
            return False
        made.insert(place, "1")
    return kept == made

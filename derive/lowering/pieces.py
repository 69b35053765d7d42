"""Brackets that cut the range of an index: one piece after the other.

    [m < s] f(m) + [not m < s] g(m)  =  torch.cat((f, g), axis)
    [m < s] f(m)                     =  f, then zeros

where s is certain to lie in the range and each piece has the size of an index. Whatever is cut
otherwise is left to masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from derive.algebra.expr import (
    Access,
    Add,
    And,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Rel,
    Size,
    free_indices,
    num,
    walk,
)
from derive.algebra.substitution import substitute
from derive.calculus.bounds import Bounds
from derive.calculus.conditions import conditions_of, settled
from derive.calculus.ranges import part_of_range
from derive.lowering.code import Code, Function, Tuple
from derive.lowering.scope import Scope, common_kind
from derive.lowering.value import NeedsFlatGroups, Value
from derive.lowering.windows import Window, number_of, padded, window
from derive.notation.affine import Polynomial

__all__ = ["cut_in_pieces", "narrowed", "zero_outside"]

_ZERO = Polynomial({})
_ONE = Polynomial.of(1)

_Edge = tuple[bool, Polynomial]


@dataclass(frozen=True)
class _Piece:
    """What the expression is from start to stop, as an expression in an index of its own."""

    start: Polynomial
    stop: Polynomial
    index: Index
    body: Expr


def cut_in_pieces(
    scope: Scope, addends: Sequence[Expr], order: Sequence[Index]
) -> tuple[Value, list[Expr]] | None:
    """The addends that brackets cut along one index, piece by piece, and the other addends.

    None where no index of the order is cut at places that are certain to follow each other.
    """
    if not any(isinstance(b, Iverson) for a in addends for b in _factors(a)):
        return None
    for i in order:
        chosen = [a for a in addends if any(_is_cut(scope.frame.bounds, b, i) for b in _factors(a))]
        if i.group or not chosen or any(isinstance(x, Delta) for a in chosen for x in walk(a)):
            continue
        whole = chosen[0] if len(chosen) == 1 else Add(tuple(chosen))
        for deep in (True, False):
            pieces = _pieces(scope.frame.bounds, whole, i, _brackets(whole, deep))
            if pieces is not None:
                value = _joined(scope, pieces, i, order)
                if value is not None:
                    return value, [a for a in addends if a not in chosen]
    return None


def _factors(e: Expr) -> tuple[Expr, ...]:
    return e.args if isinstance(e, Mul) else (e,)


def _brackets(e: Expr, deep: bool) -> Iterator[Iverson]:
    """The brackets of addends; ``deep`` those of sums in them too."""
    for a in e.args if isinstance(e, Add) else (e,):
        for f in _factors(a):
            if isinstance(f, Iverson):
                yield f
            elif deep and isinstance(f, Add):
                yield from _brackets(f, deep)


def _is_cut(bounds: Bounds, e: Expr, i: Index) -> bool:
    return (
        isinstance(e, Iverson)
        and free_indices(e) == {i}
        and any(bounds.edge(r, i) is not None for r in walk(e) if isinstance(r, Rel))
    )


def _pieces(bounds: Bounds, e: Expr, i: Index, brackets: Iterator[Iverson]) -> list[_Piece] | None:
    """e from one edge of the brackets to the next, where it is not 0."""
    edges: dict[Rel, _Edge] = {}
    for b in brackets:
        if free_indices(b) == {i}:
            for r in walk(b):
                edge = bounds.edge(r, i) if isinstance(r, Rel) else None
                if isinstance(r, Rel) and edge is not None:
                    edges[r] = edge
    places = _in_turn(bounds, i.extent, [b for _, b in edges.values()])
    if places is None:
        return None
    pieces: list[_Piece] = []
    for n, start in enumerate(places[:-1]):
        stop = places[n + 1]
        known = {r: _side(bounds, edge, start, stop) for r, edge in edges.items()}
        body = _within(e, known)
        if None in known.values() or body is e:
            return None
        if body is num(0):
            continue
        extents = [i.extent] if len(places) == 2 else bounds.extents_of(stop - start)
        if not extents:
            return None
        new = Index(i.name, extents[0])
        moved = substitute(body, {i: (Polynomial.of(new) + start).expr()})
        pieces.append(_Piece(start, stop, new, settled(bounds, moved)))
    return pieces


def _in_turn(bounds: Bounds, extent: str, places: Sequence[Polynomial]) -> list[Polynomial] | None:
    """0, the places that cut the range of the extent, and its size, if their order is certain."""
    size = bounds.size(extent)
    left = [
        p
        for p in dict.fromkeys(places)
        if not bounds.at_most(p, _ZERO) and not bounds.at_most(size, p)
    ]
    result = [_ZERO]
    while left:
        first = next((p for p in left if all(bounds.at_most(p, o) for o in left)), None)
        if first is None or not bounds.at_most(_ZERO, first) or not bounds.at_most(first, size):
            return None
        result.append(first)
        left.remove(first)
    return [*result, size]


def _side(bounds: Bounds, edge: _Edge, start: Polynomial, stop: Polynomial) -> bool | None:
    """Whether the relation of this edge holds from start to stop."""
    lower, place = edge
    if bounds.at_most(place, start):
        return lower
    return not lower if bounds.at_most(stop, place) else None


def _within(e: Expr, known: Mapping[Rel, bool | None]) -> Expr:
    """e where the relations are known, brackets taken out."""
    if isinstance(e, Iverson):
        left = [c for c in conditions_of(e.condition) if _truth(c, known) is not True]
        if any(_truth(c, known) is False for c in left):
            return num(0)
        return Iverson(left[0] if len(left) == 1 else And(tuple(left))) if left else num(1)
    if isinstance(e, Mul):
        args = [a for a in (_within(a, known) for a in e.args) if a is not num(1)]
        if num(0) in args:
            return num(0)
        return (args[0] if len(args) == 1 else Mul(tuple(args))) if args else num(1)
    if isinstance(e, Add):
        args = [a for a in (_within(a, known) for a in e.args) if a is not num(0)]
        return (args[0] if len(args) == 1 else Add(tuple(args))) if args else num(0)
    return e


def _truth(c: Expr, known: Mapping[Rel, bool | None]) -> bool | None:
    match c:
        case Rel():
            return known.get(c)
        case Not(arg):
            inner = _truth(arg, known)
            return None if inner is None else not inner
        case And(args) | Or(args):
            absorbing = isinstance(c, Or)
            found = [_truth(a, known) for a in args]
            if absorbing in found:
                return absorbing
            return None if None in found else not absorbing
    return None


def _joined(
    scope: Scope, pieces: Sequence[_Piece], i: Index, order: Sequence[Index]
) -> Value | None:
    """The pieces in their places, zeros between them."""
    if not pieces or all(not any(isinstance(x, Access) for x in walk(p.body)) for p in pieces):
        return None
    used = frozenset().union(*(free_indices(p.body) - {p.index} for p in pieces))
    target = [j for j in order if j in used or j is i]
    n, bounds = target.index(i), scope.frame.bounds
    try:
        place = scope.frame.position(tuple(target), n)
    except NeedsFlatGroups:
        return None
    values = []
    for p in pieces:
        own = [p.index if j is i else j for j in target]
        values.append((scope.lower(p.body, own), own))
    kind = common_kind([v for v, _ in values])
    made: list[Value] = []
    reached = _ZERO
    for (value, own), p in zip(values, pieces, strict=True):
        if kind != "int":
            value = scope.as_float(value)
        value = scope.frame.expand(value, own, scope.like)
        end = p.stop if p is not pieces[-1] else bounds.size(i.extent)
        before, after = (number_of(scope, f) for f in (p.start - reached, end - p.stop))
        made.append(padded(scope, value, n, before, after))
        reached = p.stop
    code: Code = made[0].code
    if len(made) > 1:
        code = Function("torch.cat", (Tuple(tuple(v.code for v in made)), place))
    return Value(code, tuple(target), "int" if kind == "int" else "float")


def zero_outside(scope: Scope, args: Sequence[Expr]) -> list[Expr] | None:
    """The factors without the brackets outside of which the one tensor among them reads zeros.

    None where there is no such bracket.
    """
    rest = [a for a in args if not isinstance(a, Iverson | Num | Size)]
    if len(rest) != 1 or not isinstance(rest[0], Access) or len(rest) == len(args):
        return None
    brackets = [c for a in args if isinstance(a, Iverson) for c in conditions_of(a.condition)]
    left, positions = brackets, rest[0].positions
    axes = [a for a in scope.tensor(rest[0].tensor).axes if a is not None]
    for p, axis in zip(positions, axes, strict=True):
        w = window(scope.frame.bounds, p.position) if isinstance(p, Guard) else None
        if w is None or abs(w.step) != 1 or sum(w.index in free_indices(q) for q in positions) > 1:
            continue
        if not axis.group:
            left = [c for c in left if not _is_outside(scope.frame.bounds, c, w, axis)]
    if len(left) == len(brackets):
        return None
    return [*map(Iverson, left), *(a for a in args if not isinstance(a, Iverson))]


def _is_outside(bounds: Bounds, c: Expr, w: Window, axis: Index) -> bool:
    """Whether the window leaves the axis wherever this condition does not hold."""
    edge = bounds.edge(c, w.index)
    if edge is None or free_indices(c) != {w.index}:
        return False
    lower, place = edge
    # The last position that is left out, on the side of the edge.
    first_out = place - _ONE if lower else place
    at = w.start + first_out * Polynomial({(): Fraction(w.step)})
    below = lower == (w.step > 0)
    return (
        bounds.at_most(at + _ONE, _ZERO) if below else bounds.at_most(bounds.size(axis.extent), at)
    )


def narrowed(
    scope: Scope, binders: Sequence[Index], args: Sequence[Expr]
) -> tuple[list[Index], list[Expr]]:
    """Sum over binders of a product, each over what brackets leave of its range."""
    bounds, factors = scope.frame.bounds, list(args)
    result: list[Index] = []
    for b in binders:
        found = part_of_range(bounds, factors, b)
        if found is None:
            result.append(b)
            continue
        index, start, rest = found
        if not any(b in free_indices(a) for a in rest if not isinstance(a, Iverson)):
            result.append(b)
            continue
        shifted = (Polynomial.of(index) + start).expr()
        factors = [settled(bounds, substitute(a, {b: shifted})) for a in rest]
        result.append(index)
    return result, factors

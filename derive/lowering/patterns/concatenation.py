"""Brackets that cut the range of an index: one piece after the other.

    [m < s] f(m) + [not m < s] g(m)  =  torch.cat((f, g), axis)
    [m < s] f(m)                     =  f, then zeros

This needs s to be certainly in the range, and each piece to have the size of an index. All other
cuts are left to masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Access,
    Add,
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
    accesses,
    factors_of,
    free_indices,
    is_number,
    num,
    product_of,
    sum_of,
    walk,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction, negate, truth
from derive.algebra.substitution import fresh, substitute
from derive.calculus.guards import simplify_guards
from derive.calculus.lets import layout
from derive.calculus.reindexing import part_of_range
from derive.kernels.kernel_spec import AttentionResult, KernelResult
from derive.lowering.ground.context import Scope, common_kind
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Added, Indices, NeedsFlatGroups, Value
from derive.lowering.ground.windows import (
    ONE,
    ZERO,
    Window,
    affine_window,
    along,
    number_of,
    zero_padded,
)
from derive.lowering.patterns.branches import complements
from derive.notation.operation import Kind
from derive.program.torch_ir import Code, FunctionCall, Tuple

_Edge = tuple[bool, Polynomial]


@dataclass(frozen=True)
class _Piece:
    """The expression from start to stop, in an index of its own."""

    start: Polynomial
    stop: Polynomial
    index: Index
    body: Expr


def product_in_pieces(scope: Scope, factors: Sequence[Expr], order: Indices) -> Value | None:
    """[m < s] f(m) = cat(f, 0)[m]."""
    cut = addends_in_pieces(scope, (Mul(tuple(factors)),), order)
    return None if cut is None else cut[0]


def addends_in_pieces(scope: Scope, addends: Sequence[Expr], order: Indices) -> Added | None:
    """[m < s] f(m) + [not m < s] g(m) = cat(f, g)[m].

    None if no index of the order is cut at places whose order is certain.
    """
    if not any(isinstance(b, Iverson) for a in addends for b in factors_of(a)):
        return None
    for i in order:
        chosen = [a for a in addends if _is_cut(scope.frame.bounds, a, i)]
        if i.group or not chosen or any(isinstance(x, Delta) for a in chosen for x in walk(a)):
            continue
        whole = sum_of(chosen)
        for deep in (True, False):
            pieces = _pieces(scope.frame.bounds, whole, i, _nested_brackets(whole, deep))
            if pieces is not None:
                value = _concatenate_pieces(scope, pieces, i, order)
                if value is not None:
                    return value, [a for a in addends if a not in chosen]
    return None


def _nested_brackets(e: Expr, deep: bool) -> Iterator[Iverson]:
    """Yield the brackets of addends; with ``deep`` also those of nested sums."""
    for a in e.args if isinstance(e, Add) else (e,):
        for f in factors_of(a):
            if isinstance(f, Iverson):
                yield f
            elif deep and isinstance(f, Add):
                yield from _nested_brackets(f, deep)


def _is_cut(bounds: Bounds, e: Expr, i: Index) -> bool:
    """True if a bracket of the addend has an edge along this index."""
    brackets = [f for f in factors_of(e) if isinstance(f, Iverson) and free_indices(f) == {i}]
    relations = (r for b in brackets for r in walk(b) if isinstance(r, Rel))
    return any(bounds.edge(r, i) is not None for r in relations)


def _pieces(bounds: Bounds, e: Expr, i: Index, brackets: Iterator[Iverson]) -> list[_Piece] | None:
    """Cut e at the edges of the brackets; pieces that are 0 are dropped."""
    edges: dict[Expr, _Edge] = {}
    for b in brackets:
        if free_indices(b) == {i}:
            for r in walk(b):
                edge = bounds.edge(r, i) if isinstance(r, Rel) else None
                if edge is not None:
                    edges[r] = edge
    places = _ordered_cuts(bounds, i.extent, [b for _, b in edges.values()])
    if places is None:
        return None
    pieces: list[_Piece] = []
    for n, start in enumerate(places[:-1]):
        stop = places[n + 1]
        known = {r: _edge_truth(bounds, edge, start, stop) for r, edge in edges.items()}
        body = _substitute_relations(e, known)
        if None in known.values() or body is e:
            return None
        if body is num(0):
            continue
        extents = [i.extent] if len(places) == 2 else bounds.extents_of(stop - start)
        if not extents:
            return None
        new = Index(i.name, extents[0])
        moved = substitute(body, {i: (Polynomial.of(new) + start).expr()})
        pieces.append(_Piece(start, stop, new, simplify_guards(bounds, moved)))
    # One call returns all rows, so it cannot be cut.
    return None if any(isinstance(x, KernelResult | AttentionResult) for x in walk(e)) else pieces


def _ordered_cuts(
    bounds: Bounds, extent: str, places: Sequence[Polynomial]
) -> list[Polynomial] | None:
    """Return 0, the cuts of the extent's range, and its size, if their order is certain."""
    size = bounds.size(extent)
    inside = (p for p in dict.fromkeys(places) if not bounds.at_most(p, ZERO))
    left = [p for p in inside if not bounds.at_most(size, p)]
    result = [ZERO]
    while left:
        first = next((p for p in left if all(bounds.at_most(p, o) for o in left)), None)
        if first is None or not bounds.at_most(ZERO, first) or not bounds.at_most(first, size):
            return None
        result.append(first)
        left.remove(first)
    return [*result, size]


def _edge_truth(bounds: Bounds, edge: _Edge, start: Polynomial, stop: Polynomial) -> bool | None:
    """Return the truth of the relation with this edge from start to stop; None if unknown."""
    lower, place = edge
    if bounds.at_most(place, start):
        return lower
    return not lower if bounds.at_most(stop, place) else None


def _substitute_relations(e: Expr, known: Mapping[Expr, bool | None]) -> Expr:
    """Return e with the known relations substituted and their brackets removed."""
    if isinstance(e, Iverson):
        found = {c: truth(c, known.get) for c in conditions_of(e.condition)}
        if False in found.values():
            return num(0)
        left = [c for c, holds in found.items() if not holds]
        return Iverson(conjunction(left)) if left else num(1)
    if isinstance(e, Mul):
        factors = [a for a in (_substitute_relations(a, known) for a in e.args) if a is not num(1)]
        return num(0) if num(0) in factors else product_of(factors)
    if isinstance(e, Add):
        addends = (_substitute_relations(a, known) for a in e.args)
        return sum_of([a for a in addends if a is not num(0)])
    return e


def _concatenate_pieces(
    scope: Scope, pieces: Sequence[_Piece], i: Index, order: Indices
) -> Value | None:
    """Concatenate the pieces, with zeros between them."""
    if not any(any(accesses(p.body)) for p in pieces):
        return None
    used = frozenset().union(*(free_indices(p.body) - {p.index} for p in pieces))
    target = tuple(j for j in order if j in used or j is i)
    n, bounds = target.index(i), scope.frame.bounds
    try:
        place = scope.frame.position(target, n)
    except NeedsFlatGroups:
        return None
    layouts = [[p.index if j is i else j for j in target] for p in pieces]
    values = [scope.lower(p.body, own) for p, own in zip(pieces, layouts, strict=True)]
    kind: Kind = "int" if common_kind(values) == "int" else "float"
    made: list[Code] = []
    ends = [ZERO, *(p.stop for p in pieces[:-1]), bounds.size(i.extent)]
    for m, (p, value, own) in enumerate(zip(pieces, values, layouts, strict=True)):
        value = value if kind == "int" else scope.as_float(value)
        value = scope.frame.expand(value, own, scope.like)
        stop = ends[m + 1]
        before, after = (number_of(scope, f) for f in (p.start - ends[m], stop - p.stop))
        made.append(zero_padded(scope, value, n, before, after).code)
    code = made[0] if len(made) == 1 else FunctionCall("torch.cat", (Tuple(tuple(made)), place))
    return Value(code, target, kind)


def zero_outside(scope: Scope, factors: Sequence[Expr], order: Indices) -> Value | None:
    """[0 <= e < size] X[e if 0 <= e < size] = padded X[e]."""
    rest = [a for a in factors if not isinstance(a, Iverson | Num | Size)]
    if len(rest) != 1 or not isinstance(rest[0], Access) or len(rest) == len(factors):
        return None
    brackets = [a for a in factors if isinstance(a, Iverson)]
    conditions = left = [c for a in brackets for c in conditions_of(a.condition)]
    for w, axis in _guarded_windows(scope, rest[0]):
        left = [c for c in left if not _is_outside(scope.frame.bounds, c, w, axis)]
    if len(left) == len(conditions):
        return None
    kept = [*map(Iverson, left), *(a for a in factors if a not in brackets)]
    return scope.lower(Mul(tuple(kept)), order)


def number_outside(scope: Scope, addends: Sequence[Expr], order: Indices) -> Added | None:
    """[c] X[e if c] + [not c] v = X padded with v, at e.

    c holds exactly where the window is on the axis.
    """
    for pair, (condition, then, other) in complements(addends):
        for e, v, c in ((then, other, condition), (other, then, negate(condition))):
            made = _with_outside(scope, e, c, v) if isinstance(e, Access) and is_number(v) else None
            if made is not None:
                return made, [a for a in addends if a not in pair]
    return None


def _with_outside(scope: Scope, e: Access, c: Expr, v: Expr) -> Value | None:
    """Return the read where c holds, and a number elsewhere."""
    guards = [p for p in e.positions if isinstance(p, Guard)]
    if len(guards) != 1 or guards[0].condition is not c:
        return None
    for w, axis in _guarded_windows(scope, e):
        if all(_is_outside(scope.frame.bounds, part, w, axis) for part in _conjuncts_of(c)):
            whole = fresh(axis, free_indices(e))
            read = Access(e.tensor, tuple(whole if p is guards[0] else p for p in e.positions))
            value = scope.as_float(scope.lower(read, layout(read)))
            n = value.axes.index(whole)
            return along(scope, value, n, w, scope.lower(v, ()).code)
    return None


def _conjuncts_of(c: Expr) -> Sequence[Expr]:
    """Return the conjuncts of a condition, after De Morgan."""
    match c:
        case Not(Or(args)):
            return [part for a in args for part in _conjuncts_of(negate(a))]
    return conditions_of(c)


def _guarded_windows(scope: Scope, e: Access) -> Iterator[tuple[Window, Index]]:
    """Yield the guarded windows that an access reads, with their axes."""
    for p, axis in zip(e.positions, scope.tensor(e.tensor).indices, strict=True):
        w = affine_window(scope.frame.bounds, p.position) if isinstance(p, Guard) else None
        if w is not None and abs(w.step) == 1 and not axis.group:
            if sum(w.index in free_indices(q) for q in e.positions) == 1:
                yield w, axis


def _is_outside(bounds: Bounds, c: Expr, w: Window, axis: Index) -> bool:
    """True if the window is off the axis wherever this condition fails."""
    edge = bounds.edge(c, w.index)
    if edge is None or free_indices(c) != {w.index}:
        return False
    lower, place = edge
    # The excluded position next to the edge.
    first_out = place - ONE if lower else place
    at = w.start + first_out * Polynomial({(): Fraction(w.step)})
    below = lower == (w.step > 0)
    low, high = (at + ONE, ZERO) if below else (bounds.size(axis.extent), at)
    return bounds.at_most(low, high)


def sum_over_part(scope: Scope, s: Summation) -> Value | None:
    """Sum_i [s <= i < s + size(j)] f(i) = Sum_j f(s + j)."""
    bounds, factors = scope.frame.bounds, list(s.factors)
    binders: list[Index] = []
    for b in s.binders:
        index, start, rest = part_of_range(bounds, factors, b) or (b, ZERO, [])
        if any(b in free_indices(a) for a in rest if not isinstance(a, Iverson)):
            shifted = (Polynomial.of(index) + start).expr()
            factors = [simplify_guards(bounds, substitute(a, {b: shifted})) for a in rest]
            b = index
        binders.append(b)
    if tuple(factors) == s.factors:
        return None
    return scope.lower(summed_product(binders, factors), s.order)

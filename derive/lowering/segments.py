"""Sums over the places where an integer tensor has a value, and lookups of that value.

    Sum_n [s[n] == g] f(n)  =  f added at s[n] along g
    Max_n {f(n), s[n] == g}  =  the greatest f put at s[n] along g
    Sum_g [s[n] == g] f(g)  =  f(s[n]),  0 where s[n] is no position of g

No mask of every n with every g is made. What lies outside is added to, or read from, one position
more than the axis has, so that nothing goes wrong on an axis without values. Where s[n] is read as
a position anyway nothing lies outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.expr import (
    Access,
    And,
    Expr,
    Index,
    Iverson,
    Mul,
    Num,
    Reduce,
    Rel,
    Size,
    free_indices,
    walk,
)
from derive.algebra.factor import factor
from derive.algebra.poly import as_atom
from derive.algebra.substitution import replace as replaced
from derive.calculus.conditions import conditions_of, conjunction
from derive.calculus.emptiness import may_be_infinite
from derive.calculus.lets import Let, layout
from derive.lowering.binders import with_binders
from derive.lowering.code import Binary, Code, Dim, Function, Method, Name, Shape, literal
from derive.lowering.contract import contract, times
from derive.lowering.equalities import with_value
from derive.lowering.gather import add_at, extremum_at, read_at
from derive.lowering.nothing import only_where_there_is
from derive.lowering.scope import Scope
from derive.lowering.value import Value, broadcast, index_key
from derive.lowering.windows import padded

__all__ = ["segment_any", "segment_extremum", "segment_sum"]

_ZERO = Num(Fraction(0))


@dataclass(frozen=True)
class _Match:
    """[position == index], and the factors beside it."""

    index: Index
    position: Expr
    rest: tuple[Expr, ...]
    certain: bool
    """Whether every position is one of the index."""

    @property
    def inside(self) -> Expr:
        """The condition that the position is one of the index."""
        return _inside(self.index, self.position)


def segment_sum(
    scope: Scope, binders: Sequence[Index], args: Sequence[Expr], order: Sequence[Index]
) -> Value | None:
    """Sum over binders of the product of args by places or by lookup, where it is one."""
    for match in _matches(scope, args):
        if match.index in binders:
            found = _lookup(scope, match, binders, order)
        else:
            found = _added(scope, match, binders, order)
        if found is not None:
            return found
    return None


def segment_extremum(scope: Scope, let: Let, excluded: Value) -> Value | None:
    """The amax, amin or logsumexp of what has each value; ``excluded`` is that of nothing."""
    if let.kind not in ("amax", "amin", "logsumexp") or let.condition is None:
        return None
    for match in _matches(scope, (Iverson(let.condition),)):
        if match.index in let.formals and set(let.binders) <= free_indices(match.position):
            return _extremum(scope, let, match, excluded)
    return None


def segment_any(scope: Scope, let: Let) -> Value | None:
    """Whether there is any place that has each value, where that is what the let asks."""
    asked = as_atom(let.body) if let.kind == "any" else None
    if not isinstance(asked, Iverson):
        return None
    brackets = [asked, *([] if let.condition is None else [Iverson(let.condition)])]
    for match in _matches(scope, brackets):
        if let.binders == (match.index,) and not match.rest:
            # Whether there is a place with that number.
            if scope.lower(match.position, layout(match.position)).kind == "int":
                return scope.condition(match.inside, let.formals)
    count = segment_sum(scope, let.binders, brackets, let.formals)
    if count is None:
        return None
    return replace(count, code=Binary(">", count.code, literal(0)), kind="bool")


def _extremum(scope: Scope, let: Let, match: _Match, excluded: Value) -> Value | None:
    around = [i for i in let.formals if i is not match.index]
    body = _at_position(scope, match, scope.nested(let.body))
    inner = with_binders(around, let.binders, Mul((body, match.position)))
    position = _place(scope, match, layout(match.position))
    if position is None:
        return None
    source = scope.as_float(scope.lower(body, inner))
    for bracket in match.rest:
        assert isinstance(bracket, Iverson)
        test = scope.condition(_at_position(scope, match, bracket.condition), inner)
        source = scope.where(test, source, excluded, inner)
    if source.scalar:
        source = scope.frame.expand(source, position.indices, scope.like)
    source = scope.frame.squeeze(source, ())
    known = (*source.indices, *position.indices)
    result = [i for i in let.formals if i is match.index or i in known]
    base = Method(scope.like, "new_full", (_shape(match, result), excluded.code))
    kind = "amin" if let.kind == "amin" else "amax"
    value = extremum_at(scope.frame, source, match.index, position, let.binders, result, base, kind)
    if let.kind == "logsumexp":
        value = _logsumexp(scope, match, value, source, position, let.binders)
    value = _on_axis(scope, match, value)
    read = any(match.index in free_indices(e) for e in (let.body, *match.rest))
    if match.certain or not read:
        return value
    return only_where_there_is(scope, value, [match.index.extent], value.indices)


def _logsumexp(
    scope: Scope,
    match: _Match,
    top: Value,
    source: Value,
    position: Value,
    binders: Sequence[Index],
) -> Value:
    """top + log(Sum exp(source - top)), with 0 for a top that is infinite."""
    frame = scope.frame
    finite = Method(top.code, "isfinite")
    level = replace(top, code=Function("torch.where", (finite, top.code, literal(0))))
    n = level.axes.index(match.index)
    around = list(dict.fromkeys((*source.indices, *position.indices)))
    here = frame.fit(read_at(frame, level, n, position), around)
    whole = frame.fit(source, around)
    shifted = Value(Binary("-", whole.code, here.code), broadcast(whole.axes, here.axes))
    parts = replace(shifted, code=Method(shifted.code, "exp"))
    order = [i for i in top.axes if i is not None]
    zeros = Method(scope.like, "new_zeros", (_shape(match, order),))
    total = add_at(frame, parts, match.index, position, binders, order, zeros, scope.like)
    return replace(level, code=Binary("+", level.code, Method(total.code, "log")))


def _matches(scope: Scope, args: Sequence[Expr]) -> Iterator[_Match]:
    for mask in args:
        if not isinstance(mask, Iverson):
            continue
        conditions = conditions_of(mask.condition)
        for c in conditions:
            if not isinstance(c, Rel) or c.op != "==":
                continue
            sides = factor(c.left), factor(c.right)
            left = [x for x in conditions if x is not c]
            beside = tuple(a for a in args if a is not mask)
            rest = (Iverson(conjunction(left)), *beside) if left else beside
            for index, position in (sides, sides[::-1]):
                if isinstance(index, Index) and not index.group and _is_read(position):
                    if index not in free_indices(position):
                        inside = conditions_of(_inside(index, position))
                        certain = all(scope.frame.bounds.holds(x) is True for x in inside)
                        yield _Match(index, position, rest, certain)


def _inside(index: Index, position: Expr) -> Expr:
    return And((Rel("<=", _ZERO, position), Rel("<", position, Size(index.extent))))


def _is_read(position: Expr) -> bool:
    return any(isinstance(part, Access) for part in walk(position))


def _added(
    scope: Scope, match: _Match, binders: Sequence[Index], order: Sequence[Index]
) -> Value | None:
    summed = [i for i in binders if i in free_indices(match.position)]
    inside = [a for a in match.rest if free_indices(a) & set(summed)]
    beside = [a for a in match.rest if a not in inside]
    if not summed or any(isinstance(a, Iverson) for a in beside):
        return None
    reads = any(match.index in free_indices(a) for a in inside)
    inside = [_at_position(scope, match, a) for a in inside]
    shared = [i for i in binders if any(i in free_indices(a) for a in beside)]
    loose = tuple(i for i in binders if i not in summed and i not in shared)
    around = with_binders(order, shared, _product(beside or inside))
    placed = _placed(scope, match, _total(loose, inside), summed, around)
    if placed is not None and reads and not match.certain:
        placed = only_where_there_is(scope, placed, [match.index.extent], placed.indices)
    if placed is None or not beside:
        return placed
    operands = [scope.as_float(scope.lower(a, layout(a))) for a in beside]
    return contract(scope.frame, [scope.as_float(placed), *operands], shared, around)


def _product(factors: Sequence[Expr]) -> Expr:
    if not factors:
        return Num(Fraction(1))
    return factors[0] if len(factors) == 1 else Mul(tuple(factors))


def _total(binders: tuple[Index, ...], factors: Sequence[Expr]) -> Expr:
    content = _product(factors)
    return Reduce("sum", binders, content) if binders else content


def _placed(
    scope: Scope, match: _Match, content: Expr, summed: Sequence[Index], order: Sequence[Index]
) -> Value | None:
    """The content added at the positions, summed over their indices."""
    around = [i for i in order if i is not match.index]
    inner = with_binders(around, summed, Mul((content, match.position)))
    position = _place(scope, match, layout(match.position))
    if position is None:
        return None
    source = scope.lower(content, inner)
    if source.scalar or source.kind == "bool":
        # Counted in integers, which are exact.
        source = replace(source, kind="int")
    like = position.code if source.kind == "int" else scope.like
    if source.kind == "int" and not source.scalar:
        source = replace(source, code=Method(source.code, "to", (Name("torch.int64"),)))
    source = scope.frame.squeeze(source, ())
    if source.scalar:
        source = scope.frame.expand(source, position.indices, like)
    result = [
        i
        for i in order
        if i is match.index or (i in (*source.indices, *position.indices) and i not in summed)
    ]
    zeros = Method(like, "new_zeros", (_shape(match, result),))
    value = add_at(scope.frame, source, match.index, position, summed, order, zeros, like)
    return replace(_on_axis(scope, match, value), kind=source.kind)


def _shape(match: _Match, axes: Sequence[Index]) -> Code:
    """A shape with one position to spare along the index, where something may lie outside."""
    one_more: Code = Binary("+", Dim(match.index.extent), literal(1))
    spare = None if match.certain else match.index
    return Shape(tuple(one_more if i is spare else Name(index_key(i)) for i in axes))


def _on_axis(scope: Scope, match: _Match, value: Value) -> Value:
    """value without the position that was to spare."""
    if match.certain:
        return value
    place = scope.frame.position(value.axes, value.axes.index(match.index))
    stop = Dim(match.index.extent)
    return replace(value, code=Method(value.code, "narrow", (place, literal(0), stop)))


def _lookup(
    scope: Scope, match: _Match, binders: Sequence[Index], order: Sequence[Index]
) -> Value | None:
    looked_up = [a for a in match.rest if match.index in free_indices(a)]
    beside = [a for a in match.rest if a not in looked_up]
    # A bracket guards what is looked up where that is computed, and what stands beside.
    known = frozenset().union(*map(free_indices, looked_up))
    guards = [a for a in beside if isinstance(a, Iverson) and free_indices(a) <= known]
    looked_up = [a for a in match.rest if a in looked_up or a in guards]
    if all(isinstance(a, Iverson) for a in beside):
        beside = [a for a in beside if a not in guards]
    kept = free_indices(match.position).union(*map(free_indices, beside))
    within = tuple(i for i in binders if i is not match.index and i not in kept)
    after = [i for i in binders if i is not match.index and i in kept]
    if not looked_up:
        return None
    own = free_indices(match.position)
    if any(
        (own <= free_indices(a) and not isinstance(a, Access)) or may_be_infinite(scope.find, a)
        for a in looked_up
    ):
        # What differs from one place to the next stands in no table, and a table that is infinite
        # where nothing is looked up has a derivative that is nan there.
        there = [_at_position(scope, match, a) for a in looked_up]
        brackets = [] if match.certain else [Iverson(match.inside)]
        content = _total((*within, *after), [*brackets, *there, *beside])
        value = scope.lower(content, order)
        if match.certain:
            return value
        return only_where_there_is(scope, value, [match.index.extent], order)
    content = _total(within, looked_up)
    around = with_binders(order, after, _product((content, match.position, *beside)))
    inner = with_binders(around, (match.index,), content)
    value = scope.frame.squeeze(scope.lower(content, inner), ())
    position = _place(scope, match, layout(match.position))
    if position is None or value.scalar or match.index not in value.axes:
        return None
    n = value.axes.index(match.index)
    if not match.certain:
        value = padded(scope, value, n, literal(0), literal(1))
    value = scope.frame.fit(read_at(scope.frame, value, n, position), around)
    zero = Value(literal(0), kind="int", scalar=True)
    conditions = [a.condition for a in beside if isinstance(a, Iverson)]
    if conditions:
        # What is looked up is not where a bracket excludes it: 0*inf is nan.
        value = scope.where(scope.condition(And(tuple(conditions)), around), value, zero, around)
    if len(conditions) < len(beside):
        # What stands beside is not read where nothing is looked up.
        other = scope.as_float(scope.lower(_product(beside), around))
        value = times(scope.frame, scope.as_float(value), other, around)
        if not match.certain:
            value = scope.where(scope.condition(match.inside, around), value, zero, around)
    which = [m for m, i in enumerate(value.axes) if i in after]
    return scope.frame.reduce(value, "sum", which, False, value.kind)


def _at_position(scope: Scope, match: _Match, e: Expr) -> Expr:
    """e with the position in place of the index; sums that lack its indices are read there."""
    own = free_indices(match.position)

    def table(part: Expr) -> Expr | None:
        free = free_indices(part)
        if match.index not in free:
            return part
        return scope.named(part) if isinstance(part, Reduce) and not free & own else None

    range_ = conditions_of(match.inside)
    return with_value(scope.frame.bounds, replaced(e, table), match.index, match.position, range_)


def _place(scope: Scope, match: _Match, order: Sequence[Index]) -> Value | None:
    """The position, or that after the last where it is none of the axis."""
    value = scope.lower(match.position, order)
    if value.kind != "int" or value.scalar:
        return None
    if match.certain:
        return value
    outside = Value(Dim(match.index.extent), kind="int", scalar=True)
    return scope.where(scope.condition(match.inside, order), value, outside, order)

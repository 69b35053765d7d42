"""Segment sums by the value of an integer tensor, and lookups of that value.

    Sum_n [s[n] == g] f(n)  =  f added at s[n] along g
    Max_n {f(n), s[n] == g}  =  the greatest f at s[n] along g
    Sum_g [s[n] == g] f(g)  =  f(s[n]),  0 if s[n] is not a position of g

No mask of every n with every g is built. Positions out of range go to one additional position of
the axis, so that an empty axis works too. If s[n] is also read as a position, it is in range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import (
    Access,
    Call,
    Const,
    Expr,
    Index,
    Iverson,
    Mul,
    Pow,
    Reduce,
    Rel,
    Size,
    accesses,
    free_indices,
    indices_of,
    num,
    product_of,
)
from derive.algebra.factor import factor
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import as_atom
from derive.algebra.substitution import replace as replaced
from derive.algebra.substitution import substitute
from derive.calculus.lets import Let, layout
from derive.calculus.value_analysis import ValueFacts
from derive.lowering.ground.axis_order import binders_for_axis, with_binders
from derive.lowering.ground.context import Scope, neutral
from derive.lowering.ground.contract import contract, elementwise_product
from derive.lowering.ground.gather import (
    add_at,
    extremum_at,
    placed_axes,
    read_at,
    with_gather_suffix,
)
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Indices, Value, axis_size, broadcast, shape_of
from derive.lowering.patterns.equality_masks import with_value
from derive.program.torch_ir import (
    Binary,
    Code,
    Dim,
    FunctionCall,
    MethodCall,
    Name,
    Shape,
    literal,
)


@dataclass(frozen=True)
class Match:
    """[position == index], and the other factors."""

    index: Index
    position: Expr
    rest: tuple[Expr, ...]
    certain: bool
    """True if every position is in the range of the index."""

    @property
    def inside(self) -> Expr:
        """The condition that the position is in the range of the index."""
        return _in_index_range(self.index, self.position)


def sum_by_lookup(scope: Scope, s: Summation) -> Value | None:
    """Sum_g [s[n] == g] f(g) = f(s[n])."""
    inside = (m for m in matches_of(scope, s.factors) if m.index in s.binders)
    found = (_lookup(scope, match, s) for match in inside)
    return next((value for value in found if value is not None), None)


def sum_by_place(scope: Scope, s: Summation) -> Value | None:
    """Sum_n [s[n] == g] f(n) = zeros.index_add(s, f)[g]."""
    outside = (m for m in matches_of(scope, s.factors) if m.index not in s.binders)
    found = (_segment_sum(scope, match, s.binders, s.order) for match in outside)
    return next((value for value in found if value is not None), None)


def extremum_by_place(scope: Scope, let: Let) -> Value | None:
    """max_n {f, s[n] == g} = scatter_reduce(s, f)[g].

    The same for amin and logsumexp.
    """
    row = let.reduction
    if (row.gradient != "shared" and let.kind != "logsumexp") or let.condition is None:
        return None
    for match in matches_of(scope, (Iverson(let.condition),)):
        if match.index in let.formals and free_indices(match.position).issuperset(let.binders):
            return _segment_extremum(scope, let, match, neutral(let))
    return None


def any_by_place(scope: Scope, let: Let) -> Value | None:
    """any_n (s[n] == g) = zeros.index_add(s, 1)[g] > 0."""
    asked = as_atom(let.body) if let.kind == "any" else None
    if not isinstance(asked, Iverson):
        return None
    for match in matches_of(scope, (asked,)):
        if let.binders == (match.index,) and not match.rest:
            # any_g (s[n] == g) is the condition that s[n] is in range.
            if scope.lower(match.position, layout(match.position)).kind == "int":
                return scope.condition(match.inside, let.formals)
    s = Summation(let.binders, (asked,), let.formals)
    count = sum_by_lookup(scope, s) or sum_by_place(scope, s)
    if count is None:
        return None
    return replace(count, code=Binary(">", count.code, literal(0)), kind="bool")


# Matches


def matches_of(scope: Scope, args: Sequence[Expr]) -> Iterator[Match]:
    """Yield each comparison of an index with a computed position among the brackets."""
    for mask in args:
        conditions = conditions_of(mask.condition) if isinstance(mask, Iverson) else ()
        for c in conditions:
            if not isinstance(c, Rel) or c.op != "==":
                continue
            left = [x for x in conditions if x is not c]
            beside = tuple(a for a in args if a is not mask)
            rest = (Iverson(conjunction(left)), *beside) if left else beside
            sides = factor(c.left), factor(c.right)
            for index, position in (sides, sides[::-1]):
                if isinstance(index, Index) and not index.group and any(accesses(position)):
                    if index not in free_indices(position):
                        inside = conditions_of(_in_index_range(index, position))
                        certain = all(scope.frame.bounds.holds(x) is True for x in inside)
                        yield Match(index, position, rest, certain)


def _in_index_range(index: Index, position: Expr) -> Expr:
    return conjunction((Rel("<=", num(0), position), Rel("<", position, Size(index.extent))))


def at_matched_position(scope: Scope, match: Match, e: Expr) -> Expr:
    """Return e with the position for the index; sums independent of n become tables."""
    own = free_indices(match.position)

    def table(part: Expr) -> Expr | None:
        free = free_indices(part)
        if match.index not in free:
            return part
        return scope.named(part) if isinstance(part, Reduce) and not own <= free else None

    range_ = conditions_of(match.inside)
    return with_value(scope, replaced(e, table), match.index, match.position, range_)


def _given_place(scope: Scope, match: Match) -> Value | None:
    """Return the position, in range or not; None if it is not an integer tensor."""
    value = scope.lower(match.position, layout(match.position))
    return None if value.kind != "int" or value.scalar else value


def _position_or_spare(scope: Scope, match: Match) -> Value | None:
    """Return the position; one out of range becomes the additional last one."""
    order, value = layout(match.position), _given_place(scope, match)
    if value is None or match.certain:
        return value
    outside = Value(Dim(match.index.extent), kind="int", scalar=True)
    return scope.where(scope.condition(match.inside, order), value, outside, order)


def _shape_with_spare(match: Match, axes: Indices) -> Code:
    """Return a shape with one more position along the index, unless all are in range."""
    one_more: Code = Binary("+", Dim(match.index.extent), literal(1))
    spare = None if match.certain else match.index
    return Shape(tuple(one_more if i is spare else axis_size(i) for i in axes))


def _without_spare(scope: Scope, match: Match, value: Value) -> Value:
    if match.certain:
        return value
    place = scope.frame.place(value, match.index)
    return value.call("narrow", place, literal(0), Dim(match.index.extent))


# Values added, or compared, at places


def _segment_sum(scope: Scope, match: Match, binders: Indices, order: Indices) -> Value | None:
    summed = [i for i in binders if i in free_indices(match.position)]
    # Keep inf next to its brackets: inf times a count of 0 would be nan.
    inf = Const("inf")
    inside = [a for a in match.rest if a is inf or not free_indices(a).isdisjoint(summed)]
    beside = [a for a in match.rest if a not in inside]
    if not summed or any(isinstance(a, Iverson) for a in beside):
        return None
    taken = indices_of(beside)
    shared = [i for i in binders if i in taken]
    loose = [i for i in binders if i not in (*summed, *shared)]
    there = [at_matched_position(scope, match, a) for a in inside]
    around = with_binders(order, shared, product_of(beside or there))
    placed = added_at(scope, match, summed_product(loose, there), summed, around)
    if placed is None:
        return None
    if not beside:
        return placed
    values = (placed, *(scope.lower(a, layout(a)) for a in beside))
    return contract(scope.frame, [scope.as_float(v) for v in values], shared, around)


def added_at(
    scope: Scope,
    match: Match,
    content: Expr,
    summed: Indices,
    order: Indices,
    base: Code | None = None,
    scale: Code | None = None,
) -> Value | None:
    """Return the content added at the positions, summed over their indices, times a number."""
    inner = binders_for_axis(match.index, order, summed, Mul((match.position, content)))
    position = _given_place(scope, match)
    if position is None:
        return None
    source = scope.lower(content, inner)
    if source.kind == "bool":
        # Counts are exact in integers.
        source = replace(source, kind="int")
    like = position.code if source.kind == "int" else scope.like
    if source.scalar:
        source = scope.frame.expand(source, position.indices, like)
    elif source.kind == "int":
        source = source.call("to", Name("torch.int64"))
    source = scope.frame.squeeze(source)
    result = placed_axes(source, match.index, position, summed, order)
    if base is None or source.kind != "float":
        base = MethodCall(like, "new_zeros", (shape_of(result),))
    value = add_at(scope.frame, source, match.index, position, summed, order, base, like, scale)
    code = value.code if match.certain else with_gather_suffix(value.code, base, "inside")
    return replace(value, code=code, kind=source.kind)


def _segment_extremum(scope: Scope, let: Let, match: Match, nothing: Value) -> Value | None:
    around = [i for i in let.formals if i is not match.index]
    body = at_matched_position(scope, match, scope.nested(let.body))
    inner = with_binders(around, let.binders, Mul((body, match.position)))
    position = _position_or_spare(scope, match)
    if position is None:
        return None
    source = scope.as_float(scope.lower(body, inner))
    for bracket in match.rest:
        assert isinstance(bracket, Iverson)
        test = scope.condition(at_matched_position(scope, match, bracket.condition), inner)
        source = scope.where(test, source, nothing, inner)
    if source.scalar:
        source = scope.frame.expand(source, position.indices, scope.like)
    source = scope.frame.squeeze(source)
    result = placed_axes(source, match.index, position, let.binders, let.formals)
    base = MethodCall(scope.like, "new_full", (_shape_with_spare(match, result), nothing.code))
    kind = "amin" if let.kind == "amin" else "amax"
    value = extremum_at(scope.frame, source, match.index, position, let.binders, result, base, kind)
    if let.kind == "logsumexp":
        value = _segment_logsumexp(scope, match, value, source, position, let.binders)
    return _without_spare(scope, match, value)


def _segment_logsumexp(
    scope: Scope, match: Match, top: Value, source: Value, position: Value, binders: Indices
) -> Value:
    """top + log(Sum exp(source - top)), with 0 for an infinite top."""
    frame = scope.frame
    finite = MethodCall(top.code, "isfinite")
    level = replace(top, code=FunctionCall("torch.where", (finite, top.code, literal(0))))
    n = level.axes.index(match.index)
    around = list(dict.fromkeys((*source.indices, *position.indices)))
    here = frame.fit(read_at(frame, level, n, position), around)
    whole = frame.fit(source, around)
    shifted = Value(Binary("-", whole.code, here.code), broadcast(whole.axes, here.axes))
    base = MethodCall(scope.like, "new_zeros", (_shape_with_spare(match, top.indices),))
    parts = shifted.call("exp")
    total_ = add_at(frame, parts, match.index, position, binders, top.indices, base, scope.like)
    return replace(level, code=Binary("+", level.code, MethodCall(total_.code, "log")))


# Values looked up at places


def _lookup(scope: Scope, match: Match, s: Summation) -> Value | None:
    looked_up, beside = _lookup_factors(match)
    if not looked_up:
        return None
    # 1/n for the number n of places with a value; where it is read, n > 0.
    counts: dict[Expr, Expr] = {
        a: Pow(Call("clamp", (a.base, num(1), Const("inf"))), a.exponent)
        for a in looked_up
        if isinstance(a, Pow) and _is_match_count(match, _sum_definition(scope, a.base))
    }
    kept = free_indices(match.position) | indices_of(beside)
    others = [i for i in s.binders if i is not match.index]
    within, after = ([i for i in others if (i in kept) == is_after] for is_after in (False, True))
    if not _is_table(scope, match, [a for a in looked_up if a not in counts]):
        there = [at_matched_position(scope, match, a) for a in looked_up]
        brackets = [] if match.certain else [Iverson(match.inside)]
        content = summed_product((*within, *after), [*brackets, *there, *beside])
        return scope.lower(content, s.order)
    content = summed_product(within, [counts.get(a, a) for a in looked_up])
    around = with_binders(s.order, after, product_of((content, match.position, *beside)))
    value = _read_from_table(scope, match, content, around)
    if value is None:
        return None
    if after and not any(isinstance(a, Iverson) for a in beside):
        return _contract_lookup(scope, match, value, beside, after, around)
    value = _times_beside(scope, match, value, beside, around)
    which = [m for m, i in enumerate(value.axes) if i in after]
    return scope.frame.reduce(value, "sum", which, False, value.kind)


def _contract_lookup(
    scope: Scope,
    match: Match,
    value: Value,
    beside: Sequence[Expr],
    summed: Indices,
    around: Indices,
) -> Value:
    """Return the looked-up value, 0 out of range, contracted with the other factors."""
    own = free_indices(match.position)
    there = [a for a in beside if own <= free_indices(a) and not match.certain]
    masked = [Mul((Iverson(match.inside), a)) if a in there else a for a in beside]
    operands = [scope.as_float(v) for v in (value, *(scope.lower(a, layout(a)) for a in masked))]
    made = contract(scope.frame, operands, summed, around)
    if there or match.certain or not own.isdisjoint(summed):
        return made
    return scope.only_where(match.inside, made, [i for i in around if i not in summed])


def _lookup_factors(match: Match) -> tuple[list[Expr], list[Expr]]:
    """Return the factors that are looked up, and the others.

    A bracket guards the lookup where that is computed, and also the other factors.
    """
    looked_up = [a for a in match.rest if match.index in free_indices(a)]
    beside = [a for a in match.rest if a not in looked_up]
    known = indices_of(looked_up)
    guards = [a for a in beside if isinstance(a, Iverson) and free_indices(a) <= known]
    looked_up = [a for a in match.rest if a in looked_up or a in guards]
    if all(isinstance(a, Iverson) for a in beside):
        beside = [a for a in beside if a not in guards]
    return looked_up, beside


def _sum_definition(scope: Scope, e: Expr) -> Expr:
    """Return the definition of a named sum, else e."""
    let = scope.find(e.tensor) if isinstance(e, Access) else None
    if let is None or let.kind != "sum" or not isinstance(e, Access):
        return e
    return factor(let.body_at(e.positions))


def _is_match_count(match: Match, e: Expr) -> bool:
    """True if e is Sum_n [s[n] == g], the number of all places of the match."""
    match e:
        case Reduce("sum", summed, Iverson(Rel("==", a, b))):
            sides = factor(a), factor(b)
        case _:
            return False
    own = layout(match.position)
    for index, position in (sides, sides[::-1]):
        counted = layout(position)
        if index is match.index and len(counted) == len(own) and {*summed} <= {*counted}:
            there = dict(zip(counted, own, strict=True))
            alike = all(i in summed or i is j for i, j in there.items())
            return alike and substitute(position, there) is match.position
    return False


def _is_table(scope: Scope, match: Match, factors: Sequence[Expr]) -> bool:
    """True if the factors are computed once for each index position and read there.

    A factor that varies with the place is in no table. Neither is one that may be infinite: where
    nothing is looked up, its derivative would be nan.
    """
    own = free_indices(match.position)
    values = ValueFacts(scope.find)
    return all(
        values.facts(a).defined and (isinstance(a, Access) or not own <= free_indices(a))
        for a in factors
    )


def _read_from_table(scope: Scope, match: Match, content: Expr, around: Indices) -> Value | None:
    """Return the content at all positions of the index, read at the given positions."""
    inner = with_binders(around, (match.index,), content)
    value = scope.frame.squeeze(scope.lower(content, inner))
    position = _given_place(scope, match)
    if position is None or value.scalar or match.index not in value.axes:
        return None
    suffix = "" if match.certain else "inside"
    made = read_at(scope.frame, value, value.axes.index(match.index), position, suffix)
    return scope.frame.fit(made, around)


def _times_beside(
    scope: Scope, match: Match, value: Value, beside: Sequence[Expr], around: Indices
) -> Value:
    """Return the looked-up value times the other factors; a mask excludes both together."""
    conditions = [a.condition for a in beside if isinstance(a, Iverson)]
    if conditions:
        value = scope.only_where(conjunction(conditions), value, around)
    if len(conditions) < len(beside):
        other = scope.as_float(scope.lower(product_of(beside), around))
        value = elementwise_product(scope.frame, scope.as_float(value), other, around)
        if not match.certain:
            value = scope.only_where(match.inside, value, around)
    return value

"""Deltas that no sum removed: values placed at positions of a new axis."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from derive.algebra.expr import (
    Access,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Num,
    Reduce,
    Rel,
    free_indices,
    is_number,
    walk,
)
from derive.algebra.factor import factor
from derive.algebra.substitution import substitute
from derive.calculus.conditions import conjunction
from derive.calculus.lets import layout
from derive.lowering.binders import apart, renaming, with_binders
from derive.lowering.code import (
    Attribute,
    Binary,
    Code,
    Dim,
    Function,
    Keyword,
    Method,
    Name,
    Shape,
    literal,
)
from derive.lowering.convolve import transposed
from derive.lowering.gather import add_at, put_at, select_at
from derive.lowering.guarded import protected
from derive.lowering.nothing import may_be_nowhere, only_where_there_is
from derive.lowering.scope import Scope
from derive.lowering.value import Value, index_key
from derive.lowering.windows import Window, lies_inside, number_of, window
from derive.notation.build import product

__all__ = ["is_scattered", "scatter"]


def scatter(scope: Scope, e: Expr, order: Sequence[Index], base: Code | None) -> tuple[Value, bool]:
    """A term with deltas that no sum removed: its value, placed at the deltas' positions.

    Also whether it was added into ``base``, which has all axes of ``order``.
    """
    coef, binders, factors = _as_term(e)
    asked = [f for f in factors if isinstance(f, Iverson) and is_number(f)]
    if asked:
        # Where the answer is no there may be no position to write at.
        others: Expr = Mul((Num(coef), *(f for f in factors if f not in asked)))
        others = Reduce("sum", binders, others) if binders else others
        condition = conjunction([f.condition for f in asked])
        value, _ = scatter(scope, protected(scope, others, condition), order, None)
        test = scope.condition(condition, order)
        return scope.where(test, value, Value(literal(0), scalar=True), order), False
    number = () if coef == 1 else (Num(coef),)
    convolved = transposed(scope, binders, (*number, *factors), order)
    if convolved is not None:
        return convolved, False
    deltas = [f for f in factors if isinstance(f, Delta)]
    rest = [f for f in factors if not isinstance(f, Delta)]
    targets: list[tuple[Index, Expr]] = []
    tests: list[Expr] = []
    while deltas:
        delta = _outermost(deltas)
        deltas.remove(delta)
        axis, position = delta.axis, delta.position
        if not isinstance(axis, Index) and isinstance(position, Index):
            axis, position = position, axis
        if _is_target(axis, position, binders, targets):
            assert isinstance(axis, Index)
            # delta(i, e) f(i) = delta(i, e) f(e)
            there = {axis: position}
            rest = [substitute(f, there) for f in rest]
            deltas = [
                Delta(*(substitute(part, there) for part in (d.axis, d.position))) for d in deltas
            ]
            targets.append((axis, position))
        else:
            tests.append(Iverson(Rel("==", axis, position)))
    rest = [*tests, *rest]
    loose = [i for i in binders if all(i not in free_indices(p) for _, p in targets)]
    summed = [i for i in binders if i not in loose]
    content = product((Num(coef), *_summed_first(rest, loose)))
    if not targets:
        return scope.lower(content, order), False
    around = [i for i in order if all(i is not a for a, _ in targets)]
    inner = with_binders(around, summed, Mul((content, *(p for _, p in targets))))
    source = scope.as_float(scope.lower(content, inner))
    if source.scalar:
        used = [i for i in inner if any(i in free_indices(p) for _, p in targets)]
        source = scope.frame.expand(source, used, scope.like)
    source = scope.frame.squeeze(source, ())
    if len(targets) == 1:
        ((axis, position),) = targets
        if isinstance(position, Index) and position not in summed:
            return _diagonal(scope, source, axis, position), False
        found = window(scope.frame.bounds, position)
        if found is not None and found.index in summed and found.step > 0:
            if isinstance(position, Index) or lies_inside(scope.frame.bounds, found, axis.extent):
                return _placed(scope, source, axis, found), False
        if isinstance(position, Num):
            around = [i for i in order if i is axis or i in source.indices]
            return select_at(scope.frame, source, axis, position, around, scope.like), False
        computed = any(isinstance(x, Access) for x in walk(position))
        if computed or _is_free(position, summed):
            index = scope.lower(factor(position), _like_source(source, position))
            if base is not None and not _covers(source, index, axis, summed, order):
                base = None
            if not index.scalar:
                value = add_at(scope.frame, source, axis, index, summed, order, base, scope.like)
                return _where_there_is(scope, value, targets), base is not None
    positions = [p for _, p in targets]
    indices = [i for p in positions for i in free_indices(p)]
    alone = len(set(indices)) == len(indices) and all(_is_free(p, summed) for p in positions)
    if alone and set(indices) <= set(source.indices):
        return _added(scope, source, targets, summed, order), False
    value = _put(scope, source, targets, summed, order)
    return _where_there_is(scope, value, targets), False


def _summed_first(factors: Sequence[Expr], indices: Sequence[Index]) -> list[Expr]:
    """The factors of the sum over these indices: what lacks them stands outside of it."""
    inside = [f for f in factors if free_indices(f) & frozenset(indices)]
    if frozenset(indices) - frozenset[Index]().union(*map(free_indices, inside)):
        inside = list(factors)
    outside = [f for f in factors if f not in inside]
    return [*outside, Reduce("sum", tuple(indices), product(inside))] if indices else outside


def _where_there_is(scope: Scope, value: Value, targets: Sequence[tuple[Index, Expr]]) -> Value:
    """The value, or zeros where a guarded position may have no axis to stand on."""
    needed = [i.extent for i, p in targets if may_be_nowhere(scope, p, i.extent)]
    return only_where_there_is(scope, value, needed, value.indices)


def _is_free(position: Expr, summed: Sequence[Index]) -> bool:
    """Whether the position is made of summed indices alone, and reads nothing."""
    free = free_indices(position)
    return (
        bool(free)
        and free <= set(summed)
        and not any(isinstance(x, Access | Guard) for x in walk(position))
    )


def _like_source(source: Value, position: Expr) -> list[Index]:
    """The indices of a position in the order that the source has them."""
    natural = layout(position)
    known = [i for i in source.indices if i in natural]
    return [*known, *(i for i in natural if i not in known)]


def _added(
    scope: Scope,
    source: Value,
    targets: Sequence[tuple[Index, Expr]],
    summed: Sequence[Index],
    order: Sequence[Index],
) -> Value:
    """The source added at positions that have no index in common: along one axis, then the next."""
    for n, (axis, position) in enumerate(targets):
        later = dict(targets[n + 1 :])
        around: list[Index] = []
        for i in order:
            around += [i] if i not in later else _like_source(source, later[i])
        found = window(scope.frame.bounds, position)
        if (
            found is not None
            and found.step > 0
            and lies_inside(scope.frame.bounds, found, axis.extent)
        ):
            source = _placed(scope, source, axis, found)
            continue
        index = scope.lower(factor(position), _like_source(source, position))
        own = [i for i in summed if i in index.indices]
        source = add_at(scope.frame, source, axis, index, own, around, None, scope.like)
    return source


def _outermost(deltas: Sequence[Delta]) -> Delta:
    """A delta whose position reads no axis that another delta places."""
    for d in deltas:
        axes = [x.axis for x in deltas if x is not d]
        if not any(i in axes for i in free_indices(d.position)):
            return d
    return deltas[0]


def _is_target(
    axis: Expr,
    position: Expr,
    binders: Sequence[Index],
    targets: Sequence[tuple[Index, Expr]],
) -> bool:
    """Whether the term is placed along this axis; if not, the delta is a comparison."""
    if not isinstance(axis, Index) or axis in binders or axis in free_indices(position):
        return False
    if isinstance(position, Index) and position not in binders:
        if position.extent != axis.extent:
            return False
    taken = [a for a, _ in targets]
    read = frozenset().union(*(free_indices(p) for _, p in targets), frozenset())
    return axis not in taken and axis not in read and not free_indices(position) & set(taken)


def _placed(scope: Scope, source: Value, axis: Index, w: Window) -> Value:
    """f at start, start + step, ... of an axis of zeros."""
    if w.index not in source.indices:
        source = scope.frame.expand(source, [*source.indices, w.index], scope.like)
    n = source.axes.index(w.index)
    axes = tuple(axis if i is w.index else i for i in source.axes)
    sizes = Shape(tuple(Name(index_key(i)) for i in axes if i is not None))
    zeros = Method(scope.like, "new_zeros", (sizes,))
    first, size = number_of(scope, w.start), Dim(w.index.extent)
    reach = size if w.step == 1 else Binary("*", literal(w.step), size)
    end = reach if first is literal(0) else Binary("+", first, reach)
    steps = () if w.step == 1 else (literal(w.step),)
    args = (source.code, scope.frame.position(axes, n), first, end, *steps)
    return Value(Method(zeros, "slice_scatter", args), axes)


def _covers(
    source: Value,
    index: Value,
    axis: Index,
    summed: Sequence[Index],
    order: Sequence[Index],
) -> bool:
    have = {axis, *source.indices, *index.indices} - set(summed)
    return have == set(order)


def _put(
    scope: Scope,
    source: Value,
    targets: Sequence[tuple[Index, Expr]],
    summed: Sequence[Index],
    order: Sequence[Index],
) -> Value:
    placed: list[tuple[Index, Value]] = []
    for axis, position in targets:
        placed.append((axis, scope.lower(factor(position), layout(position))))
    free = [i for i in order if any(i in v.indices for _, v in placed) and i not in summed]
    placed += [(i, scope.positions(i)) for i in free]
    scalars = [n for n, (_, v) in enumerate(placed) if v.scalar]
    for n in scalars:
        axis, v = placed[n]
        device = Keyword("device", Attribute(scope.like, "device"))
        placed[n] = (axis, Value(Function("torch.tensor", (v.code, device)), (), "int"))
    return put_at(scope.frame, source, placed, summed, order, scope.like)


def _diagonal(scope: Scope, source: Value, axis: Index, position: Index) -> Value:
    """delta(i, j) f(j): f on the diagonal of its last axis and a new one."""
    if position not in source.indices:
        source = scope.frame.expand(source, [*source.indices, position], scope.like)
    others = [i for i in source.indices if i is not position]
    source = scope.frame.permute(source, [*others, position])
    code = Method(source.code, "diag_embed")
    return Value(code, (*others, position, axis))


def is_scattered(e: Expr) -> bool:
    """Whether the addend has a delta that its sums leave."""
    _, _, factors = _as_term(e)
    return any(isinstance(f, Delta) for f in factors)


def _as_term(e: Expr) -> tuple[Fraction, tuple[Index, ...], tuple[Expr, ...]]:
    """(coefficient, binders, factors) where e is one product, at most one of them a sum."""
    coef = Fraction(1)
    binders: tuple[Index, ...] = ()
    factors: list[Expr] = []
    for a in e.args if isinstance(e, Mul) else (e,):
        if isinstance(a, Num):
            coef *= a.value
        elif isinstance(a, Reduce) and a.kind == "sum":
            own = apart(a.indices, (*binders, *free_indices(e)))
            body = substitute(a.body, renaming(a.indices, own))
            inside = body.args if isinstance(body, Mul) else (body,)
            if any(isinstance(f, Delta) for f in inside):
                binders += own
                factors += inside
            else:
                factors.append(a)
        else:
            factors.append(a)
    return coef, binders, tuple(factors)

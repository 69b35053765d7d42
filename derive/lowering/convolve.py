"""Convolutions, found by their structure, along one, two or three axes.

    sum[c,k]    X[n,g,c, s*t + d*k - p] * W[g,o,c,k]               a convolution
    sum[n,t]    X[n,g,c, s*t + d*k - p] * Y[n,g,o,t]               its gradient in W
    sum[o,t,k]  delta(u, s*t + d*k - p) * Y[n,g,o,t] * W[g,o,c,k]  its gradient in X, or transposed

The role of an index follows from where it stands: in both operands and the result (a group), in
both and summed, or in one operand and the result. There may be any number of each, none as well.
What is no such sum is lowered as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from derive.algebra.expr import (
    Access,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Reduce,
    free_indices,
    walk,
)
from derive.algebra.substitution import fresh, replace
from derive.calculus.bounds import Bounds
from derive.calculus.conditions import conditions_of
from derive.calculus.lets import layout
from derive.lowering.code import literal
from derive.lowering.contract import times
from derive.lowering.convolutions import (
    Operands,
    average,
    conv,
    conv_transpose,
    input_gradient,
    weight_gradient,
)
from derive.lowering.scope import Scope
from derive.lowering.sliding import Sliding, bare, gap, runs_over, sliding
from derive.lowering.value import Value
from derive.notation.affine import Polynomial

__all__ = ["convolution", "pooled", "transposed"]

_MOST_AXES = 3


def convolution(
    scope: Scope, binders: Sequence[Index], args: Sequence[Expr], order: Sequence[Index]
) -> Value | None:
    """Sum over binders of a product that reads windows; None where it is no convolution."""
    every = [read for f in args for read in _window_positions(scope, f)]
    positions = _merged(scope.frame.bounds, every)
    if not 1 <= len(positions) <= _MOST_AXES:
        return None
    windows, of_weight = _windows_read(scope.frame.bounds, positions, binders, args)
    factors = _without_range(scope.frame.bounds, [_plain(scope, f) for f in args], windows)
    if len(windows) < len(positions) or factors is None:
        return None
    summed = [w.place if of_weight else w.within for w in windows]
    moving = frozenset(i for w in windows for i in (w.place, w.within))
    axes: dict[Polynomial, Index] = {}
    for w in windows:
        axes[w.edges[0]] = fresh(Index("u", w.extent), [*binders, *order, *axes.values()])
    source: list[Expr] = []
    weight: list[Expr] = []
    rest: list[Expr] = []
    for f in factors:
        along = _along(scope.frame.bounds, f, axes, moving)
        if along is not f:
            source.append(along)
        else:
            (rest if free_indices(f).isdisjoint(summed) else weight).append(f)
    read = moving.union(*map(free_indices, source))
    masks = [f for f in (*weight, *rest) if isinstance(f, Iverson) and free_indices(f) & moving]
    other = moving - frozenset(summed)
    if (
        any(free_indices(m) <= read for m in masks)
        or any(free_indices(f) & moving for f in source)
        or any(free_indices(f) & other for f in weight)
    ):
        # A condition on windows keeps out what they read: a product with 0 does not.
        return None
    along_axes = (tuple(axes.values()), tuple(summed))
    found = _operands(scope, (source, weight), rest, binders, order, along_axes)
    if found is None:
        return None
    operands, after = found
    value = (weight_gradient if of_weight else conv)(scope, operands, windows)
    return value if value is None else _with_factors(scope, value, after, order)


def transposed(
    scope: Scope, binders: Sequence[Index], args: Sequence[Expr], order: Sequence[Index]
) -> Value | None:
    """Sum over binders of a product placed along windows; None where it is no convolution."""
    place = {i: n for n, i in enumerate(order)}
    deltas = [f for f in args if isinstance(f, Delta)]
    deltas.sort(key=lambda d: place.get(d.axis, 0) if isinstance(d.axis, Index) else 0)
    axes = [d.axis for d in deltas if isinstance(d.axis, Index) and d.axis not in binders]
    if not 1 <= len(axes) == len(deltas) == len(set(axes)) <= _MOST_AXES:
        return None
    windows = _windows_placed(scope.frame.bounds, deltas, args, binders, order)
    rest = [_plain(scope, f) for f in args if not isinstance(f, Delta)]
    factors = _without_range(scope.frame.bounds, rest, windows)
    if len(windows) < len(deltas) or factors is None:
        return None
    sides = [w.place for w in windows], [w.within for w in windows]
    # delta(u, e) f(e) = f(u) delta(u, e), which is 0 wherever nothing is placed: so all must be.
    bounds, moving = scope.frame.bounds, frozenset((*sides[0], *sides[1]))
    reached = {w.edges[0]: u for w, u in zip(windows, axes, strict=True) if w.reaches_all(bounds)}
    if len(reached) == len(windows):
        factors = [_along(bounds, f, reached, moving) for f in factors]
    signal, weight, rest = _sorted(factors, *sides)
    found = _operands(scope, (signal, weight), rest, binders, order, tuple(map(tuple, sides)))
    if found is None:
        return None
    operands, after = found
    make = input_gradient if all(w.is_torch and w.counted for w in windows) else conv_transpose
    value = make(scope, operands, windows, axes)
    return value if value is None else _with_factors(scope, value, after, order)


def pooled(scope: Scope, binders: Sequence[Index], args: Sequence[Expr]) -> Value | None:
    """The mean over binders of what windows without gaps read; None where it is something else."""
    every = [read for f in args for read in _window_positions(scope, f)]
    positions = _merged(scope.frame.bounds, every)
    if not 1 <= len(positions) <= _MOST_AXES or any(isinstance(f, Iverson) for f in args):
        return None
    bounds = scope.frame.bounds
    found: list[Sliding | None] = []
    for p, extent in positions.items():
        free = [i for i in runs_over(bounds, p) or () if i not in binders]
        found.append(sliding(bounds, p, extent, free[0]) if len(free) == 1 else None)
    windows = _apart(found)
    if len(windows) < len(positions) or {w.within for w in windows} != set(binders):
        return None
    if any(w.place in w.turned or w.dilation != Polynomial.of(1) for w in windows):
        return None
    moving = frozenset(i for w in windows for i in (w.place, w.within))
    axes: dict[Polynomial, Index] = {}
    for w in windows:
        taken = [*(i for f in args for i in free_indices(f)), *axes.values()]
        axes[w.edges[0]] = fresh(Index("u", w.extent), taken)
    source = [_along(bounds, f, axes, moving) for f in args]
    if any(free_indices(f) & moving for f in source):
        return None
    body = source[0] if len(source) == 1 else Mul(tuple(source))
    return average(scope, body, tuple(axes.values()), windows)


# Windows


def _window_positions(
    scope: Scope, e: Expr, bound: frozenset[Index] = frozenset()
) -> Iterator[tuple[Expr, str]]:
    """The positions of two indices that e reads at, and the extents of the axes they are on."""
    if isinstance(e, Access):
        for n, p in enumerate(e.positions):
            if len(free_indices(bare(p))) == 2 and bound.isdisjoint(free_indices(p)):
                if len(runs_over(scope.frame.bounds, bare(p)) or ()) == 2:
                    home = [i for i in scope.tensor(e.tensor).axes if i is not None]
                    yield p, home[n].extent
    for part in e.parts():
        yield from _window_positions(scope, part, bound.union(e.bound()))


def _merged(bounds: Bounds, positions: Sequence[tuple[Expr, str]]) -> dict[Expr, str]:
    """Each position once: of those that differ by their guards, the one that says least.

    Nothing where one window is read on axes of different sizes: it is a window of one of them only.
    """
    found: dict[tuple[Polynomial | None, str], Expr] = {}
    sizes: dict[Polynomial | None, Polynomial] = {}
    for p, extent in positions:
        form = bounds.form(bare(p))
        if sizes.setdefault(form, bounds.size(extent)) != bounds.size(extent):
            return {}
        other = found.setdefault((form, extent), p)
        if len(_guards(p)) < len(_guards(other)):
            found[form, extent] = p
    return {p: extent for (_, extent), p in found.items()}


def _guards(p: Expr) -> tuple[Expr, ...]:
    return conditions_of(p.condition) if isinstance(p, Guard) else ()


def _along(
    bounds: Bounds, e: Expr, axes: Mapping[Polynomial, Index], moving: frozenset[Index]
) -> Expr:
    """e as it is along whole axes where it reads windows of them."""

    def axis_of(p: Expr) -> Index | None:
        inner = bare(p)
        form = bounds.form(inner) if len(free_indices(inner) & moving) == 2 else None
        return None if form is None else axes.get(form)

    def visit(part: Expr) -> Expr | None:
        if not moving.isdisjoint(part.bound()):
            return part
        if isinstance(part, Access):
            found = [axis_of(p) for p in part.positions]
            return Access(
                part.tensor,
                tuple(
                    replace(p, visit) if i is None else i
                    for p, i in zip(part.positions, found, strict=True)
                ),
            )
        return None

    return replace(e, visit)


def _windows_read(
    bounds: Bounds, positions: Mapping[Expr, str], binders: Sequence[Index], args: Sequence[Expr]
) -> tuple[list[Sliding], bool]:
    """The windows with one index summed, and whether that is the one that counts them.

    Where sizes do not say which one counts them, it is the one that is summed if the first axis
    of what is read is summed too: there torch has the axis that a gradient in a weight sums over.
    """
    every = [a for f in args for a in walk(f) if isinstance(a, Access)]
    read = [a for a in every if any(p in positions for p in a.positions)]
    first = [next((i for i in a.positions if isinstance(i, Index)), None) for a in read]
    found: list[Sliding | None] = []
    others: list[Sliding | None] = []
    for p, extent in positions.items():
        runs = runs_over(bounds, bare(p)) or {}
        summed, free = ([i for i in runs if (i in binders) == s] for s in (True, False))
        if len(summed) != 1:
            return [], False
        w = sliding(bounds, p, extent)
        if w is not None and not w.chosen:
            by = summed if any(i in binders for i in first) else free
            w = sliding(bounds, p, extent, by[0])
        found.append(w)
        others.append(sliding(bounds, p, extent, free[0]))
    of_weight = all(w is not None and w.place in binders for w in found)
    return _apart(found if of_weight else others), of_weight


def _windows_placed(
    bounds: Bounds,
    deltas: Sequence[Delta],
    args: Sequence[Expr],
    binders: Sequence[Index],
    order: Sequence[Index],
) -> list[Sliding]:
    """The windows that deltas place values along, both indices summed.

    Where sizes do not say which index counts them, it is that of the operand whose axes come
    first in the result.
    """
    factors = [f for f in args if not isinstance(f, Delta)]

    def first(i: Index) -> int:
        around = [j for f in factors if i in free_indices(f) for j in free_indices(f)]
        return min((order.index(j) for j in around if j in order), default=len(order))

    found: list[Sliding | None] = []
    for d in deltas:
        assert isinstance(d.axis, Index)
        w = sliding(bounds, d.position, d.axis.extent)
        if w is not None and not (w.place in binders and w.within in binders):
            w = None
        if w is not None and not w.counted and first(w.within) < first(w.place):
            w = sliding(bounds, d.position, d.axis.extent, w.within)
        found.append(w)
    return _apart(found)


def _apart(windows: Sequence[Sliding | None]) -> list[Sliding]:
    """Those there are, if each has indices of its own."""
    found = [w for w in windows if w is not None]
    indices = [i for w in found for i in (w.place, w.within)]
    return found if len(set(indices)) == len(indices) else []


# Factors


def _without_range(
    bounds: Bounds, args: Sequence[Expr], windows: Sequence[Sliding]
) -> list[Expr] | None:
    """The factors without the conditions that keep windows on their axes, or always hold.

    None where a guard has a condition that stands in no bracket beside it.
    """
    factors: list[Expr] = []
    edges = [form for w in windows for form in w.edges]
    given = []
    for f in args:
        if not isinstance(f, Iverson):
            factors.append(f)
            continue
        for c in conditions_of(f.condition):
            form = gap(bounds, c)
            if form in edges:
                given.append(form)
            elif bounds.holds(c) is not True:
                factors.append(Iverson(c))
    return factors if all(form in given for w in windows for form in w.needed) else None


def _plain(scope: Scope, e: Expr) -> Expr:
    """e without guards around whole indices, which stay on the axis everywhere."""

    def visit(part: Expr) -> Expr | None:
        if not isinstance(part, Access) or not any(isinstance(p, Guard) for p in part.positions):
            return None
        home = [i for i in scope.tensor(part.tensor).axes if i is not None]
        positions = []
        for p, axis in zip(part.positions, home, strict=True):
            inner = bare(p)
            whole = isinstance(inner, Index) and inner.extent == axis.extent
            positions.append(inner if whole else replace(p, visit))
        return Access(part.tensor, tuple(positions))

    return replace(e, visit)


def _sorted(
    factors: Sequence[Expr], one: Sequence[Index], other: Sequence[Index]
) -> tuple[list[Expr], list[Expr], list[Expr]]:
    """The factors with indices of the one kind, of the other, and of neither."""
    result: tuple[list[Expr], list[Expr], list[Expr]] = ([], [], [])
    for f in factors:
        free = free_indices(f)
        result[0 if free & set(one) else 1 if free & set(other) else 2].append(f)
    return result


def _operands(
    scope: Scope,
    parts: tuple[Sequence[Expr], Sequence[Expr]],
    rest: Sequence[Expr],
    binders: Sequence[Index],
    order: Sequence[Index],
    axes: Sequence[Sequence[Index]],
) -> tuple[Operands, list[Expr]] | None:
    """Two operands that have these axes, and factors of the result.

    A factor belongs to an operand that has its indices, a bracket to both if both have them.
    None where an operand lacks an axis or has one of the other, or a factor belongs nowhere.
    """
    masks = [f for f in (*parts[0], *parts[1], *rest) if isinstance(f, Iverson)]
    one, other = ([f for f in part if f not in masks] for part in parts)
    have = [frozenset().union(*map(free_indices, side)) for side in (one, other)]
    after: list[Expr] = []
    for f in rest:
        if f in masks:
            continue
        if free_indices(f) <= have[1]:
            other.append(f)
        elif free_indices(f) <= have[0]:
            one.append(f)
        elif free_indices(f).isdisjoint(binders):
            after.append(f)
        else:
            return None
    for m in masks:
        covering = [
            side for side, free in zip((one, other), have, strict=True) if free_indices(m) <= free
        ]
        if not covering and not free_indices(m).isdisjoint(binders):
            return None
        if not covering:
            after.append(m)
        for side in covering:
            side.insert(0, m)
    for n in (0, 1):
        if not set(axes[n]) <= have[n] or not have[n].isdisjoint(axes[1 - n]):
            return None
    left, right = (have[n] - set(axes[n]) for n in (0, 1))
    summed = set(binders)
    bodies = []
    for side, own in ((one, left - right), (other, right - left)):
        body = side[0] if len(side) == 1 else Mul(tuple(side))
        lost = tuple(i for i in layout(body) if i in own & summed)
        bodies.append(Reduce("sum", lost, body) if lost else body)
    result = [i for i in order if i in (left | right) - summed]
    operands = Operands(
        bodies=(bodies[0], bodies[1]),
        axes=(tuple(axes[0]), tuple(axes[1])),
        first=tuple(i for i in result if i not in right),
        groups=tuple(i for i in result if i in left & right),
        shared=tuple(i for i in layout(bodies[0]) if i in left & right & summed),
        second=tuple(i for i in result if i not in left),
    )
    return operands, after


def _with_factors(
    scope: Scope, value: Value, factors: Sequence[Expr], order: Sequence[Index]
) -> Value:
    for f in sorted(factors, key=lambda f: isinstance(f, Iverson)):
        if isinstance(f, Iverson):
            zero = Value(literal(0), kind="int", scalar=True)
            value = scope.where(scope.condition(f.condition, order), value, zero, order)
        else:
            value = times(scope.frame, value, scope.as_float(scope.lower(f, order)), order)
    return value

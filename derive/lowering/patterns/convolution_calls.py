"""Convolutions, found by their structure, along one, two or three axes.

    sum[c,k]    X[n,g,c, s*t + d*k - p] * W[g,o,c,k]               a convolution
    sum[n,t]    X[n,g,c, s*t + d*k - p] * Y[n,g,o,t]               its gradient in W
    sum[o,t,k]  delta(u, s*t + d*k - p) * Y[n,g,o,t] * W[g,o,c,k]  its gradient in X, or transposed

The occurrences of an index determine its role: in both operands and the result (a group), in both
and summed, or in one operand and the result. A role may have any number of indices, even none.
Any other sum is left to the general lowering.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Access,
    Add,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    accesses,
    factors_of,
    free_indices,
    indices_of,
    num,
    product_of,
    sum_of,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of
from derive.algebra.substitution import fresh, replace
from derive.calculus.lets import layout
from derive.lowering.ground.context import Scope
from derive.lowering.ground.contract import elementwise_product
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Indices, Value
from derive.lowering.ground.windows import unguarded_position
from derive.lowering.patterns.convolutions import (
    Operands,
    average,
    conv_forward,
    conv_transpose,
    input_gradient,
    operand_values,
    pool_gradient,
    weight_gradient,
)
from derive.lowering.patterns.unfold import Sliding, nonnegative_form, runs_over, sliding

_MOST_AXES = 3


def convolution(scope: Scope, s: Summation) -> Value | None:
    """Sum_{c,k} X[c, s*t + d*k] W[c, k] = conv(X, W)[t]."""
    bounds, positions = scope.frame.bounds, _positions_read(scope, s.factors)
    windows, of_weight = _summed_windows(bounds, positions, s) if positions else ([], False)
    if not windows or len(windows) < len(positions):
        return None
    factors = _without_range(bounds, s.factors, windows)
    if factors is None:
        return None
    axes, moving = _whole_axes(windows, [*s.binders, *s.order]), _moving(windows)
    summed = tuple(w.place if of_weight else w.within for w in windows)
    along = [(f, _along_whole_axes(bounds, f, axes, moving)) for f in factors]
    if any(new is not f and not moving.isdisjoint(free_indices(new)) for f, new in along):
        # A factor mixes window reads and window indices: distribute over the terms of a sum.
        parts = [convolution(scope, t) for t in _distribute_sum(s)]
        held = [scope.held(v) for v in parts if v is not None]
        return scope.lower(sum_of(held), s.order) if held and len(held) == len(parts) else None
    source = [new for f, new in along if new is not f]
    other = [f for f, new in along if new is f]
    weight, rest = _with_any(other, summed)
    if indices_of(source) & moving or indices_of(weight) & (moving - frozenset(summed)):
        return None
    read = moving | indices_of(source)
    if any(free_indices(f) <= read and free_indices(f) & moving for f in _bracket_factors(other)):
        # A mask on windows excludes what they read; a product with 0 would not.
        return None
    found = _convolution_operands(scope, (source, weight), rest, s, (tuple(axes.values()), summed))
    if found is None:
        return None
    operands, after = found
    made = (weight_gradient if of_weight else conv_forward)(scope, operands, windows)
    return _with_factors(scope, made, after, s)


def transposed_convolution(scope: Scope, s: Summation) -> Value | None:
    """Sum_{t,k} delta(u, s*t + d*k) Y[t] W[k] = conv_transpose(Y, W)[u]."""
    bounds, deltas = scope.frame.bounds, _deltas(s)
    if not deltas:
        return None
    windows = _windows_placed(bounds, deltas, s)
    if len(windows) < len(deltas):
        return None
    rest = [f for f in s.factors if not isinstance(f, Delta)]
    factors = _without_range(bounds, rest, windows)
    if factors is None:
        return None
    # delta(u, e) f(e) = f(u) delta(u, e) is 0 where nothing is placed, so windows must cover all.
    if all(w.reaches_all(bounds) for w in windows):
        reached = {w.edges[0]: u for w, u in zip(windows, deltas, strict=True)}
        factors = [_along_whole_axes(bounds, f, reached, _moving(windows)) for f in factors]
        if any(_is_mixed(f, set(deltas), _moving(windows)) for f in factors):
            terms = [t.expr for t in _distribute_sum(s)]
            return scope.lower(sum_of(terms), s.order) if terms else None
    sides = tuple(w.place for w in windows), tuple(w.within for w in windows)
    signal, rest = _with_any(factors, sides[0])
    weight, rest = _with_any(rest, sides[1])
    if not weight:
        # A factor with the target axis multiplies the result.
        after, rest = _with_any([*signal, *rest], list(deltas))
        made = _spread_over_windows(scope, s, rest, windows, list(deltas))
        return None if made is None else _with_factors(scope, made, after, s)
    found = _convolution_operands(scope, (signal, weight), rest, s, sides)
    if found is None:
        return None
    operands, after = found
    make = input_gradient if all(w.is_torch and w.counted for w in windows) else conv_transpose
    return _with_factors(scope, make(scope, operands, windows, list(deltas)), after, s)


def _is_mixed(f: Expr, axes: AbstractSet[Index], moving: AbstractSet[Index]) -> bool:
    """True if a factor has both a target axis and an index of a window along it."""
    free = free_indices(f)
    return not (free.isdisjoint(axes) or free.isdisjoint(moving))


def _distribute_sum(s: Summation) -> list[Summation]:
    """Distribute Sum f*(a + b) to Sum f*a and Sum f*b; empty unless there is exactly one sum."""
    sums = [f for f in s.factors if isinstance(f, Add)]
    others = [f for f in s.factors if f not in sums]
    terms = sums[0].args if len(sums) == 1 else ()
    return [Summation(s.binders, (*others, *factors_of(a)), s.order) for a in terms]


def _spread_over_windows(
    scope: Scope, s: Summation, factors: Sequence[Expr], windows: Sequence[Sliding], axes: Indices
) -> Value | None:
    """Lower a value that is constant along whole windows without gaps."""
    plain = all(w.is_torch and w.counted and w.before == Polynomial({}) for w in windows)
    near = all(not w.turned and w.dilation == Polynomial.of(1) for w in windows)
    if not plain or not near or _bracket_factors(factors) or set(s.binders) != _moving(windows):
        return None
    if not indices_of(factors).isdisjoint(w.within for w in windows):
        return None
    return pool_gradient(scope, product_of(factors), tuple(axes), windows)


def _deltas(s: Summation) -> dict[Index, Delta]:
    """Return the deltas by axis, in the order of the result; empty if one axis is not in it."""
    deltas = {f.axis: f for f in s.factors if isinstance(f, Delta)}
    axes = [i for i in s.order if i in deltas and i not in s.binders]
    every = sum(isinstance(f, Delta) for f in s.factors)
    return {i: deltas[i] for i in axes} if len(axes) == every <= _MOST_AXES else {}


def _with_any(factors: Sequence[Expr], indices: Indices) -> tuple[list[Expr], list[Expr]]:
    """Return the factors that have any of the indices, and the others."""
    have = [f for f in factors if not free_indices(f).isdisjoint(indices)]
    return have, [f for f in factors if f not in have]


def _bracket_factors(factors: Sequence[Expr]) -> list[Expr]:
    return [f for f in factors if isinstance(f, Iverson)]


def pooled(scope: Scope, s: Summation) -> Value | None:
    """mean_k X[s*t + k] = avg_pool(X)[t]."""
    bounds, positions = scope.frame.bounds, _positions_read(scope, s.factors)
    if not positions or s.brackets:
        return None
    found: list[Sliding | None] = []
    for p, extent in positions.items():
        free = [i for i in runs_over(bounds, p) or () if i not in s.binders]
        found.append(sliding(bounds, p, extent, free[0]) if len(free) == 1 else None)
    windows = _disjoint_windows(found)
    if len(windows) < len(positions) or {w.within for w in windows} != set(s.binders):
        return None
    if any(w.place in w.turned or w.dilation != Polynomial.of(1) for w in windows):
        return None
    axes = _whole_axes(windows, indices_of(s.factors))
    source = [_along_whole_axes(bounds, f, axes, _moving(windows)) for f in s.factors]
    if indices_of(source) & _moving(windows):
        return None
    return average(scope, product_of(source), tuple(axes.values()), windows)


# Windows


def _positions_read(scope: Scope, factors: Sequence[Expr]) -> dict[Expr, str]:
    """Return the distinct window positions, with the extents of their axes.

    Of positions that differ only in guards, the one with the fewest conditions is returned. The
    result is empty for too many positions, or if one is read on axes of different sizes.
    """
    bounds = scope.frame.bounds
    found: dict[tuple[Polynomial | None, str], Expr] = {}
    sizes: dict[Polynomial | None, Polynomial] = {}
    for p, extent in (read for f in factors for read in _window_positions(scope, f)):
        form = bounds.form(unguarded_position(p))
        if sizes.setdefault(form, bounds.size(extent)) != bounds.size(extent):
            return {}
        other = found.setdefault((form, extent), p)
        if len(_guard_conditions(p)) < len(_guard_conditions(other)):
            found[form, extent] = p
    made = {p: extent for (_, extent), p in found.items()}
    return made if len(made) <= _MOST_AXES else {}


def _window_positions(
    scope: Scope, e: Expr, bound: frozenset[Index] = frozenset()
) -> Iterator[tuple[Expr, str]]:
    """Yield the positions of e with two indices, and the extents of their axes."""
    if isinstance(e, Access):
        for n, p in enumerate(e.positions):
            if len(free_indices(unguarded_position(p))) == 2 and bound.isdisjoint(free_indices(p)):
                if len(runs_over(scope.frame.bounds, unguarded_position(p)) or ()) == 2:
                    yield p, scope.tensor(e.tensor).indices[n].extent
    for part in e.parts():
        yield from _window_positions(scope, part, bound.union(e.bound()))


def _guard_conditions(p: Expr) -> tuple[Expr, ...]:
    return conditions_of(p.condition) if isinstance(p, Guard) else ()


def _summed_windows(
    bounds: Bounds, positions: Mapping[Expr, str], s: Summation
) -> tuple[list[Sliding], bool]:
    """Return the windows with one summed index, and whether that index counts the windows.

    If the sizes leave open which index counts the windows, it is the summed one if the first axis
    of the read tensor is summed too: this is torch's layout of a weight gradient.
    """
    read = [a for f in s.factors for a in accesses(f) if not set(positions).isdisjoint(a.positions)]
    first = [next((i for i in a.positions if isinstance(i, Index)), None) for a in read]
    found: list[Sliding | None] = []
    others: list[Sliding | None] = []
    for p, extent in positions.items():
        runs = runs_over(bounds, unguarded_position(p)) or {}
        summed, free = ([i for i in runs if (i in s.binders) == is_summed] for is_summed in (1, 0))
        if len(summed) != 1:
            return [], False
        w = sliding(bounds, p, extent)
        if w is not None and not w.chosen:
            by = summed if any(i in s.binders for i in first) else free
            w = sliding(bounds, p, extent, by[0])
        found.append(w)
        others.append(sliding(bounds, p, extent, free[0]))
    of_weight = all(w is not None and w.place in s.binders for w in found)
    return _disjoint_windows(found if of_weight else others), of_weight


def _windows_placed(bounds: Bounds, deltas: Mapping[Index, Delta], s: Summation) -> list[Sliding]:
    """Return the windows along which deltas scatter values, both indices summed.

    If the sizes leave open which index counts the windows, it is that of the operand whose axes
    come first in the result.
    """
    factors = [f for f in s.factors if not isinstance(f, Delta)]

    def first(i: Index) -> int:
        around = indices_of(f for f in factors if i in free_indices(f))
        return min((n for n, j in enumerate(s.order) if j in around), default=len(s.order))

    found: list[Sliding | None] = []
    for axis, d in deltas.items():
        w = sliding(bounds, d.position, axis.extent)
        if w is not None and not {w.place, w.within}.issubset(s.binders):
            w = None
        if w is not None and not w.counted and first(w.within) < first(w.place):
            w = sliding(bounds, d.position, axis.extent, w.within)
        found.append(w)
    return _disjoint_windows(found)


def _disjoint_windows(windows: Sequence[Sliding | None]) -> list[Sliding]:
    """Return the windows that exist, if no two of them share an index."""
    found = [w for w in windows if w is not None]
    return found if len(_moving(found)) == 2 * len(found) else []


def _moving(windows: Sequence[Sliding]) -> frozenset[Index]:
    return frozenset(i for w in windows for i in (w.place, w.within))


def _whole_axes(windows: Sequence[Sliding], taken: Iterable[Index]) -> dict[Polynomial, Index]:
    """Return a fresh index for each axis with windows, by the position form."""
    axes: dict[Polynomial, Index] = {}
    for w in windows:
        axes[w.edges[0]] = fresh(Index("u", w.extent), [*taken, *axes.values()])
    return axes


def _along_whole_axes(
    bounds: Bounds, e: Expr, axes: Mapping[Polynomial, Index], moving: frozenset[Index]
) -> Expr:
    """Return e with window reads replaced by reads along whole axes."""

    def axis_of(p: Expr) -> Index | None:
        inner = unguarded_position(p)
        form = bounds.form(inner) if len(free_indices(inner) & moving) == 2 else None
        return None if form is None else axes.get(form)

    def visit(part: Expr) -> Expr | None:
        if not moving.isdisjoint(part.bound()):
            return part
        if isinstance(part, Access):
            read = (axis_of(p) or replace(p, visit) for p in part.positions)
            return Access(part.tensor, tuple(read))
        return None

    return replace(e, visit)


# Factors


def _without_range(
    bounds: Bounds, args: Sequence[Expr], windows: Sequence[Sliding]
) -> list[Expr] | None:
    """Return the factors without conditions that keep windows on their axes or always hold.

    None if a guard has a condition that no bracket beside it has.
    """
    factors: list[Expr] = []
    edges = [form for w in windows for form in w.edges]
    given = []

    def bare_operand(e: Expr) -> Expr | None:
        if not isinstance(e, Guard) or e.elsewhere == num(0):
            return None
        conditions = conditions_of(e.condition)
        certain = all(nonnegative_form(bounds, c) in edges or bounds.holds(c) for c in conditions)
        return replace(e.position, bare_operand) if certain else None

    for f in args:
        if not isinstance(f, Iverson):
            factors.append(replace(f, bare_operand))
            continue
        for c in conditions_of(f.condition):
            form = nonnegative_form(bounds, c)
            if form in edges:
                given.append(form)
            elif bounds.holds(c) is not True:
                factors.append(Iverson(c))
    return factors if all(form in given for w in windows for form in w.needed) else None


def _convolution_operands(
    scope: Scope,
    parts: tuple[Sequence[Expr], Sequence[Expr]],
    rest: Sequence[Expr],
    s: Summation,
    axes: tuple[tuple[Index, ...], tuple[Index, ...]],
) -> tuple[Operands, list[Expr]] | None:
    """Return two operands that have these axes, and factors of the result.

    A factor belongs to an operand that has its indices, a bracket to both if both have them.
    None if an operand lacks an axis or has one of the other, or if a factor belongs nowhere.
    """
    masks = _bracket_factors((*parts[0], *parts[1], *rest))
    sides = tuple([f for f in part if f not in masks] for part in parts)
    have = [indices_of(side) for side in sides]
    after: list[Expr] = []
    for f in (*(f for f in rest if f not in masks), *masks):
        covering = [n for n in (1, 0) if free_indices(f) <= have[n]]
        if not covering and not free_indices(f).isdisjoint(s.binders):
            return None
        if not covering:
            after.append(f)
        elif f not in masks:
            sides[covering[0]].append(f)
        else:
            for n in covering:
                sides[n].insert(0, f)
    for n in (0, 1):
        if not have[n].issuperset(axes[n]) or not have[n].isdisjoint(axes[1 - n]):
            return None
    made = _with_roles(scope, [product_of(side) for side in sides], have, s, axes)
    return None if made is None else (made, after)


def _with_roles(
    scope: Scope,
    bodies: Sequence[Expr],
    have: Sequence[frozenset[Index]],
    s: Summation,
    axes: tuple[tuple[Index, ...], tuple[Index, ...]],
) -> Operands | None:
    """Return the operands, summed over indices of one alone, and the roles of the indices."""
    left, right = (have[n] - set(axes[n]) for n in (0, 1))
    summed = frozenset(s.binders)
    alone = [own & summed for own in (left - right, right - left)]
    totals = [
        summed_product([i for i in layout(body) if i in lost], [body])
        for body, lost in zip(bodies, alone, strict=True)
    ]
    values = operand_values(scope, totals)
    if values is None:
        return None
    result = [i for i in s.order if i in (left | right) - summed]
    return Operands(
        values=values,
        axes=axes,
        first=tuple(i for i in result if i not in right),
        groups=tuple(i for i in result if i in left & right),
        shared=tuple(i for i in layout(totals[0]) if i in left & right & summed),
        second=tuple(i for i in result if i not in left),
    )


def _with_factors(scope: Scope, value: Value, factors: Sequence[Expr], s: Summation) -> Value:
    """Return the value times the remaining factors, brackets last."""
    for f in sorted(factors, key=lambda f: isinstance(f, Iverson)):
        if isinstance(f, Iverson):
            value = scope.only_where(f.condition, value, s.order)
        else:
            other = scope.as_float(scope.lower(f, s.order))
            value = elementwise_product(scope.frame, value, other, s.order)
    return value


# --------------------------------------------------------------------
# Sums of a convolution times another factor, without unfolding the windows.
#
# Sum_{t,c,k} G[t] X[c, s*t + d*k] W[c, k]  =  Sum_t G[t] conv(X, W)[t]


def convolution_within(scope: Scope, s: Summation) -> Value | None:
    """Sum_{t,c,k} G[t] X[c, s*t + d*k] W[c, k] = Sum_t G[t] conv(X, W)[t]."""
    if len(s.others) < 3:
        return None

    def is_pulled_back(f: Expr) -> bool:
        """A cotangent is read by other gradients too, beside the same windows."""
        return any(a.tensor.startswith("@") for a in accesses(f))

    for beside in sorted(s.others, key=is_pulled_back):
        rest = tuple(f for f in s.factors if f is not beside)
        inside = tuple(i for i in s.binders if i not in free_indices(beside))
        if inside and len(inside) < len(s.binders) and set(inside) <= indices_of(rest):
            around = tuple(i for i in layout(product_of(rest)) if i not in inside)
            made = convolution(scope, Summation(inside, rest, around))
            if made is not None:
                outside = [i for i in s.binders if i not in inside]
                return scope.lower(summed_product(outside, [beside, scope.held(made)]), s.order)
    return None

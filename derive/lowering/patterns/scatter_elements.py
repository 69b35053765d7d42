"""Deltas that no sum eliminated: values scattered to positions of a new axis.

Sum_k delta(i, e(k)) f(k)  =  f at i = e(k), zeros elsewhere
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.affine import Polynomial, affine
from derive.algebra.expr import (
    Access,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Num,
    Param,
    Reduce,
    Rel,
    Size,
    accesses,
    factors_of,
    free_indices,
    indices_of,
    is_number,
    sum_of,
    walk,
)
from derive.algebra.factor import factor
from derive.algebra.logic import conjunction
from derive.algebra.reductions import POSITIONS
from derive.algebra.substitution import rename_apart, substitute
from derive.calculus.equality_rules import range_of
from derive.calculus.lets import layout
from derive.kernels.kernel_spec import AttentionResult, Kernel, KernelResult
from derive.lowering.ground.axis_order import binders_for_axis, renaming
from derive.lowering.ground.context import Scope
from derive.lowering.ground.gather import (
    add_at,
    joined_positions,
    placed_axes,
    put_at,
    with_gather_suffix,
)
from derive.lowering.ground.guard_lowering import under_condition
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Indices, Value, axis_size, zeros
from derive.lowering.ground.windows import (
    Window,
    affine_window,
    lies_inside,
    number_of,
    padded_along,
)
from derive.lowering.patterns.reads import may_be_empty_axis, may_lack_positions, zero_if_empty
from derive.notation.smart_constructors import product
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Dim,
    FunctionCall,
    Keyword,
    MethodCall,
    Shape,
    Tuple,
    joined,
    literal,
)


@dataclass(frozen=True)
class Placement:
    """Values scattered to positions of new axes, summed over indices of these positions."""

    source: Value
    targets: tuple[tuple[Index, Expr], ...]
    """Each new axis with the position on it."""
    summed: tuple[Index, ...]
    order: tuple[Index, ...]
    base: Code | None
    """The tensor to add to, with all axes of the order; None for zeros."""

    @property
    def only(self) -> tuple[Index, Expr] | None:
        """The target, if it is the only one."""
        return self.targets[0] if len(self.targets) == 1 else None


Placed = tuple[Value, bool]
"""The value, and whether it was added into the base."""


def as_summation(e: Expr, order: Indices) -> Summation:
    """Return a product, at most one of whose factors is a sum with deltas, as one sum."""
    binders: tuple[Index, ...] = ()
    factors: list[Expr] = []
    coef = Fraction(1)
    for a in factors_of(e):
        if isinstance(a, Num):
            coef *= a.value
        elif isinstance(a, Reduce) and a.kind == "sum":
            own = rename_apart(a.indices, (*binders, *free_indices(e)))
            inside = factors_of(substitute(a.body, renaming(a.indices, own)))
            if any(isinstance(f, Delta) for f in inside) and not _widens(e, a):
                binders += own
                factors += inside
            else:
                factors.append(a)
        else:
            factors.append(a)
    number = () if coef == 1 else (Num(coef),)
    return Summation(binders, (*number, *factors), tuple(order))


def _widens(e: Expr, total: Reduce) -> bool:
    """True if a factor beside the sum has axes that the sum lacks: it multiplies the result."""
    beside = (f for f in factors_of(e) if f is not total)
    return any(not free_indices(f) <= free_indices(total) for f in beside)


def is_placed(e: Expr) -> bool:
    """True if the addend has a delta after its sums."""
    return any(isinstance(f, Delta) for f in as_summation(e, ()).factors)


def at_the_same_places(addends: Sequence[Expr], order: Indices) -> list[Expr]:
    """Return the addends, merging those with equal positions: delta(i, e)*(f + g)."""
    found: dict[tuple[Expr, ...], list[Summation]] = {}
    made: list[Expr] = []
    for e in addends:
        s = as_summation(e, order)
        if key := _places_of(s):
            found.setdefault(key, []).append(s)
        else:
            made.append(e)
    for several in found.values():
        first = several[0]
        if len(several) == 1:
            made.append(first.expr)
            continue
        deltas = [f for f in first.factors if isinstance(f, Delta)]
        inside = _placing(first)
        contents = [
            substitute(_scattered_content(s), renaming(_placing(s), inside)) for s in several
        ]
        made.append(summed_product(inside, (*deltas, sum_of(contents))))
    return made


def _placing(s: Summation) -> tuple[Index, ...]:
    """Return the summed indices of the positions, in the order of their first occurrence."""
    deltas = [f for f in s.factors if isinstance(f, Delta)]
    read = dict.fromkeys(
        i for d in deltas for e in (d.axis, d.position) for i in walk(e) if isinstance(i, Index)
    )
    return tuple(i for i in read if i in s.binders)


def _scattered_content(s: Summation) -> Expr:
    """Return the scattered value, summed over the indices that no position has."""
    inside = _placing(s)
    rest = [f for f in s.factors if not isinstance(f, Delta)]
    return product(_summed_first(rest, [i for i in s.binders if i not in inside]))


def _places_of(s: Summation) -> tuple[Expr, ...]:
    """Return the deltas with canonical names of the summed indices; empty if brackets occur.

    Deltas along windows are left out, since a term of those may be a convolution.
    """
    deltas = [f for f in s.factors if isinstance(f, Delta)]
    if not deltas or s.brackets or any(_is_in_windows(d.position) for d in deltas):
        return ()
    inside = _placing(s)
    names: dict[Index, Expr] = {i: Index(f"%{n}", i.extent, i.group) for n, i in enumerate(inside)}
    return tuple(substitute(d, names) for d in deltas)


def _is_in_windows(position: Expr) -> bool:
    found = affine(position)
    steps = [] if found is None else [c.number for c in found.coefficients.values()]
    return len(steps) > 1 and None not in steps


def only_if(scope: Scope, s: Summation) -> Value | None:
    """[c] f = f if c else 0.

    For a condition on numbers: the target position may not exist. delta(i, 7) f(i) = f(7) delta(i,
    7) if 7 < size(i) else 0: f has no value at 7 otherwise.
    """
    ranges: list[Expr] = []
    factors = list(s.factors)
    for d in (f for f in s.factors if isinstance(f, Delta) and is_number(f.position)):
        at, position = d.axis, scope.frame.bounds.form(d.position)
        read = [f for f in factors if f is not d and at in free_indices(f)]
        if isinstance(at, Index) and at not in s.binders and position is not None and read:
            if unproven := range_of(scope.frame.bounds, at, position):
                ranges += unproven
                factors = [substitute(f, {at: d.position}) if f in read else f for f in factors]
    asked = [b for b in factors if isinstance(b, Iverson) and is_number(b)]
    if not asked and not ranges:
        return None
    condition = conjunction([*ranges, *(b.condition for b in asked)])
    others = summed_product(s.binders, [f for f in factors if f not in asked])
    value = scope.lower(under_condition(others, condition), s.order)
    return scope.only_where(condition, value, s.order)


def placement(scope: Scope, s: Summation, base: Code | None) -> Placement | Expr:
    """Return the values with their targets, or the expression to lower if no target remains."""
    targets, rest = targets_of(s)
    free = indices_of(p for _, p in targets)
    loose = tuple(i for i in s.binders if i not in free)
    summed = tuple(i for i in s.binders if i in free)
    content = product(_summed_first(rest, loose))
    if not targets:
        return content
    axes = [axis for axis, _ in targets]
    order = [i for i in s.order if i not in axes[1:]]
    inner = binders_for_axis(axes[0], order, summed, Mul((*(p for _, p in targets), content)))
    source = scope.as_float(scope.lower(content, inner))
    if source.scalar:
        source = scope.frame.expand(source, [i for i in inner if i in free], scope.like)
    return Placement(scope.frame.squeeze(source), tuple(targets), summed, s.order, base)


def targets_of(s: Summation) -> tuple[list[tuple[Index, Expr]], list[Expr]]:
    """Return the axes with their scatter positions, and the other factors."""
    deltas = [f for f in s.factors if isinstance(f, Delta)]
    rest = [f for f in s.factors if not isinstance(f, Delta)]
    targets: list[tuple[Index, Expr]] = []
    tests: list[Expr] = []
    while deltas:
        delta = _outermost(deltas)
        deltas.remove(delta)
        axis, position = delta.axis, delta.position
        if not isinstance(axis, Index) and isinstance(position, Index):
            axis, position = position, axis
        if _is_target(axis, position, s.binders, targets) and not _runs_along(rest, axis):
            assert isinstance(axis, Index)
            # delta(i, e) f(i) = delta(i, e) f(e)
            there = {axis: position}
            rest, tests = ([substitute(f, there) for f in part] for part in (rest, tests))
            sides = ((substitute(x, there) for x in (d.axis, d.position)) for d in deltas)
            deltas = [Delta(*pair) for pair in sides]
            targets.append((axis, position))
        else:
            tests.append(Iverson(Rel("==", axis, position)))
    return targets, [*tests, *rest]


def _runs_along(factors: Sequence[Expr], axis: Expr) -> bool:
    """True if a kernel computes all values along the axis at once."""
    parts = [e for f in factors for e in walk(f)]
    runs = [e.along for e in parts if isinstance(e, Kernel)]
    runs += [e.axes for e in parts if isinstance(e, KernelResult)]
    runs += [(*e.batch, *e.ends) for e in parts if isinstance(e, AttentionResult)]
    return any(axis in own for own in runs)


def _outermost(deltas: Sequence[Delta]) -> Delta:
    """Return a delta whose position reads no axis of another delta."""
    for d in deltas:
        axes = [x.axis for x in deltas if x is not d]
        if not any(i in axes for i in free_indices(d.position)):
            return d
    return deltas[0]


def _is_target(
    axis: Expr, position: Expr, binders: Indices, targets: Sequence[tuple[Index, Expr]]
) -> bool:
    """True if the term is scattered along this axis; otherwise the delta is a comparison."""
    if not isinstance(axis, Index) or axis in binders or axis in free_indices(position):
        return False
    if isinstance(position, Index) and position not in binders and position.extent != axis.extent:
        return False
    taken = [a for a, _ in targets]
    read = indices_of(p for _, p in targets)
    return axis not in taken and axis not in read and free_indices(position).isdisjoint(taken)


def _summed_first(factors: Sequence[Expr], indices: Indices) -> list[Expr]:
    """Return the factors of the sum over these indices, with invariant factors outside."""
    inside = [f for f in factors if not free_indices(f).isdisjoint(indices)]
    if not indices_of(inside).issuperset(indices):
        inside = [f for f in factors if not isinstance(f, Num)]
    outside = [f for f in factors if f not in inside]
    return [*outside, Reduce("sum", tuple(indices), product(inside))] if indices else outside


# One target


def on_diagonal(scope: Scope, p: Placement) -> Placed | None:
    """delta(i, j) f(j) = diag_embed(f)[j, i]."""
    axis, position = p.only or (None, None)
    if axis is None or not isinstance(position, Index) or position in p.summed:
        return None
    source = p.source
    if position not in source.indices:
        source = scope.frame.expand(source, [*source.indices, position], scope.like)
    others = [i for i in source.indices if i is not position]
    source = scope.frame.permute(source, [*others, position]).call("diag_embed")
    return Value(source.code, (*others, position, axis)), False


def in_a_run(scope: Scope, p: Placement) -> Placed | None:
    """Sum_k delta(i, s + n*k) f(k) = zeros.slice_scatter(f, s, n)[i]."""
    if p.only is None:
        return None
    axis, position = p.only
    w = affine_window(scope.frame.bounds, position)
    if w is None or w.index not in p.summed or w.step < 0:
        return None
    if isinstance(position, Index) or lies_inside(scope.frame.bounds, w, axis.extent):
        return _scatter_run(scope, p.source, axis, w), False
    return None


def at_computed(scope: Scope, p: Placement) -> Placed | None:
    """Sum_k delta(i, e(k)) f(k) = zeros.index_add(e, f)[i]."""
    if p.only is None:
        return None
    axis, position = p.only
    if not any(isinstance(x, Access) for x in walk(position)) and not _is_free(position, p.summed):
        return None
    index = scope.lower(factor(position), _like_source(p.source, position))
    if index.scalar:
        return None
    have = {axis, *p.source.indices, *index.indices} - set(p.summed)
    base = p.base if have == set(p.order) else None
    args = p.source, axis, index, p.summed, p.order, base, scope.like
    made = add_at(scope.frame, *args)
    if may_lack_positions(scope, position, axis.extent):
        code = with_gather_suffix(made.code, made.code.parts()[0], "if_any")
        made = replace(made, code=code)
    return made, base is not None


# Several targets


def at_numbers(scope: Scope, p: Placement) -> Placed | None:
    """delta(i, m) delta(j, n) f = f with zeros around it.

    The places are constants or functions of sizes.
    """
    found = {axis: _size_position(scope, e) for axis, e in p.targets}
    numbers = {axis: at for axis, at in found.items() if at is not None}
    if len(numbers) < len(p.targets) or any(i.group for i in numbers):
        return None
    order = [i for i in p.order if i in numbers or i in p.source.indices]
    layout = tuple(None if i in numbers else i for i in order)
    value = replace(scope.frame.fill(p.source, layout), axes=tuple(order))
    amounts: dict[int, tuple[Code, Code]] = {}
    for n, i in enumerate(order):
        if i in numbers:
            at, size = numbers[i], scope.frame.bounds.size(i.extent)
            if at.number is not None and range_of(scope.frame.bounds, i, at):
                # The axis may end before the position, as that of a piece of another.
                ends = number_of(scope, -at), Dim(i.extent)
                place = scope.frame.position(value.axes, n)
                value = replace(value, code=FunctionCall("rt.window", (value.code, place, *ends)))
                continue
            behind = number_of(scope, size - at - Polynomial.of(1))
            amounts[n] = number_of(scope, at), behind
    return padded_along(scope, value, amounts), False


def _size_position(scope: Scope, position: Expr) -> Polynomial | None:
    """Return the position as a form in numbers and sizes, else None."""
    if any(isinstance(part, Guard | Param | Access | Index) for part in walk(position)):
        return None
    return scope.frame.bounds.form(position)


def along_each_axis(scope: Scope, p: Placement) -> Placed | None:
    """Sum_{k,l} delta(i, e(k)) delta(j, g(l)) f(k, l) = along i, then along j."""
    indices = [i for _, e in p.targets for i in free_indices(e)]
    if len(set(indices)) < len(indices) or not set(p.source.indices).issuperset(indices):
        return None
    if not all(_is_free(e, p.summed) for _, e in p.targets):
        return None
    source = p.source
    for n, (axis, position) in enumerate(p.targets):
        later = dict(p.targets[n + 1 :])
        around: list[Index] = []
        for i in p.order:
            around += [i] if i not in later else _like_source(source, later[i])
        w = affine_window(scope.frame.bounds, position)
        if w is not None and w.step > 0 and lies_inside(scope.frame.bounds, w, axis.extent):
            source = _scatter_run(scope, source, axis, w)
            continue
        index = scope.lower(factor(position), _like_source(source, position))
        own = [i for i in p.summed if i in index.indices]
        source = add_at(scope.frame, source, axis, index, own, around, None, scope.like)
    return source, False


def on_joined_axes(scope: Scope, p: Placement) -> Placed | None:
    """Sum_k delta(i, e(k)) delta(j, g(k)) f(k) = Sum_k delta(i j, e(k)*size(j) + g(k)) f(k).

    The positions of winners are on each of the axes: the gradient goes where they were read.
    """
    axes = [axis for axis, _ in p.targets]
    if any(i.group for i in axes):
        return None
    read = [a.tensor for _, e in p.targets for a in accesses(e)]
    lets = [scope.absent(name) or scope.find(name) for name in read]
    won = all(let is not None and let.kind in POSITIONS for let in lets)
    if read and won and scope.is_gradient:
        whole_position = p.targets[0][1]
        for axis, e in p.targets[1:]:
            whole_position = whole_position * Size(axis.extent) + e
        position = scope.lower(factor(whole_position), layout(whole_position))
    else:
        placed = [scope.lower(factor(e), layout(e)) for _, e in p.targets]
        known = dict.fromkeys(i for v in placed for i in v.indices)
        if any(v.scalar for v in placed) or any(i.group for i in known):
            return None
        several = joined_positions(scope.frame, axes, placed, list(known))
        position = several if len(axes) > 1 else scope.frame.squeeze(placed[0])
    order = [i for i in p.order if i not in axes[1:]]
    around = placed_axes(p.source, axes[0], position, p.summed, order)
    if position.scalar or any(i.group for i in around):
        return None
    n = around.index(axes[0])
    sides = [axis_size(i) for i in around[:n]], [axis_size(i) for i in around[n + 1 :]]
    sizes = [axis_size(i) for i in axes]
    shape = Shape((*sides[0], joined("*", sizes), *sides[1]))
    base = MethodCall(scope.like, "new_zeros", (shape,))
    args = p.source, axes[0], position, p.summed, order, base, scope.like
    made = add_at(scope.frame, *args)
    if len(axes) > 1:
        code = MethodCall(made.code, "reshape", (Shape((*sides[0], *sizes, *sides[1])),))
        made = Value(code, (*around[:n], *axes, *around[n + 1 :]))
    return _zero_if_no_axis(scope, made, p), False


def on_all_axes(scope: Scope, p: Placement) -> Placed:
    """Sum_k delta(i, e(k)) delta(j, g(k)) f(k) = zeros.index_put((e, g), f)[i, j]."""
    placed = [(axis, scope.lower(factor(e), layout(e))) for axis, e in p.targets]
    read = {i for _, v in placed for i in v.indices}
    placed += [(i, scope.positions(i)) for i in p.order if i in read and i not in p.summed]
    device = Keyword("device", Attribute(scope.like, "device"))

    def tensor(v: Value) -> Value:
        full = FunctionCall("torch.full", (Tuple(()), v.code, device))
        return Value(full, (), "int") if v.scalar else v

    placed = [(i, tensor(v)) for i, v in placed]
    value = put_at(scope.frame, p.source, placed, p.summed, p.order, scope.like)
    return _zero_if_no_axis(scope, value, p), False


def _zero_if_no_axis(scope: Scope, value: Value, p: Placement) -> Value:
    """Return the value, or zeros if a guarded position may be on an empty axis."""
    needed = [i.extent for i, e in p.targets if may_be_empty_axis(scope, e, i.extent)]
    return zero_if_empty(scope, value, needed, value.indices)


def _is_free(position: Expr, summed: Indices) -> bool:
    """True if the position has summed indices only, and reads no tensor."""
    free = free_indices(position)
    reads = any(isinstance(x, Access | Guard) for x in walk(position))
    return bool(free) and free.issubset(summed) and not reads


def _like_source(source: Value, position: Expr) -> list[Index]:
    """Return the indices of a position in the order of the source."""
    natural = layout(position)
    known = [i for i in source.indices if i in natural]
    return [*known, *(i for i in natural if i not in known)]


def _scatter_run(scope: Scope, source: Value, axis: Index, w: Window) -> Value:
    """f at start, start + step, ... of an axis of zeros."""
    if w.index not in source.indices:
        source = scope.frame.expand(source, [*source.indices, w.index], scope.like)
    axes = tuple(axis if i is w.index else i for i in source.indices)
    first, size = number_of(scope, w.start), Dim(w.index.extent)
    reach: Code = size if w.step == 1 else Binary("*", literal(w.step), size)
    end = reach if first is literal(0) else Binary("+", first, reach)
    steps = () if w.step == 1 else (literal(w.step),)
    args = (source.code, scope.frame.position(axes, axes.index(axis)), first, end, *steps)
    return Value(MethodCall(zeros(scope.like, axes), "slice_scatter", args), axes)

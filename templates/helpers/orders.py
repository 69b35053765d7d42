"""Sums over the elements on one side of a bound, by a sort; read by ``derive.module.runtime``.

The elements are along the last axis. The first axes of the bounds are those of the elements without
the last; the others are those of the result. Each ``op`` is <, <=, > or >=.
"""

import torch
from own import unrecorded
from scans import decayed_sum
from views import unflatten


def any_where(x, op, t):
    """Whether there is an element x op t."""
    if not x.shape[-1]:
        return torch.zeros_like(t, dtype=torch.bool)
    nan, first = x.isnan(), op[0] == "<"
    if x.is_floating_point():
        x = x.where(~nan, torch.inf if first else -torch.inf)
    x = x.amin(-1, True) if first else x.amax(-1, True)
    found = _compared(x, op, _flat_bounds(x, t)[0]).squeeze(-1)
    return (found & ~nan.all(-1, True)).reshape(t.shape)


def count_where(x, op, t):
    """The number of elements x op t."""
    return sum_where(torch.ones_like(x, dtype=torch.int64), x, op, t)


def sum_where(f, x, op, t):
    """The sum of f where x op t."""
    flat, many = _flat_bounds(x, t)
    if _are_few_pairs(x, flat):
        found = torch.where(_compared(x, op, flat), f.unsqueeze(-2), 0).sum(-1)
    else:
        order, place = _sides(x, op, flat)
        f = torch.where(x.isnan(), 0, f)
        found = _read(_moved(f, order).cumsum(-1), place, 0)
    return unflatten(found, -1, many)


def logsumexp_where(f, x, op, t):
    """The logsumexp of f where x op t."""
    flat, many = _flat_bounds(x, t)
    if _are_few_pairs(x, flat):
        f = torch.where(_compared(x, op, flat), f.unsqueeze(-2), -torch.inf)
        return unflatten(_logsumexp(f), -1, many)
    order, place = _sides(x, op, flat)
    f = torch.where(x.isnan(), -torch.inf, f)
    found = _read(_logcumsumexp(_moved(f, order)), place, -torch.inf)
    return unflatten(found, -1, many)


def mean_where(f, a, x, op, t):
    """The sum of f times softmax a, both of the elements x op t."""
    flat, many = _flat_bounds(x, t)
    if _are_few_pairs(x, flat):
        mask = _compared(x, op, flat)
        least = torch.finfo(a.dtype).min
        weight = torch.where(mask, a.unsqueeze(-2), least).softmax(-1)
        found = torch.where(mask, weight * f.unsqueeze(-2), 0).sum(-1)
        return unflatten(found, -1, many)
    order, place = _sides(x, op, flat)
    a = _moved(torch.where(x.isnan(), -torch.inf, a), order)
    level = _logcumsumexp(a)
    f = _moved(torch.where(x.isnan(), 0, f), order) * _shares(a, level)
    return unflatten(_read(_running_sum(f, level), place, 0), -1, many)


def mean_where_adjoint(f, level, x, op, t, a):
    """exp a times the sum of f*exp(-level) where x op t; level falls in the order of x."""
    flat, many = _flat_bounds(x, t)
    a, _ = _flat_bounds(x, a)
    if _are_few_pairs(x, flat):
        mask = _compared(x, op, flat)
        least = torch.finfo(level.dtype).min
        shares = a.unsqueeze(-1) - level.clamp_min(least).unsqueeze(-2)
        weight = torch.where(mask, shares, -torch.inf).exp()
        found = torch.where(mask, weight * f.unsqueeze(-2), 0).sum(-1)
        return unflatten(found, -1, many)
    order, place = _sides(x, op, flat)
    f = _moved(torch.where(x.isnan(), 0, f), order)
    level = _moved(torch.where(x.isnan(), torch.inf, level), order)
    level = torch.where(level == torch.inf, level.detach().cummin(-1).values, level)
    sums = decayed_sum(f.flip(-1), level.flip(-1), -1).flip(-1)
    weight = _shares(a, _read(level, place, torch.inf))
    return unflatten(_read(sums, place, 0) * weight, -1, many)


def _logsumexp(f):
    """logsumexp along the last axis, without a gradient where it is -inf."""
    found = f.logsumexp(-1)
    if unrecorded(f):
        return found
    sums = f.clamp_min(torch.finfo(f.dtype).min).logsumexp(-1)
    return torch.where(found.detach() == -torch.inf, -torch.inf, sums)


def _logcumsumexp(f):
    """logcumsumexp along the last axis, with derivatives of any order."""
    level = f.detach().logcumsumexp(-1)
    if unrecorded(f):
        return level
    sums = _running_sum(_shares(f, level), level)  # 1, but for rounding
    change = torch.where(level == -torch.inf, 1, sums).log()
    return level + (change - change.detach())


def _shares(a, level):
    """exp(a - level), and 0 where both are -inf."""
    limits = torch.finfo(level.dtype)
    return (a - level.clamp(limits.min, limits.max)).exp()


def _running_sum(f, level):
    """The sum over l <= k of f[l]*exp(level[l] - level[k]); level never decreases."""
    return decayed_sum(f.flip(-1), -level.flip(-1), -1).flip(-1)


def _are_few_pairs(x, t):
    """Whether a mask of all pairs takes less time than a sort."""
    n, m = x.shape[-1], t.shape[-1]
    return not torch.compiler.is_compiling() and (m <= 32 or n * m <= 16384)


def _flat_bounds(x, t):
    """(The bounds of each batch along one axis, the shape that they have)."""
    first = x.dim() - 1
    return t.flatten(first) if t.dim() > first else t.unsqueeze(-1), t.shape[first:]


def _compared(x, op, t):
    """The mask of each bound."""
    less, more = x.unsqueeze(-2), t.unsqueeze(-1)
    if op[0] == ">":
        less, more = more, less
    return less <= more if op[1:] else less < more


def _sides(x, op, t):
    """(The order in which the elements x op t are the first, and how many these are)."""
    # searchsorted takes no bool.
    dtype = torch.promote_types(torch.promote_types(x.dtype, t.dtype), torch.uint8)
    x, t = x.detach().to(dtype), t.detach().to(dtype)
    if dtype.is_floating_point:
        x = x.nan_to_num(torch.inf, torch.inf, -torch.inf)
    x, order = x.contiguous().sort(-1)
    place = torch.searchsorted(x, t.contiguous(), right=op in ("<=", ">"))
    if op[0] == ">":
        order, place = order.flip(-1), x.shape[-1] - place
    return order, torch.where(t.isnan(), 0, place)


def _moved(x, order):
    """The elements in this order, the same for all first axes."""
    return x.gather(-1, order.expand(x.shape))


def _read(x, count, nothing):
    """The last of so many elements, or of none."""
    x = torch.nn.functional.pad(x, (1, 0), value=nothing)
    return x.gather(-1, count.expand(*x.shape[:-1], -1))

"""Positions along an axis; read as text by ``derive.module.runtime``."""

import math

import torch
from along import gather, scatter_add
from own import _PLAIN, _all_inside, _flat_index, _one_longer, _or_end


def positions(size, x):
    """The positions 0, 1, .., size - 1 on the device of x, or distributed like x."""
    if type(x) in _PLAIN:
        return torch.arange(size, device=x.device)
    return x.new_ones((size,), dtype=torch.int64).cumsum(0) - 1


def read_at_if_any(x, dims, *indices):
    """x at positions along dims; zeros where one of these axes has size 0."""
    if all(x.shape[n] for n in dims):
        return read_at(x, dims, *indices)
    new = torch.broadcast_shapes(*(p.shape for p in indices))
    others = [size for n, size in enumerate(x.shape) if n not in dims]
    at = dims[0] if dims[-1] - dims[0] < len(dims) else 0
    return x.new_zeros((*others[:at], *new, *others[at:]))


def read_at(x, dims, *indices):
    """x at positions along dims, read together; negative positions are out of range.

    If dims are not adjacent, the axes of the positions come first.
    """
    places = [slice(None)] * x.dim()
    held = [
        torch.where(p < 0, x.shape[n], p) for n, p in zip(dims, indices, strict=True)
    ]
    # Torch treats a 0-d position as a number, which would move the axes of the others.
    for n, p in zip(dims, torch.broadcast_tensors(*held), strict=True):
        places[n] = p
    return x[tuple(places)]


def joined_positions(sizes, *indices):
    """Row-major positions on axes of these sizes as one; where one is outside, that after all."""
    total, outside = indices[0].new_zeros(()), indices[0] != indices[0]
    for size, p in zip(sizes, indices, strict=True):
        total, outside = total * size + p, outside | (p < 0) | (p >= size)
    return total.masked_fill(outside, math.prod(sizes))


def index_select(x, dim, index):
    """x.index_select, where the index may have any number of axes, in the place of one of x."""
    dim %= x.dim()
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    return x.index_select(dim, index.reshape(-1)).reshape(shape)


def index_add(x, dim, index, y, alpha=1):
    """x.index_add, where the index may have any number of axes."""
    return x.index_add(dim, *_flat_index(x, dim, index, y), alpha=alpha)


def index_select_if_any(x, dim, index):
    """index_select, or zeros where the axis has size 0."""
    if x.shape[dim]:
        return index_select(x, dim, index)
    dim %= x.dim()
    return x.new_zeros((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]))


def gather_if_any(x, dim, index):
    """x.gather, or zeros where the axis has size 0."""
    return x.gather(dim, index) if x.shape[dim] else x.new_zeros(index.shape)


def index_add_if_any(x, dim, index, y):
    """index_add, or x where the axis has size 0."""
    return index_add(x, dim, index, y) if x.shape[dim] else x


def scatter_add_if_any(x, dim, index, y):
    """x.scatter_add, or x where the axis has size 0."""
    return x.scatter_add(dim, index, y) if x.shape[dim] else x


def index_select_inside(x, dim, index):
    """index_select, and 0 for what is no position of the axis."""
    if _all_inside(index, x.shape[dim]):
        return index_select(x, dim, index)
    return index_select(_one_longer(x, dim), dim, _or_end(index, x.shape[dim]))


def gather_inside(x, dim, index):
    """x.gather, and 0 for what is no position of the axis."""
    if _all_inside(index, x.shape[dim]):
        return gather(x, dim % x.dim(), index)
    return gather(_one_longer(x, dim), dim % x.dim(), _or_end(index, x.shape[dim]))


def index_add_inside(x, dim, index, y, alpha=1):
    """index_add without what is no position of the axis."""
    size = x.shape[dim]
    if _all_inside(index, size):
        return index_add(x, dim, index, y, alpha=alpha)
    added = index_add(_one_longer(x, dim), dim, _or_end(index, size), y, alpha=alpha)
    return added.narrow(dim, 0, size)


def scatter_add_inside(x, dim, index, y):
    """x.scatter_add without what is no position of the axis."""
    size = x.shape[dim]
    if _all_inside(index, size):
        return scatter_add(x, dim % x.dim(), index, y)
    added = scatter_add(_one_longer(x, dim), dim % x.dim(), _or_end(index, size), y)
    return added.narrow(dim, 0, size)


def narrow(x, at, start, size):
    """x.narrow(at, start, size); raise IndexError where that leaves the axis."""
    if not size:
        return x.narrow(at, 0, 0)
    if start < 0 or start + size > x.shape[at]:
        raise IndexError(f"positions {start} to {start + size - 1} of {x.shape[at]}")
    return x.narrow(at, start, size)


def window(x, at, start, size, outside=0):
    """A copy of x at start, start + 1, ..; outside where that is no position of the axis."""
    first, end = (min(max(n, 0), x.shape[at]) for n in (start, start + size))
    before = min(max(-start, 0), size)
    around = before, size - before - (end - first)
    beside = (0, 0) * (x.dim() - 1 - at % x.dim())
    inside = x.narrow(at, first, end - first)
    return torch.nn.functional.pad(inside, (*beside, *around), value=outside)


def windows(x, at, start, count, size, step):
    """x at start + step*k + a along at, for k < count and a < size; 0 outside of the axis."""
    at, size = at % x.dim(), max(size, 0)
    length = step * (max(count, 1) - 1) + size
    if start or length != x.shape[at]:
        x = window(x, at, start, length)
    return x.unfold(at, size, step).narrow(at, 0, count)

"""The helper functions of plain modules, in public calls of torch.

They take the place of those of the same name in the other files. Read as text by
``derive.module.templating``; each function comes before those that it calls.
"""

import torch
from own import _one_longer, _or_end
from scans import sort_ranks


def index_select_inside(x, dim, index):
    """x.index_select, and 0 for what is no position of the axis."""
    return _one_longer(x, dim).index_select(dim, _or_end(index, x.shape[dim]))


def gather_inside(x, dim, index):
    """x.gather, and 0 for what is no position of the axis."""
    return _one_longer(x, dim).gather(dim, _or_end(index, x.shape[dim]))


def index_add_inside(x, dim, index, y, alpha=1):
    """x.index_add without what is no position of the axis."""
    added = _one_longer(x, dim).index_add(
        dim, _or_end(index, x.shape[dim]), y, alpha=alpha
    )
    return added.narrow(dim, 0, x.shape[dim])


def scatter_add_inside(x, dim, index, y):
    """x.scatter_add without what is no position of the axis."""
    added = _one_longer(x, dim).scatter_add(dim, _or_end(index, x.shape[dim]), y)
    return added.narrow(dim, 0, x.shape[dim])


def first_ranks(x, dim, count, descending=False):
    """sort_ranks, of which those from count on may be any number from count on."""
    return sort_ranks(x, dim, descending)


def exclusive_prod(x, dim):
    """The product of all other elements along dim."""
    x = x.movedim(dim, -1)
    one = torch.ones_like(x[..., :1])
    left = torch.cat((one, x[..., :-1]), -1).cumprod(-1)
    right = torch.cat((x[..., 1:], one), -1).flip(-1).cumprod(-1).flip(-1)
    return (left * right).movedim(-1, dim)

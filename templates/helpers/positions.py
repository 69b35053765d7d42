"""Positions along an axis: read as text by ``derive.module.templating``."""

import torch


def _positions(size, x):
    """0, 1, .. along an axis of that size; distributed where x is."""
    if type(x) in (torch.Tensor, torch.nn.Parameter):
        return torch.arange(size, device=x.device)
    return x.new_ones((size,), dtype=torch.int64).cumsum(0) - 1


def _read_at(x, dim, *positions):
    """x at positions along the axes from dim on; none of them is counted from the end."""
    given = enumerate(positions, dim)
    found = tuple(torch.where(p < 0, x.shape[n], p) for n, p in given)
    return x[(slice(None),) * dim + found]

"""Tensors that are no views: read as text by ``derive.module.templating``."""

import math

import torch


def _no_view(x):
    """The same tensor, for autograd a tensor of its own: it may be changed in place."""
    return torch.ops.aten._unsafe_view(x, x.shape)


def _copied(x):
    """A copy of a view, but of one that is expanded, which autograd copies where it is kept."""
    return x if 0 in x.stride() else x.clone()


def _flatten(x, start, end):
    """x.flatten(start, end), for which autograd's older vmap has no rule."""
    start, end = start % x.dim(), end % x.dim()
    size = math.prod(x.shape[start : end + 1])
    return x.reshape((*x.shape[:start], size, *x.shape[end + 1 :]))


def _unflatten(x, at, sizes):
    """x.unflatten(at, sizes), for which autograd's older vmap has no rule."""
    at %= x.dim()
    return x.reshape((*x.shape[:at], *sizes, *x.shape[at + 1 :]))

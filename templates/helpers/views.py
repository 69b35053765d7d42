"""Reshapes and copies; read as text by ``derive.module.runtime``."""

import math

import torch
from own import unrecorded


def no_view(x):
    """The same data as x, but no view for autograd: it may be modified in place."""
    return torch.ops.aten._unsafe_view(x, x.shape)


def copied(x):
    """Copy x, unless it is expanded: autograd copies an expanded tensor when it stores it."""
    return x if 0 in x.stride() else x.clone()


def flatten(x, start, end):
    """x.flatten(start, end) by reshape; autograd's older vmap has no rule for flatten."""
    start, end = start % x.dim(), end % x.dim()
    size = math.prod(x.shape[start : end + 1])
    return x.reshape((*x.shape[:start], size, *x.shape[end + 1 :]))


def unflatten(x, at, sizes):
    """x.unflatten(at, sizes) by reshape; autograd's older vmap has no rule for unflatten."""
    at %= x.dim()
    return x.reshape((*x.shape[:at], *sizes, *x.shape[at + 1 :]))


def stack(tensors, at):
    """torch.stack along a last axis; on a CPU faster by one copy for each of the tensors."""
    x = tensors[0]
    slow = x.numel() >= 4096 and x.device.type == "cpu" and unrecorded(*tensors)
    if not slow or any(t.dtype is not x.dtype for t in tensors):
        return torch.stack(tensors, at)
    made = x.new_empty((*x.shape, len(tensors)))
    for n, given in enumerate(tensors):
        made.select(-1, n).copy_(given)
    return made

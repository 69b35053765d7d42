"""Kernels of normalisations: their results, then what the backward reads."""

import torch


def _layer_normed(x, shape, weight, bias, eps):
    """x normalised along its last axes, of this shape, and their mean and inverse deviation."""
    if shape:
        return torch.native_layer_norm(x, shape, weight, bias, eps)
    parts = (None if t is None else t.unsqueeze(-1) for t in (weight, bias))
    y, mean, rstd = torch.native_layer_norm(x.unsqueeze(-1), (1,), *parts, eps)
    return y.squeeze(-1), mean, rstd


def _layer_normed_gradients(G, x, shape, mean, rstd, weight, wanted):
    """The gradients of x, weight and bias, as far as they are wanted."""
    call = torch.ops.aten.native_layer_norm_backward
    bias = x.new_empty(shape) if weight is None and wanted[2] else weight
    if shape:
        return call(G, x, shape, mean, rstd, weight, bias, wanted)
    weight, bias = (None if t is None else t.unsqueeze(-1) for t in (weight, bias))
    given = (G.unsqueeze(-1), x.unsqueeze(-1), (1,), mean, rstd, weight, bias, wanted)
    return [None if t is None else t.squeeze(-1) for t in call(*given)]


def _batch_normed(x, weight, bias, eps):
    """x normalised along all axes but the second, and its mean and inverse deviation there."""
    if x.numel():
        return torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
    nothing = x.new_full((x.shape[1],), math.nan)
    return torch.empty_like(x), nothing, nothing.clone()


def _batch_normed_gradients(G, x, mean, rstd, weight, wanted):
    """The gradients of x, weight and bias, as far as they are wanted."""
    if x.numel():
        call = torch.ops.aten.native_batch_norm_backward
        return call(G, x, weight, None, None, mean, rstd, True, 0.0, wanted)
    return torch.empty_like(x), x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])

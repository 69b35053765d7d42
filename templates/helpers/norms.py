"""Kernels of normalisations: their results, then what the backward reads."""

import math

import torch


def _layer_normed(x, shape, weight, bias, eps):
    """x normalised along its last axes, of this shape, and their mean and inverse deviation."""
    if shape:
        return torch.native_layer_norm(x, shape, weight, bias, eps)
    weight, bias = (None if t is None else t.unsqueeze(-1) for t in (weight, bias))
    y, mean, rstd = torch.native_layer_norm(x.unsqueeze(-1), (1,), weight, bias, eps)
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
    return torch.empty_like(x), x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])


def _batch_normed_gradients(G, x, mean, rstd, weight, wanted):
    """The gradients of x, weight and bias, as far as they are wanted."""
    if x.numel():
        call = torch.ops.aten.native_batch_norm_backward
        return call(G, x, weight, None, None, mean, rstd, True, 0.0, wanted)
    return torch.empty_like(x), x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])


def _group_normed(x, weight, bias, eps):
    """x normalised in each group of channels, its second axis, and their statistics."""
    n, g, c = x.shape[:3]
    if not x.numel():
        return torch.empty_like(x), x.new_zeros((n, g)), x.new_zeros((n, g))
    weight, bias = (None if t is None else t.flatten() for t in (weight, bias))
    size = math.prod(x.shape[3:])
    given = (x.flatten(1, 2).contiguous(), weight, bias, n, g * c, size, g, eps)
    y, mean, rstd = torch.native_group_norm(*given)
    return y.view(x.shape), mean, rstd


def _group_normed_gradients(G, x, mean, rstd, weight, wanted):
    """The gradients of x, weight and bias, as far as they are wanted."""
    n, g, c = x.shape[:3]
    if not x.numel():
        return torch.empty_like(x), x.new_zeros((g, c)), x.new_zeros((g, c))
    if weight is None and wanted[2]:
        weight = x.new_ones((g, c))
    weight = None if weight is None else weight.flatten()
    call, size = torch.ops.aten.native_group_norm_backward, math.prod(x.shape[3:])
    given = (mean, rstd, weight, n, g * c, size, g, wanted)
    G, x2 = (t.flatten(1, 2).contiguous() for t in (G, x))
    grads, shapes = call(G, x2, *given), (x.shape, (g, c), (g, c))
    pairs = zip(grads, shapes, strict=True)
    return [None if t is None else t.reshape(shape) for t, shape in pairs]


def _channel_normed(x, weight, bias, eps):
    """x normalised in each channel of each example, and their statistics."""
    n, c = x.shape[:2]
    if not x.numel():
        return torch.empty_like(x), x.new_zeros((n, c)), x.new_zeros((n, c))
    given = (weight, bias, n, c, math.prod(x.shape[2:]), c, eps)
    return torch.native_group_norm(x.contiguous(), *given)


def _channel_normed_gradients(G, x, mean, rstd, weight, wanted):
    """The gradients of x, weight and bias, as far as they are wanted."""
    n, c = x.shape[:2]
    if not x.numel():
        return torch.empty_like(x), x.new_zeros(c), x.new_zeros(c)
    if weight is None and wanted[2]:
        weight = x.new_ones(c)
    given = (mean, rstd, weight, n, c, math.prod(x.shape[2:]), c, wanted)
    call = torch.ops.aten.native_group_norm_backward
    return call(G.contiguous(), x.contiguous(), *given)

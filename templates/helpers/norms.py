"""Fused normalization kernels: the output first, then the tensors that the backward reads.

``scale`` is a number, nearly always 1, that multiplies the weight. Some kernels ignore the strides
of tensors with fewer axes than x, so these tensors are made contiguous for all kernels.
Read as text by ``derive.module.runtime``.
"""

import math

import torch
from private_names import _transforms_active


def native_layer_norm(x, shape, weight, bias, eps, scale=1):
    """Layer norm over the last axes, of this shape: the output, mean and rstd."""
    weight = _scaled_weight(weight, scale, x, shape)
    if shape:
        return torch.native_layer_norm(x, shape, weight, bias, eps)
    weight, bias = (None if t is None else t.unsqueeze(-1) for t in (weight, bias))
    y, mean, rstd = torch.native_layer_norm(x.unsqueeze(-1), (1,), weight, bias, eps)
    return y.squeeze(-1), mean, rstd


def native_layer_norm_backward(G, x, shape, mean, rstd, weight, wanted, scale=1):
    """The gradients of a layer norm in x, weight and bias, if wanted."""
    call = torch.ops.aten.native_layer_norm_backward
    weight = _scaled_weight(weight, scale, x, shape)
    bias = x.new_empty(shape) if weight is None and wanted[2] else weight
    mean, rstd = _contiguous(mean, rstd)
    if shape:
        grads = call(G, x, shape, mean, rstd, weight, bias, wanted)
        return _scaled_gradients(grads, scale, math.prod(shape))
    weight, bias = (None if t is None else t.unsqueeze(-1) for t in (weight, bias))
    given = (G.unsqueeze(-1), x.unsqueeze(-1), (1,), mean, rstd, weight, bias, wanted)
    grads = [None if t is None else t.squeeze(-1) for t in call(*given)]
    return _scaled_gradients(grads, scale, 1)


def native_batch_norm(x, weight, bias, eps, scale=1):
    """Batch norm over all axes but the second: the output, mean and rstd."""
    if x.numel():
        weight, bias = _contiguous(_scaled_weight(weight, scale, x, x.shape[1:2]), bias)
        return torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
    return torch.empty_like(x), x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])


def native_batch_norm_backward(G, x, mean, rstd, weight, wanted, scale=1):
    """The gradients of a batch norm in x, weight and bias, if wanted."""
    if x.numel():
        weight = _scaled_weight(weight, scale, x, x.shape[1:2])
        mean, rstd, weight = _contiguous(mean, rstd, weight)
        call = torch.ops.aten.native_batch_norm_backward
        given = (G, x, weight, None, None, mean, rstd, True, 0.0, wanted)
        return _scaled_gradients(call(*given), scale, x.numel() // x.shape[1])
    return torch.empty_like(x), x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])


def native_group_norm(x, weight, bias, eps, scale=1):
    """Group norm of x[sample, group, channel, ..]: the output, mean and rstd."""
    weight, bias = (None if t is None else t.flatten() for t in (weight, bias))
    y, mean, rstd = _norm_in_groups(
        x.shape[1], x.flatten(1, 2), weight, bias, eps, scale
    )
    return y.view(x.shape), mean, rstd


def native_group_norm_backward(G, x, mean, rstd, weight, wanted, scale=1):
    """The gradients of a group norm in x, weight and bias, if wanted."""
    (g, c), (G, flat) = x.shape[1:3], (t.flatten(1, 2) for t in (G, x))
    weight = None if weight is None else weight.flatten()
    grads = _norm_in_groups_backward(g, G, flat, mean, rstd, weight, wanted, scale)
    pairs = zip(grads, (x.shape, (g, c), (g, c)), strict=True)
    return [None if t is None else t.reshape(shape) for t, shape in pairs]


def native_instance_norm(x, weight, bias, eps, scale=1):
    """Instance norm of x[sample, channel, ..]: the output, mean and rstd."""
    return _norm_in_groups(x.shape[1], x, weight, bias, eps, scale)


def native_instance_norm_backward(G, x, mean, rstd, weight, wanted, scale=1):
    """The gradients of an instance norm in x, weight and bias, if wanted."""
    return _norm_in_groups_backward(x.shape[1], G, x, mean, rstd, weight, wanted, scale)


def _norm_in_groups(groups, x, weight, bias, eps, scale):
    """Normalize x in groups of its channels: the output, mean and rstd."""
    n, c = x.shape[:2]
    if not x.numel():
        return torch.empty_like(x), x.new_zeros((n, groups)), x.new_zeros((n, groups))
    weight = _scaled_weight(weight, scale, x, (c,))
    compiling = torch.compiler.is_compiling()
    if not compiling and _transforms_active():
        # The kernel assumes contiguous memory, which vmap does not preserve.
        rows = x.reshape(n, groups, -1)
        y, mean, rstd = torch.native_layer_norm(rows, rows.shape[2:], None, None, eps)
        each = (c, *[1] * (x.dim() - 2))
        y = y.reshape(x.shape)
        y = y if weight is None else y * weight.reshape(each)
        y = y if bias is None else y + bias.reshape(each)
        return y, mean.reshape(n, groups), rstd.reshape(n, groups)
    weight, bias = _contiguous(weight, bias)
    given = (weight, bias, n, c, math.prod(x.shape[2:]), groups, eps)
    return torch.native_group_norm(x.contiguous(), *given)


def _norm_in_groups_backward(groups, G, x, mean, rstd, weight, wanted, scale):
    """The gradients in x, weight and bias of a normalization in groups."""
    n, c = x.shape[:2]
    if not x.numel():
        return torch.empty_like(x), x.new_zeros(c), x.new_zeros(c)
    weight = _scaled_weight(weight, scale, x, (c,))
    if weight is None and wanted[2]:
        weight = x.new_ones(c)
    sizes = (n, c, math.prod(x.shape[2:]), groups)
    given = (*_contiguous(G, x, mean, rstd, weight), *sizes, wanted)
    grads = torch.ops.aten.native_group_norm_backward(*given)
    return _scaled_gradients(grads, scale, x.numel() // (n * groups))


def _contiguous(*tensors):
    """Make the tensors contiguous; None stays None."""
    return [None if t is None else t.contiguous() for t in tensors]


def _scaled_weight(weight, scale, x, shape):
    """weight*scale, where None is a weight of ones."""
    if scale == 1:
        return weight
    return x.new_full(shape, scale) if weight is None else weight * scale


def _scaled_gradients(grads, scale, count):
    """Apply the scale of the weight to the gradients of x, weight and bias.

    count is the number of elements per normalized row. If it is 1, the gradients of x and weight
    are exactly 0, without the rounding of the kernel.
    """
    if count == 1:
        return *(None if t is None else t - t for t in grads[:2]), grads[2]
    if scale == 1 or grads[1] is None:
        return grads
    return grads[0], grads[1] * scale, grads[2]

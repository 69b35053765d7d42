"""Fused normalization kernels: the output first, then the tensors that the backward reads.

``share`` is a number, nearly always 1, that divides the mean of the squares: (N - 1)/N for a
variance without bias. The kernels have no such number, but sqrt(share) as a factor of the weight is
the same if it is positive; otherwise there are separate steps. Some kernels ignore the strides of
tensors with fewer axes than x, so these tensors are made contiguous for all kernels.
Read as text by ``derive.module.runtime``.
"""

import math

import torch
from private_names import _transforms_active


def native_layer_norm(x, shape, weight, bias, eps, share=1):
    """Layer norm over the last axes, of this shape: the output, mean and rstd."""
    if not shape:
        weight, bias = (None if t is None else t.unsqueeze(-1) for t in (weight, bias))
        y, mean, rstd = native_layer_norm(
            x.unsqueeze(-1), (1,), weight, bias, eps, share
        )
        return y.squeeze(-1), mean, rstd
    if not share > 0:
        return _norm_by_steps(x, range(-len(shape), 0), weight, bias, eps, share)
    weight = _scaled_weight(weight, share, x, shape)
    return _scaled_rstd(
        torch.native_layer_norm(x, shape, weight, bias, eps * share), share
    )


def native_layer_norm_backward(G, x, shape, mean, rstd, weight, wanted, share=1):
    """The gradients of a layer norm in x, weight and bias, if wanted."""
    if not shape:
        weight = None if weight is None else weight.unsqueeze(-1)
        given = (
            G.unsqueeze(-1),
            x.unsqueeze(-1),
            (1,),
            mean,
            rstd,
            weight,
            wanted,
            share,
        )
        grads = native_layer_norm_backward(*given)
        return [None if t is None else t.squeeze(-1) for t in grads]
    if not share > 0:
        axes = range(-len(shape), 0), range(x.dim() - len(shape))
        grads = _norm_by_steps_backward(G, x, *axes, mean, rstd, weight, share)
        return _if_wanted(grads, wanted)
    weight = _scaled_weight(weight, share, x, shape)
    bias = x.new_empty(shape) if weight is None and wanted[2] else weight
    mean, rstd = _contiguous(mean, rstd if share == 1 else rstd / math.sqrt(share))
    call = torch.ops.aten.native_layer_norm_backward
    grads = call(G, x, shape, mean, rstd, weight, bias, wanted)
    return _if_wanted(_scaled_gradients(grads, share, math.prod(shape)), wanted)


def native_batch_norm(x, weight, bias, eps, share=1):
    """Batch norm over all axes but the second: the output, mean and rstd."""
    if not x.numel():
        return torch.empty_like(x), x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
    if not share > 0:
        weight, bias = _over_channels(x.dim() - 2, weight, bias)
        axes = (0, *range(2, x.dim()))
        y, mean, rstd = _norm_by_steps(x, axes, weight, bias, eps, share)
        return y, mean.flatten(), rstd.flatten()
    weight, bias = _contiguous(_scaled_weight(weight, share, x, x.shape[1:2]), bias)
    given = (x, weight, bias, None, None, True, 0.0, eps * share)
    return _scaled_rstd(torch.native_batch_norm(*given), share)


def native_batch_norm_backward(G, x, mean, rstd, weight, wanted, share=1):
    """The gradients of a batch norm in x, weight and bias, if wanted."""
    if not x.numel():
        empty = torch.empty_like(x), x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
        return _if_wanted(empty, wanted)
    if not share > 0:
        mean, rstd, weight = _over_channels(x.dim() - 2, mean, rstd, weight)
        axes = (0, *range(2, x.dim()))
        grads = _norm_by_steps_backward(G, x, axes, axes, mean, rstd, weight, share)
        return _if_wanted(grads, wanted)
    weight = _scaled_weight(weight, share, x, x.shape[1:2])
    rstd = rstd if share == 1 else rstd / math.sqrt(share)
    mean, rstd, weight = _contiguous(mean, rstd, weight)
    call = torch.ops.aten.native_batch_norm_backward
    given = (G, x, weight, None, None, mean, rstd, True, 0.0, wanted)
    grads = _scaled_gradients(call(*given), share, x.numel() // x.shape[1])
    return _if_wanted(grads, wanted)


def native_group_norm(x, weight, bias, eps, share=1):
    """Group norm of x[sample, group, channel, ..]: the output, mean and rstd."""
    weight, bias = (None if t is None else t.flatten() for t in (weight, bias))
    y, mean, rstd = _norm_in_groups(
        x.shape[1], x.flatten(1, 2), weight, bias, eps, share
    )
    return y.view(x.shape), mean, rstd


def native_group_norm_backward(G, x, mean, rstd, weight, wanted, share=1):
    """The gradients of a group norm in x, weight and bias, if wanted."""
    (g, c), (G, flat) = x.shape[1:3], (t.flatten(1, 2) for t in (G, x))
    weight = None if weight is None else weight.flatten()
    grads = _norm_in_groups_backward(g, G, flat, mean, rstd, weight, wanted, share)
    pairs = zip(grads, (x.shape, (g, c), (g, c)), strict=True)
    return [None if t is None else t.reshape(shape) for t, shape in pairs]


def native_instance_norm(x, weight, bias, eps, share=1):
    """Instance norm of x[sample, channel, ..]: the output, mean and rstd."""
    return _norm_in_groups(x.shape[1], x, weight, bias, eps, share)


def native_instance_norm_backward(G, x, mean, rstd, weight, wanted, share=1):
    """The gradients of an instance norm in x, weight and bias, if wanted."""
    return _norm_in_groups_backward(x.shape[1], G, x, mean, rstd, weight, wanted, share)


def _norm_in_groups(groups, x, weight, bias, eps, share):
    """Normalize x in groups of its channels: the output, mean and rstd."""
    n, c = x.shape[:2]
    if not x.numel():
        return torch.empty_like(x), x.new_zeros((n, groups)), x.new_zeros((n, groups))
    # The kernel assumes contiguous memory, which vmap does not preserve.
    apart = not torch.compiler.is_compiling() and _transforms_active()
    if apart or not share > 0:
        rows = x.reshape(n, groups, -1)
        y, mean, rstd = native_layer_norm(rows, rows.shape[2:], None, None, eps, share)
        y, (weight, bias) = (
            y.reshape(x.shape),
            _over_channels(x.dim() - 2, weight, bias),
        )
        y = y if weight is None else y * weight
        y = y if bias is None else y + bias
        return y, mean.reshape(n, groups), rstd.reshape(n, groups)
    weight, bias = _contiguous(_scaled_weight(weight, share, x, (c,)), bias)
    given = (weight, bias, n, c, math.prod(x.shape[2:]), groups, eps * share)
    return _scaled_rstd(torch.native_group_norm(x.contiguous(), *given), share)


def _norm_in_groups_backward(groups, G, x, mean, rstd, weight, wanted, share):
    """The gradients in x, weight and bias of a normalization in groups."""
    n, c = x.shape[:2]
    if not x.numel():
        return _if_wanted((torch.empty_like(x), x.new_zeros(c), x.new_zeros(c)), wanted)
    if not share > 0:
        shape = n, groups, c // groups, *x.shape[2:]
        axes = range(2, len(shape)), (0, *range(3, len(shape)))
        mean, rstd = _over_channels(len(shape) - 2, mean, rstd)
        if weight is not None:
            (weight,) = _over_channels(x.dim() - 2, weight.reshape(shape[1:3]))
        G, rows = G.reshape(shape), x.reshape(shape)
        grads = _norm_by_steps_backward(G, rows, *axes, mean, rstd, weight, share)
        grads = grads[0].reshape(x.shape), grads[1].flatten(), grads[2].flatten()
        return _if_wanted(grads, wanted)
    weight = _scaled_weight(weight, share, x, (c,))
    if weight is None and wanted[2]:
        weight = x.new_ones(c)
    rstd = rstd if share == 1 else rstd / math.sqrt(share)
    sizes = (n, c, math.prod(x.shape[2:]), groups)
    given = (*_contiguous(G, x, mean, rstd, weight), *sizes, wanted)
    grads = torch.ops.aten.native_group_norm_backward(*given)
    grads = _scaled_gradients(grads, share, x.numel() // (n * groups))
    return _if_wanted(grads, wanted)


def _norm_by_steps(x, along, weight, bias, eps, share):
    """The output, mean and rstd along some axes, for any share."""
    along = tuple(along)
    mean = x.mean(along, keepdim=True)
    centered = x - mean
    rstd = (centered.square().mean(along, keepdim=True) / share + eps).rsqrt()
    y = centered * rstd
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, mean, rstd


def _norm_by_steps_backward(G, x, along, over, mean, rstd, weight, share):
    """The gradients in x, weight and bias, the latter two as sums over some axes."""
    along, over = tuple(along), tuple(over)
    normed = (x - mean) * rstd
    G_normed, v = G * normed, G if weight is None else G * weight
    slope = (v * normed).mean(along, keepdim=True) / share
    grad = rstd * (v - v.mean(along, keepdim=True) - normed * slope)
    return grad, *(t.sum(over) if over else t for t in (G_normed, G))


def _over_channels(n, *tensors):
    """The tensors with n more axes of size 1 behind them; None stays None."""
    return [None if t is None else t.reshape(*t.shape, *[1] * n) for t in tensors]


def _contiguous(*tensors):
    """Make the tensors contiguous; None stays None."""
    return [None if t is None else t.contiguous() for t in tensors]


def _scaled_weight(weight, share, x, shape):
    """weight*sqrt(share), where None is a weight of ones."""
    if share == 1:
        return weight
    root = math.sqrt(share)
    return x.new_full(shape, root) if weight is None else weight * root


def _scaled_rstd(results, share):
    """The output, mean and rstd of a kernel, the last times sqrt(share)."""
    y, mean, rstd = results
    return y, mean, rstd if share == 1 else rstd * math.sqrt(share)


def _if_wanted(grads, wanted):
    """The gradients, and None for each that is not wanted, which may be of no tensor."""
    return [grad if asked else None for grad, asked in zip(grads, wanted, strict=True)]


def _scaled_gradients(grads, share, count):
    """The gradients of x, weight and bias, from those of a kernel with a scaled weight.

    count is the number of elements per normalized row. If it is 1, the gradients of x and weight
    are exactly 0, without the rounding of the kernel.
    """
    if count == 1:
        return *(None if t is None else t - t for t in grads[:2]), grads[2]
    if share == 1 or grads[1] is None:
        return grads
    return grads[0], grads[1] * math.sqrt(share), grads[2]

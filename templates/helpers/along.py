"""Calls along axes: over those of a group, and fast before axes of size 1; read as text."""

import torch
import torch.nn.grad


def sum_over(x, axes, keepdim=False):
    """x.sum(axes); x itself over no axes, where torch would sum over all."""
    return x.sum(axes, keepdim) if axes else x


def mean_over(x, axes, keepdim=False):
    """x.mean(axes); x itself over no axes, where torch would take the mean of all."""
    return x.mean(axes, keepdim) if axes else x


def unsqueeze(x, axes):
    """x with axes of size 1 at these positions, the last ones; x itself over no axes."""
    return x[(..., *(None,) * len(axes))] if axes else x


def softmax(x, dim):
    """torch.softmax, without the trailing axes of size 1 that would make it slow."""
    if x.shape[dim + 1 :].numel() != 1:
        return torch.softmax(x, dim)
    return torch.softmax(x.reshape(x.shape[: dim + 1]), dim).reshape(x.shape)


def log_softmax(x, dim):
    """torch.log_softmax, without the trailing axes of size 1 that would make it slow."""
    if x.shape[dim + 1 :].numel() != 1:
        return torch.log_softmax(x, dim)
    return torch.log_softmax(x.reshape(x.shape[: dim + 1]), dim).reshape(x.shape)


def softmax_backward(g, y, dim):
    """The gradient of softmax with output y, without trailing axes of size 1."""
    if y.shape[dim + 1 :].numel() != 1:
        return torch._softmax_backward_data(g, y, dim, y.dtype)
    flat = y.shape[: dim + 1]
    g, flat = g.reshape(flat), y.reshape(flat)
    return torch._softmax_backward_data(g, flat, dim, y.dtype).reshape(y.shape)


def log_softmax_backward(g, y, dim):
    """The gradient of log_softmax with output y, without trailing axes of size 1."""
    if y.shape[dim + 1 :].numel() != 1:
        return torch._log_softmax_backward_data(g, y, dim, y.dtype)
    flat = y.shape[: dim + 1]
    g, flat = g.reshape(flat), y.reshape(flat)
    return torch._log_softmax_backward_data(g, flat, dim, y.dtype).reshape(y.shape)


def gather(x, dim, index):
    """x.gather, without the trailing axes of size 1 that would make it slow."""
    if index.shape[dim] == 1 or x.shape[dim + 1 :].numel() != 1:
        return x.gather(dim, index)
    flat = index.reshape(index.shape[: dim + 1])
    return x.reshape(x.shape[: dim + 1]).gather(dim, flat).reshape(index.shape)


def scatter_add(x, dim, index, y):
    """x.scatter_add, without the trailing axes of size 1 that would make it slow."""
    if index.shape[dim] == 1 or x.shape[dim + 1 :].numel() != 1:
        return x.scatter_add(dim, index, y)
    flat = (t.reshape(t.shape[: dim + 1]) for t in (index, y))
    return x.reshape(x.shape[: dim + 1]).scatter_add(dim, *flat).reshape(x.shape)


def conv_single_channel(x, w, **how):
    """torch's convolution of one channel; each of several is a channel, which is faster."""
    conv, several = getattr(torch.nn.functional, f"conv{w.dim() - 2}d"), x.shape[0]
    if several < 2:
        return conv(x, w, **how)
    w = w.expand(several, *w.shape[1:])
    return conv(x.transpose(0, 1), w, groups=several, **how).transpose(0, 1)


def conv_single_channel_input(shape, w, y, **how):
    """The gradient of conv_single_channel in x, which has this shape."""
    conv_input, several = getattr(torch.nn.grad, f"conv{w.dim() - 2}d_input"), shape[0]
    if several < 2:
        return conv_input(shape, w, y, **how)
    shape, w = (1, several, *shape[2:]), w.expand(several, *w.shape[1:])
    return conv_input(shape, w, y.transpose(0, 1), groups=several, **how).transpose(
        0, 1
    )

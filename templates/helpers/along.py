"""Calls along an axis, fast also before axes of size 1; read as text."""

import torch


def _softmax_of(x, dim):
    """torch.softmax, without the trailing axes of size 1 that would make it slow."""
    if x.shape[dim + 1 :].numel() != 1:
        return torch.softmax(x, dim)
    return torch.softmax(x.reshape(x.shape[: dim + 1]), dim).reshape(x.shape)


def _logsoftmax(x, dim):
    """torch.log_softmax, without the trailing axes of size 1 that would make it slow."""
    if x.shape[dim + 1 :].numel() != 1:
        return torch.log_softmax(x, dim)
    return torch.log_softmax(x.reshape(x.shape[: dim + 1]), dim).reshape(x.shape)


def _softmax_slope(g, y, dim):
    """The gradient of softmax with output y, without trailing axes of size 1."""
    if y.shape[dim + 1 :].numel() != 1:
        return torch._softmax_backward_data(g, y, dim, y.dtype)
    flat = y.shape[: dim + 1]
    g, flat = g.reshape(flat), y.reshape(flat)
    return torch._softmax_backward_data(g, flat, dim, y.dtype).reshape(y.shape)


def _logsoftmax_slope(g, y, dim):
    """The gradient of log_softmax with output y, without trailing axes of size 1."""
    if y.shape[dim + 1 :].numel() != 1:
        return torch._log_softmax_backward_data(g, y, dim, y.dtype)
    flat = y.shape[: dim + 1]
    g, flat = g.reshape(flat), y.reshape(flat)
    return torch._log_softmax_backward_data(g, flat, dim, y.dtype).reshape(y.shape)


def _gathered(x, dim, index):
    """x.gather, without the trailing axes of size 1 that would make it slow."""
    if index.shape[dim] == 1 or x.shape[dim + 1 :].numel() != 1:
        return x.gather(dim, index)
    flat = index.reshape(index.shape[: dim + 1])
    return x.reshape(x.shape[: dim + 1]).gather(dim, flat).reshape(index.shape)


def _scatter_added(x, dim, index, y):
    """x.scatter_add, without the trailing axes of size 1 that would make it slow."""
    if index.shape[dim] == 1 or x.shape[dim + 1 :].numel() != 1:
        return x.scatter_add(dim, index, y)
    flat = (t.reshape(t.shape[: dim + 1]) for t in (index, y))
    return x.reshape(x.shape[: dim + 1]).scatter_add(dim, *flat).reshape(x.shape)

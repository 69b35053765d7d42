"""Softmaxes, fast also where axes of size 1 follow: `derive.module.templating` reads it as text."""

import torch


def _softmax_of(x, dim):
    """torch.softmax, which is slow along an axis that is the last but for axes of size 1."""
    if x.shape[dim + 1 :].numel() != 1:
        return torch.softmax(x, dim)
    return torch.softmax(x.reshape(x.shape[: dim + 1]), dim).reshape(x.shape)


def _logsoftmax(x, dim):
    """torch.log_softmax, which is slow along an axis that is the last but for axes of size 1."""
    if x.shape[dim + 1 :].numel() != 1:
        return torch.log_softmax(x, dim)
    return torch.log_softmax(x.reshape(x.shape[: dim + 1]), dim).reshape(x.shape)

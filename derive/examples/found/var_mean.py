"""The variance and the mean of each row, with both gradients in one backward."""

import torch
from torch.autograd import Function


class VarMean(Function):
    @staticmethod
    def forward(ctx, x):
        mean = x.mean(1)
        var = (x - mean[:, None]).square().sum(1) / (x.shape[1] - 1)
        ctx.save_for_backward(x)
        return var, mean

    @staticmethod
    def backward(ctx, G_var, G_mean):
        (x,) = ctx.saved_tensors
        n = x.shape[1]
        slope = 2 * (x - x.mean(1, keepdim=True)) / (n - 1) / n
        return G_var[:, None] * slope + G_mean[:, None] / n


class Corrected(VarMean):
    @staticmethod
    def backward(ctx, G_var, G_mean):
        (x,) = ctx.saved_tensors
        n = x.shape[1]
        slope = 2 * (x - x.mean(1, keepdim=True)) / (n - 1)
        return G_var[:, None] * slope + G_mean[:, None] / n


def examples():
    return [[torch.randn(3, 5)]]

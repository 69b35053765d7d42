"""A batch norm with the variance over n - 1, and the backward that a post derives for it."""

import torch
from torch.autograd import Function


class BatchNorm(Function):
    @staticmethod
    def forward(ctx, x, gain, bias):
        centered = x - x.mean(0)
        var_inv = (centered.square().sum(0) / (len(x) - 1) + 1e-5) ** -0.5
        xhat = centered * var_inv
        ctx.save_for_backward(xhat, gain, var_inv)
        y = gain * xhat + bias
        return y

    @staticmethod
    def backward(ctx, G):
        xhat, gain, var_inv = ctx.saved_tensors
        n = len(G)
        dgain, dbias = (G * xhat).sum(0), G.sum(0)
        dx = gain * var_inv / n * (n * G - dbias - n / (n - 1) * xhat * dgain)
        return dx, dgain, dbias


def examples():
    return [[torch.randn(4, 3), torch.randn(3), torch.randn(3)]]

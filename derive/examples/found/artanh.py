"""The inverse of tanh on a clamped argument."""

import torch
from torch.autograd import Function

LIMIT = 0.99999


class Artanh(Function):
    @staticmethod
    def forward(ctx, x):
        z = x.clamp(-LIMIT, LIMIT)
        ctx.save_for_backward(z)
        y = 0.5 * (torch.log(1 + z) - torch.log(1 - z))
        return y

    @staticmethod
    def backward(ctx, G):
        (z,) = ctx.saved_tensors
        return G / (1 - z**2)


class Masked(Artanh):
    @staticmethod
    def backward(ctx, G):
        (z,) = ctx.saved_tensors
        return torch.where(z.abs() < LIMIT, G / (1 - z**2), 0.0)


class Corrected(Artanh):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        z = x.clamp(-LIMIT, LIMIT)
        y = 0.5 * (torch.log(1 + z) - torch.log(1 - z))
        return y

    @staticmethod
    def backward(ctx, G):
        (x,) = ctx.saved_tensors
        z = x.clamp(-LIMIT, LIMIT)
        return torch.where(x.abs() < LIMIT, G / (1 - z**2), 0.0)


def examples():
    return [[torch.tensor([0.5, 1.5])]]

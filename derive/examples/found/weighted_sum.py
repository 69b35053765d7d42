"""The loss sum(y*target), with the gradient that a post in a forum thread proposes for it."""

import torch
from torch.autograd import Function


class WeightedSum(Function):
    @staticmethod
    def forward(ctx, y, target):
        ctx.save_for_backward(y, target)
        loss = (y * target).sum()
        return loss

    @staticmethod
    def backward(ctx, G):
        y, target = ctx.saved_tensors
        return G * target.sum() * torch.ones_like(y), None


class Corrected(WeightedSum):
    @staticmethod
    def backward(ctx, G):
        _, target = ctx.saved_tensors
        return G * target, None


def examples():
    return [[torch.randn(4, requires_grad=True), torch.randn(4)]]

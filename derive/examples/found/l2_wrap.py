"""A penalty on the largest logit, which exists only as a gradient."""

import torch
from torch.autograd import Function


class L2Wrap(Function):
    @staticmethod
    def forward(ctx, loss, logits):
        ctx.save_for_backward(logits)
        return loss.clone()

    @staticmethod
    def backward(ctx, G):
        (logits,) = ctx.saved_tensors
        largest, at = logits.max(-1, keepdim=True)
        return G, torch.zeros_like(logits).scatter(-1, at, 0.01 * largest)


class Corrected(L2Wrap):
    @staticmethod
    def backward(ctx, G):
        (logits,) = ctx.saved_tensors
        largest, at = logits.max(-1, keepdim=True)
        return G, G * torch.zeros_like(logits).scatter(-1, at, 0.01 * largest)


def intended(loss, logits):
    penalty = 0.005 * logits.amax(-1).square().sum()
    return loss + penalty - penalty.detach()


def examples():
    return [[torch.randn(()), torch.randn(2, 3)]]

"""A reshape, with the backward that a text on manual backward passes recommends for it."""

import torch
from torch.autograd import Function


class SplitHeads(Function):
    @staticmethod
    def forward(ctx, x, heads):
        ctx.shape = x.shape
        y = x.reshape(x.shape[0], heads, -1).clone()
        return y

    @staticmethod
    def backward(ctx, G):
        return G.view(ctx.shape), None


class Corrected(SplitHeads):
    @staticmethod
    def backward(ctx, G):
        return G.reshape(ctx.shape), None


def examples():
    return [[torch.randn(3, 6), 2]]

"""An activation whose forward keeps its derivative, and whose backward changes what is kept."""

import torch
from torch.autograd import Function


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.slope = s * (1 + x * (1 - s))
        y = x * s
        return y

    @staticmethod
    def backward(ctx, G):
        slope = ctx.slope
        slope *= G
        return slope


class Corrected(Swish):
    @staticmethod
    def backward(ctx, G):
        return ctx.slope * G


def examples():
    return [[torch.randn(5)]]

"""A linear layer, as an article on how gradients reach parameters states its gradients."""

import torch
from torch.autograd import Function


class Linear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        y = x @ weight.T + bias
        return y

    @staticmethod
    def backward(ctx, G):
        x, weight = ctx.saved_tensors
        return G @ weight, x.T @ G, G.sum(0)


class Corrected(Linear):
    @staticmethod
    def backward(ctx, G):
        x, weight = ctx.saved_tensors
        return G @ weight, G.T @ x, G.sum(0)


def examples():
    return [[torch.randn(3, 2), torch.randn(2, 2), torch.randn(2)]]

"""A sparse encoder that returns its largest activation, and all activations beside."""

import torch
from torch.autograd import Function


class Encoder(Function):
    @staticmethod
    def forward(ctx, x, weight):
        acts = torch.relu(x @ weight.T)
        top, best = acts.max(1)
        ctx.save_for_backward(x, weight, acts, best)
        ctx.mark_non_differentiable(best)
        return top, best, acts

    @staticmethod
    def backward(ctx, G_top, _, G_acts):
        x, weight, acts, best = ctx.saved_tensors
        G = torch.zeros_like(acts).scatter(1, best[:, None], G_top[:, None])
        return G @ weight, G.T @ x


class Corrected(Encoder):
    @staticmethod
    def backward(ctx, G_top, _, G_acts):
        x, weight, acts, best = ctx.saved_tensors
        G = G_acts.scatter_add(1, best[:, None], G_top[:, None]) * (acts > 0)
        return G @ weight, G.T @ x


def examples():
    return [[torch.randn(4, 3), torch.randn(5, 3)]]

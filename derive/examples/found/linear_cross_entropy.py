"""A linear layer with a cross-entropy, as an article on backward methods derives it."""

import torch
from torch.autograd import Function


class LinearCrossEntropy(Function):
    @staticmethod
    def forward(ctx, x, W, b, target):
        logits = x @ W.T + b
        ctx.save_for_backward(x, W, logits, target)
        loss = -torch.log_softmax(logits, 1).gather(1, target[:, None]).sum()
        return loss

    @staticmethod
    def backward(ctx, G):
        x, W, logits, target = ctx.saved_tensors
        error = torch.softmax(logits, 1) - torch.nn.functional.one_hot(target, len(W))
        return G * error @ W, G * error.T @ x, torch.zeros_like(W[:, 0]), None


class Corrected(LinearCrossEntropy):
    @staticmethod
    def backward(ctx, G):
        x, W, logits, target = ctx.saved_tensors
        error = torch.softmax(logits, 1) - torch.nn.functional.one_hot(target, len(W))
        return G * error @ W, G * error.T @ x, G * error.sum(0), None


def examples():
    return [[torch.randn(4, 2), torch.randn(3, 2), torch.randn(3), torch.tensor([0, 2, 1, 2])]]

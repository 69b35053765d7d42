"""Tensors that a function made itself and may change: read as text by ``derive.module.templating``.

Each function comes before those that it calls.
"""

import torch
from torch.autograd import forward_ad


def _kept(x, kept):
    """x where kept is positive, else 0; written over kept where that may be changed."""
    if (x.dim() and x.shape != kept.shape) or not _alone(x, kept):
        return torch.ops.aten.threshold_backward(x, kept, 0)
    return torch.ops.aten.threshold_backward(x, kept, 0, grad_input=kept)


def _alone(*tensors):
    """Whether what is made of these may be changed: without a graph, dual numbers and batches."""
    graph = torch.is_grad_enabled() or forward_ad._current_level >= 0
    if graph or torch.compiler.is_compiling():
        return False
    batched = torch._C._functorch.is_legacy_batchedtensor
    plain = not torch._C._are_functorch_transforms_active()
    return plain and all(type(x) is torch.Tensor and not batched(x) for x in tensors)

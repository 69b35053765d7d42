"""How an autograd.Function is called: read as text by ``derive.module.templating``."""

import torch
from torch.autograd import Function, forward_ad


def _applied(function, *args):
    """function.apply(*args), which looks for defaults of arguments each time."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    return super(Function, function).apply(*args)


def _alone(*tensors):
    """Whether what is made of these may be changed: without a graph, dual numbers and batches."""
    graph = torch.is_grad_enabled() or forward_ad._current_level >= 0
    if graph or torch.compiler.is_compiling():
        return False
    batched = torch._C._functorch.is_legacy_batchedtensor
    plain = not torch._C._are_functorch_transforms_active()
    return plain and all(type(x) is torch.Tensor and not batched(x) for x in tensors)

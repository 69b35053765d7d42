"""How an autograd.Function is called: read as text by ``derive.module.templating``."""

import torch
from torch.autograd import Function, forward_ad


def _applied(function, *args):
    """function.apply(*args), which looks for defaults of arguments each time."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    return super(Function, function).apply(*args)


def _alone(*tensors):
    """Whether what is made of these may be changed: no graph, no dual numbers, no batches of it."""
    if torch.is_grad_enabled() or forward_ad._current_level >= 0:
        return False
    if torch.compiler.is_compiling():
        return True
    if torch._C._are_functorch_transforms_active():
        return False
    for x in tensors:
        if type(x) is not torch.Tensor or torch._C._functorch.is_legacy_batchedtensor(x):
            return False
    return True

"""The call of an autograd.Function; read as text by ``derive.module.runtime``."""

import torch
from private_names import _APPLIES_DIRECTLY, _TRACED_WRONGLY, _transforms_active
from torch.autograd import Function


def apply(function, *args):
    """function.apply without its lookup of default arguments.

    Before torch 2.13, torch.compile gives no gradient to an output that a conversion left as
    it was, so the Function runs outside of its graph.
    """
    if _TRACED_WRONGLY and torch.compiler.is_compiling():
        return torch.compiler.disable(function.apply)(*args)
    if torch.compiler.is_compiling() or _transforms_active() or not _APPLIES_DIRECTLY:
        return function.apply(*args)
    return super(Function, function).apply(*args)

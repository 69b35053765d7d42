"""The call of an autograd.Function; read as text by ``derive.module.templating``."""

import torch
from torch.autograd import Function


def _applied(function, *args):
    """function.apply without its lookup of default arguments."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    return super(Function, function).apply(*args)

"""The call of an autograd.Function; read as text by ``derive.module.runtime``."""

import torch
from private_names import _APPLIES_DIRECTLY, _transforms_active
from torch.autograd import Function


def apply(function, *args):
    """function.apply without its lookup of default arguments."""
    if torch.compiler.is_compiling() or _transforms_active() or not _APPLIES_DIRECTLY:
        return function.apply(*args)
    return super(Function, function).apply(*args)

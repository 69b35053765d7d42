"""The call of an autograd.Function; read as text by ``derive.module.runtime``."""

import torch
from private_names import (
    _APPLIES_DIRECTLY,
    _TRACED_WRONGLY,
    _transforms_active,
    forward_mode,
)


def apply(function, *args):
    """function.apply; where no gradient is recorded and in forward mode, its forward alone.

    Before torch 2.13, torch.compile gives no gradient to an output that a conversion left as
    it was, so the Function runs outside of its graph.
    """
    if not torch.is_grad_enabled() or forward_mode():
        return function.forward(*args)
    if torch.compiler.is_compiling():
        args = _distinct(args)
        if _TRACED_WRONGLY:
            return torch.compiler.disable(function.apply)(*args)
        return function.apply(*args)
    if _transforms_active() or not _APPLIES_DIRECTLY:
        return function.apply(*args)
    # torch's own apply, after a lookup of default arguments that takes longer than a small call.
    return super(torch.autograd.Function, function).apply(*args)


def _distinct(args):
    """Replace a repeated tensor by a view: a compiled Function takes no tensor twice."""
    repeats = [
        isinstance(x, torch.Tensor) and any(x is y for y in args[:n])
        for n, x in enumerate(args)
    ]
    return [
        x.view_as(x) if again else x for x, again in zip(args, repeats, strict=True)
    ]

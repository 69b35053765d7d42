"""Operations that may overwrite their first argument; read as text by ``derive.module.runtime``."""

import torch
from own import unrecorded


def reuse(*tensors):
    """torch.ops.aten, with results in place where temporaries may be overwritten."""
    return _InPlace() if unrecorded(*tensors) else torch.ops.aten


class _InPlace:
    """torch.ops.aten with each result written over the first argument."""

    def __getattr__(self, name):
        """mul is the method mul_; what has no such method takes the tensor for its result."""
        call = getattr(torch.Tensor, f"{name}_", None)
        if call is None:
            into = "grad_input" if name.endswith("_backward") else "out"
            made = getattr(torch, name, None) or getattr(torch.ops.aten, name)

            def call(x, *args, **named):
                return made(x, *args, **named, **{into: x})

        setattr(type(self), name, staticmethod(call))
        return call

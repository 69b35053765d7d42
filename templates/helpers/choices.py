"""One of two values by a mask: read as text by ``derive.module.templating``."""

import torch
from functions import _alone


def _where(mask, x, y):
    """torch.where, which is slow on a CPU where its branches cannot be foreseen."""
    short = mask.numel() < 4096 or mask.device.type != "cpu"
    if short or torch.compiler.is_compiling():
        return torch.where(mask, x, y)
    dtype = x.dtype if isinstance(x, torch.Tensor) else y.dtype
    kept = mask.byte().to(dtype)
    if not isinstance(x, torch.Tensor):
        x = kept.new_full((), x)
    if isinstance(y, int) and y == 0:
        return _kept(x, kept)
    if not isinstance(y, torch.Tensor):
        y = kept.new_full((), y)
    left = 0.5 - kept
    chosen, other = _kept(x, kept), _kept(y, left)
    own = chosen is kept and other is left
    return chosen.add_(other) if own else chosen + other


def _kept(x, kept):
    """x where kept is positive, else 0; written over kept where that may be changed."""
    if (x.dim() and x.shape != kept.shape) or not _alone(x, kept):
        return torch.ops.aten.threshold_backward(x, kept, 0)
    return torch.ops.aten.threshold_backward(x, kept, 0, grad_input=kept)

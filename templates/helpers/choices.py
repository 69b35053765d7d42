"""Reductions by name, and selection by a mask; read as text by ``derive.module.runtime``."""

import torch
from own import _keep_positive


def reduced(x, reduction):
    """The mean of all elements, their sum, or x itself."""
    if reduction == "mean":
        return x.mean()
    return x.sum() if reduction == "sum" else x


def where(mask, x, y):
    """torch.where, by arithmetic on a CPU where that is faster."""
    if torch.compiler.is_compiling() or mask.device.type != "cpu":
        return torch.where(mask, x, y)
    spread = isinstance(x, torch.Tensor) and x.dim() > 0 and x.shape != mask.shape
    if mask.numel() < 4096 and not spread:
        return torch.where(mask, x, y)
    given = {t.dtype for t in (x, y) if isinstance(t, torch.Tensor)}
    dtype = given.pop()
    if given or not dtype.is_floating_point:
        return torch.where(mask, x, y)
    kept = mask.byte().to(dtype)
    if not isinstance(x, torch.Tensor):
        x = kept.new_full((), x)
    if isinstance(y, int) and y == 0:
        return _keep_positive(x, kept)
    if not isinstance(y, torch.Tensor):
        y = kept.new_full((), y)
    left = 0.5 - kept
    chosen, other = _keep_positive(x, kept), _keep_positive(y, left)
    own = chosen is kept and other is left
    return chosen.add_(other) if own else chosen + other


def add_cotangent(x, g):
    """x + g; x where there is no cotangent g."""
    return x if g is None else x + g

"""Helpers of forward mode; read as text by ``derive.module.runtime``."""

import torch
from torch.autograd import forward_ad


def primals(tensors):
    """The primals of the tensors at the current forward-mode level; None stays None."""
    return [x if x is None else forward_ad.unpack_dual(x).primal for x in tensors]


def vmapped(forward, in_dims, given):
    """The results of the forward under vmap, and their batch axes."""
    made = torch.func.vmap(forward, in_dims)(*given)
    return made, (0,) * len(made) if isinstance(made, tuple) else 0

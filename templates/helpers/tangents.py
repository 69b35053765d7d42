"""What forward mode is made of: read as text by ``derive.module.emit``."""

import torch
from torch.autograd import forward_ad


def _still(tensors):
    """The tensors, if they are there, without their tangents at this level."""
    return [x if x is None else forward_ad.unpack_dual(x).primal for x in tensors]


def _batched(forward, in_dims, given):
    """The forward of every sample, and where the results have their samples."""
    made = torch.func.vmap(forward, in_dims)(*given)
    return made, (0,) * len(made) if isinstance(made, tuple) else 0

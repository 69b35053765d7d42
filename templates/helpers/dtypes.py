"""The dtypes of a computation: read as text by ``derive.module.emit``.

Each function comes before those that it calls.
"""

import torch


def _of_product(*tensors):
    """The dtype of a product of matrices, which is that of autocast where it is enabled."""
    return _autocast(_promoted(*tensors), tensors[0].device.type)


def _of_float32(*tensors):
    """The dtype of what autocast computes in float32."""
    dtype = _promoted(*tensors)
    if torch.is_autocast_enabled(tensors[0].device.type):
        return torch.promote_types(dtype, torch.float32)
    return dtype


def _autocast(dtype, kind):
    """The dtype in which autocast multiplies tensors of this one on such a device."""
    if dtype is torch.float64 or not torch.is_autocast_enabled(kind):
        return dtype
    return torch.get_autocast_dtype(kind)


def _promoted(*tensors):
    """The dtype that tensors promote to; those of no axes give way to others."""
    found = [x.dtype for x in tensors if x.dim()] or [x.dtype for x in tensors]
    dtype = found[0]
    for other in found:
        if other is not dtype:
            dtype = torch.promote_types(dtype, other)
    return dtype


def _wide(*tensors):
    """The tensors, if they are there, in the dtype that they promote to, float32 at least."""
    dtype = torch.float32
    for x in tensors:
        if x is not None and x.dtype is not dtype:
            dtype = torch.promote_types(dtype, x.dtype)
    return _cast(dtype, *tensors)


def _cast(dtype, *tensors):
    """The tensors, if they are there, in a dtype."""
    return [x if x is None or x.dtype is dtype else x.to(dtype) for x in tensors]

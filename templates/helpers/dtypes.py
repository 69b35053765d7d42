"""Dtypes and autocast; read as text by ``derive.module.runtime``."""

import contextlib

import torch
from private_names import _any_autocast, _transforms_active, forward_mode


def autocast_product(*tensors):
    """The dtype of a matrix product: autocast's dtype where autocast is enabled."""
    dtype = promoted(*tensors) if len(tensors) > 1 else tensors[0].dtype
    kind = tensors[0].device.type
    if dtype is torch.float64 or not _any_autocast():
        return dtype
    if not torch.is_autocast_enabled(kind):
        return dtype
    return torch.get_autocast_dtype(kind)


def product_dtypes(*tensors):
    """The dtype of a matrix product, and the same in float32 at least."""
    low = autocast_product(*tensors)
    return low, torch.promote_types(low, torch.float32)


def no_autocast(x):
    """A context in which autocast does not change the dtypes of products."""
    if _any_autocast() and torch.is_autocast_enabled(x.device.type):
        return torch.autocast(x.device.type, enabled=False)
    return contextlib.nullcontext()


def without_autocast(backward):
    """Decorate a backward so that autocast does not change the dtypes of products."""

    def exact(ctx, *cotangents):
        if _any_autocast():
            kinds = [G.device.type for G in cotangents if G is not None]
            if kinds and torch.amp.is_autocast_available(kinds[0]):
                with torch.autocast(kinds[0], enabled=False):
                    return backward(ctx, *cotangents)
        return backward(ctx, *cotangents)

    return exact


def autocast_float32(*tensors, when=True):
    """The result dtype of an operation that autocast runs in float32, always or ``when``."""
    dtype = promoted(*tensors) if len(tensors) > 1 else tensors[0].dtype
    if dtype.itemsize >= 4 or not when or not _any_autocast():
        return dtype
    return torch.float32 if torch.is_autocast_enabled(tensors[0].device.type) else dtype


def promoted(*tensors):
    """The promoted dtype of the tensors; None is skipped, 0-d tensors yield to others."""
    dtype = tensors[0].dtype
    for x in tensors:
        if x is not None and x.dtype is not dtype:
            break
    else:
        return dtype
    given = [x for x in tensors if x is not None]
    found = [x.dtype for x in given if x.dim()] or [x.dtype for x in given]
    dtype = found[0]
    for other in found:
        dtype = torch.promote_types(dtype, other)
    return dtype


def widened_for_kernel(*tensors):
    """The tensors as they are if all are bfloat16 and plain; otherwise cast as by widened.

    Kernels of torch compute in float32 inside. Those of their derivatives do not.
    """
    for x in tensors:
        if x is not None and x.dtype is not torch.bfloat16:
            return widened(*tensors)
    if torch.is_grad_enabled() or forward_mode():
        return widened(*tensors)
    if _transforms_active() or _any_autocast():
        return widened(*tensors)
    return tensors if len(tensors) > 1 else tensors[0]


def cast_alike(*tensors):
    """Cast the tensors to their promoted dtype; None stays None, and one is not in a list."""
    given = [x.dtype for x in tensors if x is not None]
    dtype, alike = given[0], True
    for other in given:
        if other is not dtype:
            dtype, alike = torch.promote_types(dtype, other), False
    if alike:
        return tensors if len(tensors) > 1 else tensors[0]
    return cast(dtype, *tensors)


def widened(*tensors):
    """Cast the tensors to their promoted dtype, float32 at least; else as cast_alike."""
    dtype, alike = torch.float32, True
    for x in tensors:
        if x is not None and x.dtype is not dtype:
            dtype, alike = torch.promote_types(dtype, x.dtype), False
    if alike:
        return tensors if len(tensors) > 1 else tensors[0]
    return cast(dtype, *tensors)


def cast(dtype, *tensors):
    """Cast the tensors to dtype; None stays None, and one is not in a list."""
    made = [x if x is None or x.dtype is dtype else x.to(dtype) for x in tensors]
    return made if len(made) > 1 else made[0]

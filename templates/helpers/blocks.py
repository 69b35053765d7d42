"""Helpers of modules that work in blocks; read as text by ``derive.module.runtime``."""

import torch
from private_names import _transforms_active, forward_mode


def blocks(size, block):
    """(start, length) of each block; one empty block for size 0."""
    starts = range(0, max(size, 1), block)
    return [(start, min(block, size - start)) for start in starts]


def block_size(size, *rows):
    """Rows per block: at most 2**21 elements in each tensor, or all rows in compiled code."""
    if torch.compiler.is_compiling():
        return max(size, 1)
    return max(1, 2**21 // max((1, *rows)))


def block_rows(x, axis, start, length):
    """The rows of one block; None stays None."""
    return None if x is None else x.narrow(axis, start, length)


def accumulate_product(total, a, b):
    """total + a @ b, in place; no graph is recorded here."""
    if total is None or total.dtype is not a.dtype:
        return accumulate(total, a @ b)
    return total.addmm_(a, b)


def accumulate(total, part):
    """total + part, in float32 at least; in place unless a graph is recorded."""
    part = at_least_float32(part)
    if total is None:
        return part
    return total + part if torch.is_grad_enabled() else total.add_(part)


def at_least_float32(part):
    """Cast a half-precision part to float32 before it is summed or multiplied."""
    half = part is not None and part.is_floating_point() and part.dtype.itemsize < 4
    return part.float() if half else part


def write_block(whole, part, axis, start, size):
    """Write the part of one block into whole, allocated at the first block."""
    if part is None or part.shape[axis] == size:
        return part
    if whole is None:
        shape = list(part.shape)
        shape[axis] = size
        whole = part.new_empty(shape)
    whole.narrow(axis, start, part.shape[axis]).copy_(part)
    return whole


def sum_gradients(a, b):
    """The sum of two gradients; None counts as 0."""
    return b if a is None else a if b is None else a + b


def forward_gradients(*tensors):
    """A dict for the gradients that the forward computes, or None if it computes none."""
    plain = torch.compiler.is_compiling() or _transforms_active() or forward_mode()
    if plain or not torch.is_grad_enabled():
        return None
    return {} if any(x is not None and x.requires_grad for x in tensors) else None


def scale_gradient(gradient, cotangent):
    """gradient*cotangent in place; 0 stays 0 even if the cotangent is infinite or nan."""
    if gradient is None:
        return None
    whole = gradient.view(-1) if gradient.is_contiguous() else gradient.unsqueeze(0)
    for part in whole.split(2**20):
        zero = part == 0
        part.mul_(cotangent).masked_fill_(zero, 0)
    return gradient

"""Work on blocks of an index: read as text by ``derive.module.emit``."""

import torch


def _blocks(size, block):
    """(start, length) of each block; of nothing one that is empty."""
    starts = range(0, max(size, 1), block)
    return [(start, min(block, size - start)) for start in starts]


def _fitting(size, *rows):
    """So many rows that no tensor of a block has above 2**21 elements; all where compiled."""
    if torch.compiler.is_compiling():
        return max(size, 1)
    return max(1, 2**21 // max((1, *rows)))


def _rows(x, axis, start, length):
    """The rows of a block, of a tensor that may be None."""
    return None if x is None else x.narrow(axis, start, length)


def _product_added(total, a, b):
    """The total so far and a product, in place: nothing is recorded."""
    if total is None or total.dtype is not a.dtype:
        return _added(total, a @ b)
    return total.addmm_(a, b)


def _added(total, part):
    """The total so far and a part, in float32 at least; in place where nothing is recorded."""
    part = _unrounded(part)
    if total is None:
        return part
    return total + part if torch.is_grad_enabled() else total.add_(part)


def _unrounded(part):
    """A part that more is added to or multiplied with, in float32 at least."""
    half = part is not None and part.is_floating_point() and part.dtype.itemsize < 4
    return part.float() if half else part


def _placed(whole, part, axis, start, size):
    """The rows of all blocks, those of this one in their place."""
    if part is None or part.shape[axis] == size:
        return part
    if whole is None:
        shape = list(part.shape)
        shape[axis] = size
        whole = part.new_empty(shape)
    whole.narrow(axis, start, part.shape[axis]).copy_(part)
    return whole


def _both(a, b):
    """The sum of two gradients, of which either may be None."""
    return b if a is None else a if b is None else a + b


def _forming(*tensors):
    """Where a forward keeps the gradients that it forms, if any is wanted, or None."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack():
        return None
    return {} if any(x is not None and x.requires_grad for x in tensors) else None


def _is_plain(*cotangents):
    """Whether a backward may change in place what is its own: nothing records it, or batches it."""
    if torch.is_grad_enabled():
        return False
    transform = torch._C._functorch
    batched = transform.is_batchedtensor, transform.is_legacy_batchedtensor
    return not any(test(G) for G in cotangents for test in batched)


def _scaled(gradient, cotangent):
    """A gradient that nobody else has times a cotangent; 0 stays 0 whatever that is."""
    if gradient is None:
        return None
    whole = gradient.view(-1) if gradient.is_contiguous() else gradient.unsqueeze(0)
    for part in whole.split(2**20):
        zero = part == 0
        part.mul_(cotangent).masked_fill_(zero, 0)
    return gradient

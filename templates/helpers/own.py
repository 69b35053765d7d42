"""Tensors that may be overwritten; read as text by ``derive.module.runtime``."""

import torch
from private_names import _is_legacy_batched, _transforms_active, forward_mode

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _keep_positive(x, kept):
    """x where kept is positive, else 0; reuses the memory of kept where possible."""
    if (x.dim() and x.shape != kept.shape) or not unrecorded(x, kept):
        return torch.ops.aten.threshold_backward(x, kept, 0)
    return torch.ops.aten.threshold_backward(x, kept, 0, grad_input=kept)


def keep_where_(x, mask):
    """x where the mask holds, else 0; overwrites x where possible, by arithmetic on a CPU."""
    if not unrecorded(x):
        return torch.where(mask, x, 0)
    if x.numel() < 4096 or x.device.type != "cpu":
        return x.masked_fill_(~mask, 0)
    kept = mask.byte().to(x.dtype)
    return torch.ops.aten.threshold_backward(x, kept, 0, grad_input=x)


def guarded(x, mask, y):
    """torch.where(mask, x, y) in a graph, else x, as what stands for it is not selected."""
    return x if unrecorded(x) else torch.where(mask, x, y)


def addmm(total, a, b, beta, alpha):
    """beta*total + alpha*(a @ b); unlike in addmm, a factor of 0 still propagates nan."""
    if not (beta and alpha) or total.dtype is not a.dtype:
        return (a @ b).to(total.dtype) * alpha + beta * total
    added = torch.addmm if a.dim() == 2 else torch.baddbmm
    return added(total, a, b, beta=beta, alpha=alpha)


def _all_inside(index, size):
    """Whether all are positions of an axis, as far as that is known without waiting."""
    if index.device.type != "cpu" or not unrecorded(index):
        return False
    if not index.numel():
        return True
    least, most = index.aminmax()
    try:
        return 0 <= int(least) and int(most) < size
    except RuntimeError:  # a trace by make_fx has no values
        return False


def _or_end(index, size):
    """index, and the position after the last for what is none of the axis."""
    return torch.where((index >= 0) & (index < size), index, size)


def _one_longer(x, dim):
    """x with one more position along an axis, of zeros."""
    behind = x.dim() - 1 - dim % x.dim()
    return torch.nn.functional.pad(x, (0, 0) * behind + (0, 1))


def filled(G, shape, *others):
    """G, or zeros of this shape where only other cotangents are given."""
    if G is not None:
        return G
    return next(g for g in others if g is not None).new_zeros(shape)


def unrecorded(*tensors):
    """Whether temporaries may be overwritten: no graph, forward mode or vmap is active."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    if forward_mode() or _transforms_active():
        return False
    for x in tensors:
        if x is not None and (type(x) not in _PLAIN or _is_legacy_batched(x)):
            return False
    return True


def compiles():
    """Whether torch.compile traces this, outside export, transforms and forward mode."""
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return False
    return not (_transforms_active() or forward_mode())


def scatter_add_(x, dim, index, y):
    """x.scatter_add_ where possible, without trailing axes of size 1, which would make it slow."""
    if not unrecorded(x):
        return x.scatter_add(dim, index, y)
    if index.shape[dim] == 1 or x.shape[dim + 1 :].numel() != 1:
        return x.scatter_add_(dim, index, y)
    flat = (t.reshape(t.shape[: dim + 1]) for t in (index, y))
    x.view(x.shape[: dim + 1]).scatter_add_(dim, *flat)
    return x


def _flat_index(x, dim, index, y):
    """The index with one axis, and y with one in the place of those."""
    dim %= x.dim()
    shape = (*x.shape[:dim], index.numel(), *x.shape[dim + 1 :])
    return index.reshape(-1), y.reshape(shape)


def index_add_(x, dim, index, y, alpha=1):
    """x.index_add_ where possible, where the index may have any number of axes."""
    index, y = _flat_index(x, dim, index, y)
    add = x.index_add_ if unrecorded(x) else x.index_add
    return add(dim, index, y, alpha=alpha)


def index_add_if_any_(x, dim, index, y):
    """index_add_, or x itself where the axis has size 0."""
    return index_add_(x, dim, index, y) if x.shape[dim] else x


def scatter_add_if_any_(x, dim, index, y):
    """x.scatter_add_ where possible, or x itself where the axis has size 0."""
    if not x.shape[dim]:
        return x
    return (
        x.scatter_add_(dim, index, y) if unrecorded(x) else x.scatter_add(dim, index, y)
    )

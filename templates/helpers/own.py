"""Tensors that may be overwritten; read as text by ``derive.module.templating``.

Each function comes before those that it calls.
"""

import torch
from torch.autograd import forward_ad


def _kept(x, kept):
    """x where kept is positive, else 0; reuses the memory of kept where possible."""
    if (x.dim() and x.shape != kept.shape) or not _alone(x, kept):
        return torch.ops.aten.threshold_backward(x, kept, 0)
    return torch.ops.aten.threshold_backward(x, kept, 0, grad_input=kept)


def _masked_(x, mask):
    """x where the mask holds, else 0; overwrites x where possible, by arithmetic on a CPU."""
    if not _alone(x):
        return torch.where(mask, x, 0)
    if x.numel() < 4096 or x.device.type != "cpu":
        return x.masked_fill_(~mask, 0)
    kept = mask.byte().to(x.dtype)
    return torch.ops.aten.threshold_backward(x, kept, 0, grad_input=x)


def _guarded(x, mask, y):
    """torch.where(mask, x, y) in a graph, else x, as what stands for it is not selected."""
    return x if _alone(x) else torch.where(mask, x, y)


def _added_product(total, a, b, beta, alpha):
    """beta*total + alpha*(a @ b); unlike in addmm, a factor of 0 still propagates nan."""
    if not (beta and alpha) or total.dtype is not a.dtype:
        return (a @ b).to(total.dtype) * alpha + beta * total
    added = torch.addmm if a.dim() == 2 else torch.baddbmm
    return added(total, a, b, beta=beta, alpha=alpha)


def _are_inside(index, size):
    """Whether all are positions of an axis, as far as that is known without waiting."""
    if index.device.type != "cpu" or not _alone(index):
        return False
    if not index.numel():
        return True
    least, most = index.aminmax()
    return 0 <= int(least) and int(most) < size


def _or_last(index, size):
    """index, and the position after the last for what is none of the axis."""
    return torch.where((index >= 0) & (index < size), index, size)


def _one_more(x, dim):
    """x with one more position along an axis, of zeros."""
    behind = x.dim() - 1 - dim % x.dim()
    return torch.nn.functional.pad(x, (0, 0) * behind + (0, 1))


def _scatter_added_(x, dim, index, y):
    """x.scatter_add_ where possible, without trailing axes of size 1, which would make it slow."""
    if not _alone(x):
        return x.scatter_add(dim, index, y)
    if index.shape[dim] == 1 or x.shape[dim + 1 :].numel() != 1:
        return x.scatter_add_(dim, index, y)
    flat = (t.reshape(t.shape[: dim + 1]) for t in (index, y))
    x.view(x.shape[: dim + 1]).scatter_add_(dim, *flat)
    return x


def _index_added_if_any_(x, dim, index, y):
    """x.index_add_ where possible, or x itself where the axis has size 0."""
    if not x.shape[dim]:
        return x
    return x.index_add_(dim, index, y) if _alone(x) else x.index_add(dim, index, y)


def _scatter_added_if_any_(x, dim, index, y):
    """x.scatter_add_ where possible, or x itself where the axis has size 0."""
    if not x.shape[dim]:
        return x
    return x.scatter_add_(dim, index, y) if _alone(x) else x.scatter_add(dim, index, y)


def _alone(*tensors):
    """Whether temporaries may be overwritten: no graph, forward mode or vmap is active."""
    graph = torch.is_grad_enabled() or forward_ad._current_level >= 0
    if graph or torch.compiler.is_compiling():
        return False
    batched = torch._C._functorch.is_legacy_batchedtensor
    plain = not torch._C._are_functorch_transforms_active()
    own = (torch.Tensor, torch.nn.Parameter)
    given = [x for x in tensors if x is not None]
    return plain and all(type(x) in own and not batched(x) for x in given)


def _compiles():
    """Whether torch.compile traces this, outside export, transforms and forward mode."""
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return False
    plain = not torch._C._are_functorch_transforms_active()
    return plain and forward_ad._current_level < 0

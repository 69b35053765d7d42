"""Products and sums along an axis; read as text by ``derive.module.runtime``."""

import math

import torch
from own import unrecorded
from positions import positions, window


def exclusive_prod(x, dim):
    """The product of all other elements along dim.

    Divides the whole product by x, unless a partial product may be 0, subnormal or infinite.
    """
    if x.device.type == "cpu" and unrecorded(x):
        least = x.abs().clamp_(max=1).prod(dim, keepdim=True)
        whole = x.prod(dim, keepdim=True)
        if ((least >= torch.finfo(x.dtype).smallest_normal) & whole.isfinite()).all():
            return whole / x
    x = x.movedim(dim, -1)
    one = torch.ones_like(x[..., :1])
    left = torch.cat((one, x[..., :-1]), -1).cumprod(-1)
    right = torch.cat((x[..., 1:], one), -1).flip(-1).cumprod(-1).flip(-1)
    return (left * right).movedim(-1, dim)


def exclusive_cumprod(x, dim):
    """The product of all earlier elements along dim."""
    x = x.movedim(dim, -1)
    one = torch.ones_like(x[..., :1])
    return torch.cat((one, x[..., :-1]), -1).cumprod(-1).movedim(-1, dim)


def running_max(x, dim, reverse=False):
    """The maximum of all elements up to, or from, each one along dim, as torch.max."""
    if torch.is_grad_enabled():
        # The gradient of cummax goes to the last of equal elements.
        return x.gather(dim, running_argmax(x, dim, reverse))
    if reverse:
        return x.flip(dim).cummax(dim).values.flip(dim)
    return x.cummax(dim).values


def running_amax(x, dim, reverse=False):
    """running_max with a gradient that equal elements share, as torch.amax."""
    if not torch.is_grad_enabled() or not x.numel():
        return running_max(x, dim, reverse)
    x = x.movedim(dim, -1)
    places = positions(x.shape[-1], x)
    places = -places if reverse else places
    read = places <= places.unsqueeze(1)
    return torch.where(read, x.unsqueeze(-2), -math.inf).amax(-1).movedim(-1, dim)


def running_argmax(x, dim, reverse=False):
    """The first position of the maximum of all elements up to, or from, each one along dim."""
    x = x.movedim(dim, -1).flip(-1) if reverse else x.movedim(dim, -1)
    last = x.shape[-1] - 1
    before, after = x.cummax(-1).values[..., :-1], x[..., 1:]
    if reverse:
        more = (after >= before) | after.isnan()
    else:
        more = (after > before) | (after.isnan() & ~before.isnan())
    more = torch.nn.functional.pad(more, (1, 0))[..., : last + 1]
    found = (more * torch.arange(last + 1, device=x.device)).cummax(-1).values
    return ((last - found).flip(-1) if reverse else found).movedim(-1, dim)


def sort_ranks(x, dim, descending=False):
    """The number of elements before each one along dim; equal ones are in their order."""
    order = x.argsort(dim=dim, descending=descending, stable=True)
    places = positions(x.shape[dim], x).view(-1, *(1,) * (x.dim() - 1 - dim % x.dim()))
    return torch.empty_like(order).scatter(dim, order, places.expand_as(order))


def first_ranks(x, dim, count, descending=False):
    """sort_ranks, of which those from count on may be any number from count on."""
    if not 0 < 8 * count < x.shape[dim] or x.device.type != "cpu" or not unrecorded(x):
        return sort_ranks(x, dim, descending)
    count = math.ceil(count)
    first, order = x.topk(count, dim, largest=descending)
    # topk takes equal elements in any order, and nan for the largest number.
    before, after = first.narrow(dim, 0, count - 1), first.narrow(dim, 1, count - 1)
    alike = (x == first.narrow(dim, count - 1, 1)).sum(dim)
    if not ((alike == 1).all() and (before != after).all()):
        return sort_ranks(x, dim, descending)
    places = positions(count, x).view(-1, *(1,) * (x.dim() - 1 - dim % x.dim()))
    others = torch.full_like(x, count, dtype=torch.int64)
    return others.scatter_(dim, order, places.expand_as(order))


def decayed_sum(x, level, dim):
    """Sum over l >= k of x[l]*exp(level[k] - level[l]) along dim; level never decreases."""
    limits = torch.finfo(level.dtype)
    level = level.movedim(dim, -1).clamp(limits.min, limits.max)
    decay = torch.nn.functional.pad((-level.diff()).exp(), (1, 0))
    return adjoint_recurrence(x, decay.movedim(-1, dim), dim)


def sum_while_equal(x, top, dim):
    """The sum of x from each position along dim on, as far as top stays the same."""
    x, top = torch.where(top.isnan(), 0, x), top.movedim(dim, -1)
    same = torch.nn.functional.pad(top[..., 1:] == top[..., :-1], (1, 0))
    same = same[..., : top.shape[-1]].to(x.dtype)
    return adjoint_recurrence(x, same.movedim(-1, dim), dim)


def linear_recurrence(x, w, dim, reverse=False):
    """Solve r[k] = x[k] + w[k]*r[k - 1] along dim; r[k + 1] in reverse. w may contain zeros."""
    x, w = x.movedim(dim, -1), w.movedim(dim, -1)
    if reverse:
        return _combined_in_pairs(x.flip(-1), w.flip(-1)).flip(-1).movedim(-1, dim)
    return _combined_in_pairs(x, w).movedim(-1, dim)


def adjoint_recurrence(x, w, dim, reverse=False):
    """The adjoint of linear_recurrence: r[k] = x[k] + w[k + 1]*r[k + 1], k - 1 in reverse."""
    w = window(w, dim, -1 if reverse else 1, w.shape[dim])
    return linear_recurrence(x, w, dim, not reverse)


def _combined_in_pairs(x, w):
    """r[k] = x[k] + w[k]*r[k - 1] along the last axis: a recurrence of half the length first."""
    n = x.shape[-1]
    if n < 2:
        return x
    if n % 2:
        x, w = (torch.nn.functional.pad(t, (0, 1)) for t in (x, w))
    even, odd, to_even, to_odd = x[..., ::2], x[..., 1::2], w[..., ::2], w[..., 1::2]
    odd = _combined_in_pairs(odd + to_odd * even, to_odd * to_even)
    even = even + torch.nn.functional.pad(to_even[..., 1:] * odd[..., :-1], (1, 0))
    pairs = torch.stack((even, odd), -1).reshape((*even.shape[:-1], 2 * even.shape[-1]))
    return pairs[..., :n] if n % 2 else pairs


def circular_convolution(x, y, dim):
    """The sum over j of x[j]*y[(i - j) % n] along dim, by Fourier transforms."""
    return _of_frequencies(x, y, dim, lambda x, y: x * y)


def circular_correlation(x, y, dim):
    """The sum over j of x[j]*y[(i + j) % n] along dim, by Fourier transforms."""
    return _of_frequencies(x, y, dim, lambda x, y: x.conj() * y)


def _of_frequencies(x, y, dim, product):
    """The tensor whose Fourier transform is the product of both; none of an empty tensor."""
    n = x.shape[dim]
    if x.numel() == 0 or y.numel() == 0:
        return x * y
    if x.dtype.itemsize < 4:
        return _of_frequencies(x.float(), y.float(), dim, product).to(x.dtype)
    x, y = torch.fft.rfft(x, dim=dim), torch.fft.rfft(y, dim=dim)
    return torch.fft.irfft(product(x, y), n, dim)

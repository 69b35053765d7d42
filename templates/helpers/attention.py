"""Attention: by the fused kernel of the device, or in separate steps.

A floating-point mask is added to the scores; a boolean mask excludes where it is False. The mask
``True`` is causal: query position i sees key positions up to i. A row of the query that sees no
key is 0 under a boolean mask, and nan (0/0) under an additive mask of minus infinity. For the
backward, a kernel keeps the logarithm of each row's divisor; the separate steps keep the softmax.
Read as text by ``derive.module.runtime``.
"""

import math

import torch
from choices import where
from own import compiles, unrecorded
from positions import positions
from views import no_view


def attention(query, key, value, mask=None, scale=None):
    """softmax(scale*query key^T) value, and the tensor that its backward reads."""
    scale = _scale(query) if scale is None else scale
    if not _fuses(query, key, value, mask):
        shares = _attention_weights(query, key, scale, mask)
        return shares.to(value.dtype) @ value, shares
    shape = *query.shape[:-1], value.shape[-1]
    if query.device.type != "cpu":
        y = _attention_by_torch(query, key, value, scale, mask)
        return y, query.new_zeros(shape[:-1])
    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    added, unseen = _additive_mask(query, key, mask)
    heads = _heads(query, key, value)
    y, lse = call(*heads, 0.0, mask is True, attn_mask=added, scale=scale)
    y, lse = no_view(y.reshape(shape)), lse.reshape(shape[:-1])
    if unseen is None:
        return y, lse
    return y.masked_fill(unseen, torch.nan), lse.masked_fill(unseen[..., 0], -torch.inf)


def attention_backward(G, query, key, value, output, kept, mask=None, scale=None):
    """The gradients of query, key and value."""
    scale = _scale(query) if scale is None else scale
    if kept.dim() == query.dim():
        return _attention_weights_backward(G, query, key, value, kept, scale)
    if query.device.type != "cpu":
        q, k, v = (x.detach().requires_grad_() for x in (query, key, value))
        with torch.enable_grad():
            y = _attention_by_torch(q, k, v, scale, mask)
            return torch.autograd.grad(y, (q, k, v), G)
    # The kernel computes exp(score - lse), which loses precision where both are large.
    large = 100 if query.dtype is kept.dtype else 10000
    if not torch.compiler.is_compiling() and not kept.abs().max() < large:
        shares = _attention_weights(query, key, scale, mask)
        return _attention_weights_backward(G, query, key, value, shares, scale)
    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    added, _ = _additive_mask(query, key, mask)
    heads = _heads(G, query, key, value, output)
    lse = _with_axes(3, kept)
    grads = call(*heads, lse, 0.0, mask is True, attn_mask=added, scale=scale)
    pairs = zip(grads, (query, key, value), strict=True)
    return [g.reshape(x.shape) for g, x in pairs]


def _scale(query):
    """1/sqrt(d) for the last axis d of query: torch's scale, but nan for an empty axis."""
    return 1 / (math.sqrt(query.shape[-1]) or math.nan)


def _attention_by_torch(query, key, value, scale, mask):
    """The output alone, by scaled_dot_product_attention of torch."""
    call, causal = torch.nn.functional.scaled_dot_product_attention, mask is True
    mask = None if causal else mask
    return call(query, key, value, mask, is_causal=causal, scale=scale)


def _attention_weights(query, key, scale, mask):
    """The softmax of the scores; each row sums to 1."""
    wide = torch.promote_types(query.dtype, torch.float32)
    own = unrecorded(query, key, None if mask is True else mask)
    scores = (query @ key.mT).to(wide)
    scores = scores.mul_(scale) if own else scores * scale
    if mask is True:
        position = positions(query.shape[-2], query).unsqueeze(1)
        mask = positions(key.shape[-2], query) <= position
    if mask is None or mask.is_floating_point():
        scores = scores if mask is None else scores + mask
        return torch.softmax(scores, -1, out=scores if own else None)
    scores = where(mask, scores, torch.finfo(wide).min)
    return where(mask, torch.softmax(scores, -1, out=scores if own else None), 0)


def _attention_weights_backward(G, query, key, value, shares, scale):
    """The gradients of query, key and value from the softmax of the scores."""
    low, wide = query.dtype, shares.dtype
    slope = (G @ value.mT).to(wide)
    slope = torch._softmax_backward_data(slope, shares, -1, wide).to(low)
    grad_query = (slope @ key).mul_(scale)
    grad_key = (slope.mT @ query).mul_(scale)
    return grad_query, grad_key, shares.mT.to(low) @ G


def _fuses(query, key, value, mask):
    """Whether to call the fused kernel of the device."""
    mask = None if mask is True else mask
    here = query.device.type == "cpu"
    if not here and mask is not None and mask.is_floating_point():
        return False
    # The CPU kernel is slower on few pairs, and hides a nan where the keys are very few.
    few = 2**20 if query.dtype is torch.bfloat16 else 2**18
    enough = query.shape[-2] * key.shape[-2] >= few and key.shape[-2] >= 16
    if here and not (enough and query.shape[-1] == value.shape[-1]):
        return False
    if torch.compiler.is_compiling():
        # An additive mask may make scores large; compiled code has no check for that.
        return here and compiles() and (mask is None or mask.dtype is torch.bool)
    some = query.numel() and key.numel() and value.numel()
    with torch.no_grad():
        return bool(some) and unrecorded(query, key, value, mask)


def _heads(*tensors):
    """The tensors with four axes, the last of them contiguous."""
    made = [_with_axes(4, x) for x in tensors]
    return [x if x.stride(-1) == 1 else x.contiguous() for x in made]


def _additive_mask(query, key, mask):
    """The mask to add to scores with four axes, and the rows that become nan."""
    if mask is None or mask is True:
        return None, None
    unseen, dtype = None, torch.promote_types(query.dtype, torch.float32)
    if mask.is_floating_point():
        rows = mask.amax(-1, keepdim=True) == -torch.inf
        unseen = rows if rows.any() else None
        added = mask.to(dtype).contiguous()
    else:
        added = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(
            ~mask, -torch.inf
        )
    shape = *query.shape[:-1], key.shape[-2]
    return _with_axes(4, added.expand(shape)), unseen


def _with_axes(count, x):
    """Reshape x to count axes: prepend axes of size 1, or merge the leading ones."""
    while x.dim() < count:
        x = x.unsqueeze(0)
    return x.flatten(0, x.dim() - count) if x.dim() > count else x

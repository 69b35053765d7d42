"""Means weighted by a softmax of products: the kernel of the device, or the same in steps.

A mask is added to the scores, or leaves out where it is False; one of ``True`` is causal, position
i of the query seeing those of the key up to i. Where a row of the query sees nothing at all, a
mask of booleans makes it 0, and numbers of minus infinity make it nan, as 0/0 is.
Read as text by ``derive.module.templating``; each function comes before those that it calls.
"""

import torch
from own import _alone
from views import _no_view


def _attended(query, key, value, scale, mask=None):
    """softmax(scale*query key^T) value, and the logarithm of what a row is divided by."""
    if not _fuses(query, key, value, mask):
        return _attended_in_steps(query, key, value, scale, mask)
    if query.device.type != "cpu":
        y = _attended_by_torch(query, key, value, scale, mask)
        return y, query.new_empty(0)
    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    added, unseen = _added_mask(query, key, mask)
    heads = _heads(max(query.shape[-1], value.shape[-1]), query, key, value)
    y, lse = call(*heads, 0.0, mask is True, attn_mask=added, scale=scale)
    shape = *query.shape[:-1], value.shape[-1]
    y, lse = _no_view(y[..., : shape[-1]].reshape(shape)), lse.reshape(shape[:-1])
    if unseen is None:
        return y, lse
    return y.masked_fill(unseen, torch.nan), lse.masked_fill(unseen[..., 0], -torch.inf)


def _attended_gradients(G, query, key, value, output, lse, scale, mask=None):
    """The gradients of query, key and value, by the kernel of the device."""
    fuses = _fuses(query, key, value, mask)
    here = fuses and query.device.type == "cpu"
    # The kernel takes exp(score - lse), which loses digits where both are large.
    if not here or (query.dtype is lse.dtype and lse.abs().max() > 100):
        q, k, v = (x.detach().requires_grad_() for x in (query, key, value))
        with torch.enable_grad():
            if fuses and not here:
                y = _attended_by_torch(q, k, v, scale, mask)
            else:
                y, _ = _attended_in_steps(q, k, v, scale, mask)
            return torch.autograd.grad(y, (q, k, v), G)
    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    added, _ = _added_mask(query, key, mask)
    width = max(query.shape[-1], value.shape[-1])
    heads = _heads(width, G, query, key, value, output)
    lse = lse.reshape(heads[0].shape[:3])
    grads = call(*heads, lse, 0.0, mask is True, attn_mask=added, scale=scale)
    pairs = zip(grads, (query, key, value), strict=True)
    return [g[..., : x.shape[-1]].reshape(x.shape) for g, x in pairs]


def _attended_by_torch(query, key, value, scale, mask):
    """The mean alone, by what torch calls on the device."""
    call, causal = torch.nn.functional.scaled_dot_product_attention, mask is True
    mask = None if causal else mask
    return call(query, key, value, mask, is_causal=causal, scale=scale)


def _attended_in_steps(query, key, value, scale, mask):
    """The same where no kernel is called."""
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (query @ key.mT).to(wide) * scale
    if mask is True:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device)
        mask = seen.tril()
    if mask is None or mask.is_floating_point():
        scores = scores if mask is None else scores + mask
        weights = torch.softmax(scores, -1)
    else:
        # A row that sees nothing takes all scores, and is 0 then.
        unseen = ~mask & mask.any(-1, keepdim=True)
        scores = scores.masked_fill(unseen, -torch.inf)
        weights = torch.softmax(scores, -1).masked_fill(~mask, 0)
    return weights.to(value.dtype) @ value, scores.logsumexp(-1)


def _fuses(query, key, value, mask):
    """Whether the kernel of the device is called."""
    mask = None if mask is True else mask
    if mask is not None and mask.is_floating_point() and query.device.type != "cpu":
        return False
    some = query.numel() and key.numel() and value.numel()
    with torch.no_grad():
        return bool(some) and _alone(query, key, value, mask)


def _heads(width, *tensors):
    """The tensors with four axes, the last of that length: zeros add nothing to a product."""
    made = []
    for x in tensors:
        x = _with_four_axes(x)
        if x.shape[-1] < width:
            x = torch.nn.functional.pad(x, (0, width - x.shape[-1]))
        made.append(x if x.stride(-1) == 1 else x.contiguous())
    return made


def _added_mask(query, key, mask):
    """The mask as what is added to scores of four axes, and the rows that it makes nan."""
    if mask is None or mask is True:
        return None, None
    unseen, dtype = None, torch.promote_types(query.dtype, torch.float32)
    if mask.is_floating_point():
        rows = mask.amax(-1, keepdim=True) == -torch.inf
        unseen = rows if rows.any() else None
        added = mask.to(dtype).contiguous()
    else:
        added = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, -torch.inf)
    shape = *query.shape[:-1], key.shape[-2]
    return _with_four_axes(added.expand(shape)), unseen


def _with_four_axes(x):
    """The tensor with axes of size 1 before it, or with the first of more as one."""
    while x.dim() < 4:
        x = x.unsqueeze(0)
    return x.flatten(0, -4)

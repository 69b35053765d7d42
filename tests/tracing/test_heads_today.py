"""Attention as it is written today: a rotary part of each head, heads that share keys."""

import pytest
import torch
import torch.nn.functional as F

import derive


def tail(x):
    return torch.cat([x[:, :4].tanh(), x[:, 4:]], -1)


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def by_sizes(q, cos, sin):
    rest, part = q.split([4, 6], -1)
    return torch.cat([rest, rotated(part, cos, sin)], -1)


def by_slices(q, cos, sin):
    return torch.cat([rotated(q[..., :6], cos, sin), q[..., 6:]], -1)


def latent(q, kv, shared, w, cos, sin, nope=6, rope=4, width=8):
    """Multi-head latent attention: keys and values of one small tensor."""
    b, t, h, _ = q.shape
    q_rest, q_part = q.split([nope, rope], -1)
    q = torch.cat([q_rest, rotated(q_part, cos, sin)], -1)
    k_rest, v = (kv @ w).view(b, t, h, nope + width).split([nope, width], -1)
    turned = rotated(shared.unsqueeze(2), cos, sin).expand(-1, -1, h, -1)
    k = torch.cat([k_rest, turned], -1)
    scores = torch.einsum("bthd,bshd->bhts", q, k) * (nope + rope) ** -0.5
    return torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)


def by_repeats(q, k, v):
    times = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    return F.scaled_dot_product_attention(q, k, v)


def by_views(q, k, v):
    def repeated(x):
        b, h, t, d = x.shape
        n = q.shape[1] // h
        return x[:, :, None, :, :].expand(b, h, n, t, d).reshape(b, h * n, t, d)

    return F.scaled_dot_product_attention(q, repeated(k), repeated(v))


r = torch.randn
HEADS = [(2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)]
READ = {
    "tail": (tail, [(3, 9)]),
    "by_sizes": (by_sizes, [(2, 5, 10), (5, 3), (5, 3)]),
    "by_slices": (by_slices, [(2, 5, 10), (5, 3), (5, 3)]),
    "by_repeats": (by_repeats, HEADS),
    "by_views": (by_views, HEADS),
    "latent": (latent, [(2, 3, 5, 10), (2, 3, 7), (2, 3, 4), (7, 5 * 14), (3, 1, 2), (3, 1, 2)]),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read_is_the_function(name):
    function, shapes = READ[name]
    torch.manual_seed(0)
    read = derive.load(derive.read_torch(function, *(r(s) for s in shapes)))
    given = [r(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    ours, theirs = read(*given), function(*given)
    torch.testing.assert_close(ours, theirs)
    G = torch.randn_like(theirs)
    for one, other in zip(
        torch.autograd.grad(ours, given, G), torch.autograd.grad(theirs, given, G), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_joined_sizes_that_are_numbers():
    head = "op f(x[n,c], z[n,d]; size(c)=4, size(d)=2, size(k)=6) -> y"
    text = f"{head}\ny[n,k] = concat[k](x[n,k], z[n,k])"
    f = derive.load(derive.parse(text))
    x, z = r(3, 4), r(3, 2)
    torch.testing.assert_close(f(x, z), torch.cat([x, z], 1))
    with pytest.raises(derive.SpecError, match="has two sizes"):
        derive.parse(text.replace("size(k)=6", "size(k)=7"))

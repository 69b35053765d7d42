"""Functions as they are written today: rotary parts of heads, losses of pairs, steps of a state."""

import math
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from kit.each import some_now
from kit.reads import assert_read

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


def by_torch(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def of_one_head(q, k, v):
    return F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True)


def by_views(q, k, v):
    def repeated(x):
        b, h, t, d = x.shape
        n = q.shape[1] // h
        return x[:, :, None, :, :].expand(b, h, n, t, d).reshape(b, h * n, t, d)

    return F.scaled_dot_product_attention(q, repeated(k), repeated(v))


def paired(a, b):
    """NT-Xent of two views of a batch."""
    z = F.normalize(torch.cat([a, b]), dim=1)
    scores = z @ z.T / 0.5
    scores.fill_diagonal_(-torch.inf)
    n = a.shape[0]
    return F.cross_entropy(scores, torch.cat([torch.arange(n) + n, torch.arange(n)]))


def paired_by_diagonals(a, b):
    z = torch.cat([a, b])
    scores = (z @ z.T).masked_fill(torch.eye(2 * a.shape[0], dtype=torch.bool), -torch.inf)
    n = a.shape[0]
    own = torch.cat([torch.diag(scores, n), torch.diag(scores, -n)])
    return (torch.logsumexp(scores, 1) - own).mean()


def paired_by_blocks(a, b):
    n, scores = a.shape[0], torch.cat([a, b]) @ torch.cat([a, b]).T
    own = torch.cat([scores[:n, n:].diagonal(), scores[n:, :n].diagonal()])
    return scores.logsumexp(1).mean() - own.mean()


def without_itself(x):
    scores = (x @ x.T).masked_fill(torch.eye(x.shape[0]).bool(), float("-inf"))
    return scores.softmax(-1) @ x


def a_part_alone(a, b):
    scores = torch.cat([a, b], 1)
    kept = torch.arange(scores.shape[1]) < a.shape[1]
    return torch.where(kept, scores, -torch.inf).softmax(1)[:, : a.shape[1]]


def filled_with_a_number(a, b):
    scores = a @ b.T
    scores.fill_diagonal_(2.0)
    return scores.logsumexp(1)


def next_of_each(x):
    """Each row at the place of the next in a joined batch."""
    n = x.shape[0] // 2
    at = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return x * x[at].sin()


def shifted(x):
    """Relative positions by padding and counting the rows anew, as Transformer-XL has it."""
    b, h, n, m = x.shape
    return F.pad(x, (1, 0)).reshape(b, h, m + 1, n)[:, :, 1:].reshape(b, h, n, m).sin()


def counted_anew(x):
    return x.reshape(x.shape[1], x.shape[0]).cumsum(1)


def of_one_channel(x):
    return x.mean(1, keepdim=True).softmax(1) * x + x.sum(1, keepdim=True).log_softmax(1)


def windows(x):
    """Attention within shifted windows of 2 x 2."""
    b, h, w, c = x.shape
    x = torch.roll(x, (-1, -1), (1, 2)).view(b, h // 2, 2, w // 2, 2, c)
    x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
    x = (x @ x.transpose(1, 2)).softmax(-1) @ x
    x = x.view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
    return torch.roll(x, (1, 1), (1, 2))


def rwkv(r, w, v, k, a, kappa, state):
    """A step of RWKV-7: a decay, a removal and a new value."""
    w, a, kappa = torch.exp(-0.606531 * w.sigmoid()), a.sigmoid(), F.normalize(kappa, dim=-1)
    removed = (state @ -kappa[..., None]) * (kappa * a)[..., None, :]
    state = state * w[..., None, :] + removed + v[..., None] * k[..., None, :]
    return (state @ r[..., None])[..., 0], state


def gated_delta(q, k, v, beta, g, state):
    q, k = F.normalize(q, dim=-1) * q.shape[-1] ** -0.5, F.normalize(k, dim=-1)
    state = state * (-F.softplus(g)).exp()[..., None, None]
    error = (v - (state * k[..., None]).sum(-2)) * beta.sigmoid()[..., None]
    state = state + k[..., None] * error[..., None, :]
    return (state * q[..., None]).sum(-2), state


def memory(k, v, weights, momentum, forget):
    """A gradient step on what a memory should give, as Titans has it."""
    error = k @ weights - v
    momentum = 0.9 * momentum - k.mT @ error * 2 / k.shape[0]
    weights = (1 - forget.sigmoid()) * weights + momentum
    return k @ weights, momentum


def depths(x, w, u, chosen):
    """Only some tokens pass a layer."""
    every = chosen[..., None].expand(-1, -1, x.shape[-1])
    gate = (x @ w).gather(1, chosen).sigmoid()
    return x.scatter_add(1, every, F.silu(x.gather(1, every) @ u) * gate[..., None])


def experts(x, gate, w):
    """Tokens are sent to the experts of their two largest scores."""
    flat = x.view(-1, x.shape[-1])
    weights, index = torch.topk((flat @ gate).softmax(-1), 2)
    y = torch.zeros_like(flat)
    for e in range(len(w)):
        token, place = torch.where(index == e)
        if token.numel() == 0:
            continue
        y[token] += F.silu(flat[token] @ w[e]) * weights[token, place, None]
    return y.view_as(x)


def experts_by_masks(x, gate, w):
    flat = x.view(-1, x.shape[-1])
    weights, index = torch.topk((flat @ gate).softmax(-1), 2)
    masks = F.one_hot(index, gate.shape[1]).permute(2, 1, 0)
    y = torch.zeros_like(flat)
    for e in range(len(w)):
        place, token = torch.where(masks[e])
        if token.shape[0] > 0:
            made = F.silu(flat[None, token].reshape(-1, flat.shape[1]) @ w[e])
            y.index_add_(0, token, made * weights[token, place, None])
    return y.reshape(x.shape)


def adapted(x, w, a, b, m):
    """A layer of DoRA: directions with a low-rank change, lengths of their own."""
    v = w + b @ a * (4.0 / a.shape[0])
    return F.linear(x, m[:, None] * v / v.norm(dim=1, keepdim=True).detach())


def sequences(lp, old, advantage, mask):
    """The loss of GSPO: one ratio for each sequence."""
    mask = mask.sigmoid()
    whole = ((lp - old) * mask).sum(-1) / mask.sum(-1)
    ratio = torch.exp((lp - lp.detach() + whole.detach()[:, None]).clamp(max=10.0))
    a = advantage[:, None]
    loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)
    return ((loss * mask).sum(-1) / mask.sum(-1)).mean()


def transport(cost):
    """Two rounds of Sinkhorn in logarithms."""
    n, m = cost.shape
    f, g = torch.zeros(n, dtype=cost.dtype), torch.zeros(m, dtype=cost.dtype)
    for _ in range(2):
        f = -0.3 * torch.logsumexp((g[None] - cost) / 0.3 - math.log(m), 1)
        g = -0.3 * torch.logsumexp((f[:, None] - cost) / 0.3 - math.log(n), 0)
    return (((f[:, None] + g[None] - cost) / 0.3).exp() * cost).sum()


def orthogonal(g):
    """Two rounds of Newton and Schulz, as Muon has them."""
    x = g / (g.norm() + 1e-7)
    for _ in range(2):
        a = x @ x.mT
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x * (g.shape[0] * g.shape[1]) ** 0.5


def turned_in_halves(x, k):
    """Turns of pairs, and then halves: the last axes keep their sizes."""
    a, b = x[..., ::2], x[..., 1::2]
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] / (1 + torch.arange(a.shape[-1]))
    x = torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)
    one, other = x.flatten(-2).chunk(2, -1)
    return (one @ k.mT).softmax(-1) - (other @ k.mT).softmax(-1)


def short_convolution(x, w, step=1):
    size = w.shape[-1]
    return torch.einsum("btck,ck->btc", F.pad(x, (0, 0, size - 1, 0)).unfold(1, size, step), w)


def spectrum(x, window):
    size = window.numel()
    k, n = torch.arange(size // 2 + 1, dtype=x.dtype), torch.arange(size, dtype=x.dtype)
    angle = 2 * math.pi * torch.outer(k, n) / size
    return (x.unfold(-1, size, 2) * window) @ angle.cos().T


def splines(x, grid):
    """The recursion of Cox and de Boor, of degree 2."""
    x = x.unsqueeze(-1)
    b = ((x >= grid[:-1]) & (x < grid[1:])).to(x.dtype)
    for p in (1, 2):
        up, down = x - grid[: -p - 1], grid[p + 1 :] - x
        b = (
            up / (grid[p:-1] - grid[: -p - 1]) * b[..., :-1]
            + down / (grid[p + 1 :] - grid[1:-p]) * b[..., 1:]
        )
    return b


def with_a_sink(q, k, v, sink):
    scores = q @ k.mT
    scores = torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], -1)
    return scores.softmax(-1)[..., :-1] @ v


def of_the_last_tag(emissions, tags, mask):
    """The tag of the last token that the mask keeps."""
    last = mask.long().sum(1) - 1
    score = emissions[:, 0] * mask[:, :1] + emissions[:, 1] * mask[:, 1:2]
    return score.gather(1, tags.gather(1, last.unsqueeze(1)))


def every_second_from_the_end(x):
    return x.flip(-1)[..., ::2].prod(-1)


def of_several_widths(x, y, head):
    """Losses of the first 2 and the first 4 features."""
    return sum(F.cross_entropy(x[:, :d] @ head[:d], y) for d in (2, 4))


def taken_along(x, i):
    return torch.take_along_dim(x, i, -1) * 2


def encoded_and_decoded(x, w):
    """A level of a U-Net: the channels of half the resolution beside those of the whole."""
    below = F.conv2d(F.max_pool2d(x, 2), w, padding=1)
    return torch.cat((x, F.interpolate(below, scale_factor=2.0, mode="nearest")), 1)


def decoded(x, w):
    return F.conv2d(F.interpolate(x, scale_factor=2.0, mode="nearest"), w, padding=1)


class Both(NamedTuple):
    scaled: torch.Tensor
    total: torch.Tensor


def named(x):
    return Both(total=x.sum(), scaled=2 * x)


HEADS = [(2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)]
STATE = (2, 3, 4)
READ = {
    tail: [(3, 9)],
    by_sizes: [(2, 5, 10), (5, 3), (5, 3)],
    by_slices: [(2, 5, 10), (5, 3), (5, 3)],
    by_repeats: HEADS,
    by_torch: HEADS,
    of_one_head: HEADS,
    by_views: HEADS,
    turned_in_halves: [(2, 5, 8), (3, 4)],
    short_convolution: [(2, 6, 4), (4, 3)],
    spectrum: [(2, 12), (4,)],
    of_several_widths: [(4, 6), torch.tensor([0, 2, 1, 0]), (6, 3)],
    named: [(3, 4)],
    taken_along: [(2, 4, 5), torch.tensor([[[0, 3, 4]], [[2, 1, 0]]])],
    splines: [(3, 4), torch.linspace(-3.0, 3.0, 8)],
    with_a_sink: [(2, 3, 4), (2, 3, 4), (2, 3, 5), (1,)],
    of_the_last_tag: [(2, 4, 5), torch.tensor([[0, 3, 1, 4], [2, 1, 0, 2]]), torch.ones(2, 4)],
    latent: [(2, 3, 5, 10), (2, 3, 7), (2, 3, 4), (7, 5 * 14), (3, 1, 2), (3, 1, 2)],
    paired: [(4, 3), (4, 3)],
    paired_by_diagonals: [(4, 3), (4, 3)],
    paired_by_blocks: [(4, 3), (4, 3)],
    without_itself: [(5, 3)],
    a_part_alone: [(3, 2), (3, 4)],
    filled_with_a_number: [(4, 3), (4, 3)],
    next_of_each: [(6, 3)],
    shifted: [(2, 3, 4, 5)],
    counted_anew: [(4, 6)],
    of_one_channel: [(3, 4)],
    windows: [(2, 4, 6, 3)],
    rwkv: [*(STATE,) * 2, (2, 3, 5), *(STATE,) * 3, (2, 3, 5, 4)],
    gated_delta: [STATE, STATE, (2, 3, 5), (2, 3), (2, 3), (2, 3, 4, 5)],
    memory: [(3, 4), (3, 5), (4, 5), (4, 5), (5,)],
    depths: [(2, 6, 4), (4,), (4, 4), torch.tensor([[0, 3], [2, 5]])],
    adapted: [(3, 6), (5, 6), (2, 6), (5, 2), (5,)],
    sequences: [(6, 5), (6, 5), (6,), (6, 5)],
    transport: [(4, 6)],
    orthogonal: [(4, 6)],
    encoded_and_decoded: [(3, 2, 4, 6), (4, 2, 3, 3)],
    decoded: [(3, 2, 5, 4), (6, 2, 3, 3)],
}


@pytest.mark.parametrize("function", some_now([*READ], len(READ), 2), ids=lambda f: f.__name__)
def test_what_is_read_is_the_function(function):
    assert_read(function, READ[function])


OTHERS = {
    paired: [(7, 5), (7, 5)],
    paired_by_diagonals: [(7, 5), (7, 5)],
    shifted: [(3, 2, 6, 9)],
    by_torch: [(3, 8, 4, 5), (3, 2, 7, 5), (3, 2, 7, 5)],
    short_convolution: [(3, 7, 2), (2, 5)],
    spectrum: [(3, 15), (6,)],
    splines: [(4, 2), torch.linspace(-3.0, 3.0, 6)],
    with_a_sink: [(3, 5, 2), (3, 5, 2), (3, 5, 4), (1,)],
    taken_along: [(1, 3, 6), torch.tensor([[[0, 5]]]).expand(1, 1, 2)],
    encoded_and_decoded: [(2, 3, 8, 2), (5, 3, 3, 3)],
    decoded: [(2, 3, 4, 6), (5, 3, 2, 3)],
}


@pytest.mark.parametrize("function", OTHERS, ids=lambda f: f.__name__)
def test_other_sizes_are_those_of_the_function(function):
    assert_read(function, READ[function], OTHERS[function])


def test_the_width_of_a_head_has_its_letter():
    def heads(q, k):
        q, k = (t.view(*t.shape[:2], 2, -1).transpose(1, 2) for t in (q, k))
        return q @ k.mT / q.shape[-1] ** 0.5, (q * k.shape[-1] ** -0.5).exp()

    text = str(assert_read(heads, [(2, 3, 4), (2, 3, 4)], [(2, 5, 6), (2, 5, 6)]))
    assert text.count("/sqrt(size(") == 2 and "sqrt(2)" not in text


def test_parts_of_an_axis_are_all_of_it():
    """The derived code of an even size is none for an odd one."""
    op = assert_read(every_second_from_the_end, [(3, 6)], [(5, 6)])
    x = torch.randn(3, 8)
    torch.testing.assert_close(derive.load(op)(x), every_second_from_the_end(x))
    with pytest.raises(ValueError, match="axis 1 of x has size 7, which is not divisible"):
        derive.load(op)(torch.randn(3, 7))


def test_what_has_no_reading_says_what_to_use_instead():
    with pytest.raises(derive.DeriveError, match=r"combinations is not supported: .* with a mask"):
        derive.read_torch(lambda x: torch.combinations(x).sum(1), torch.randn(4))
    with pytest.raises(derive.DeriveError, match="arguments of kron are unknown"):
        derive.differentiate(torch.kron)


def test_the_result_keeps_its_type():
    made = derive.differentiate(named)(torch.ones(2))
    assert isinstance(made, Both) and made.total == 2


def test_the_last_axes_keep_their_sizes_if_their_parts_have_no_reading():
    op = assert_read(turned_in_halves, READ[turned_in_halves], [(3, 7, 8), (6, 4)])
    with pytest.raises(ValueError, match="must have size 8"):
        derive.load(op)(torch.randn(2, 5, 12), torch.randn(3, 6))


def test_joined_sizes_that_are_numbers():
    head = "op f(x[n,c], z[n,d]; size(c)=4, size(d)=2, size(k)=6) -> y"
    text = f"{head}\ny[n,k] = concat[k](x[n,k], z[n,k])"
    f = derive.load(derive.parse(text))
    x, z = torch.randn(3, 4), torch.randn(3, 2)
    torch.testing.assert_close(f(x, z), torch.cat([x, z], 1))
    with pytest.raises(derive.SpecError, match="has two sizes"):
        derive.parse(text.replace("size(k)=6", "size(k)=7"))


@pytest.mark.parametrize("function", [experts, experts_by_masks])
def test_each_expert_adds_to_the_tokens_that_chose_it(function):
    op = assert_read(function, [(2, 3, 5), (5, 4), (4, 5, 5)], [(1, 2, 6), (6, 4), (4, 6, 6)])
    assert "y2[n, t, c] = y[n, t, c] + sum[d | kept2" in str(op)
    assert "where(any" not in str(op) and "joined" not in str(op)

"""Elements that a mask of one axis holds, and others after them."""

import pytest
import torch
import torch.nn.functional as F
from kit.reads import assert_read, r

import derive
from derive.tracing.read import reading

EDGES = torch.tensor([[0, 1, 2, 3, 1, 2, 0], [1, 1, 0, 3, 2, 2, 3]])
MASK = torch.tensor([True, False, True, True, False])


def without_loops(x, e):
    e = e[:, e[0] != e[1]]
    return torch.zeros_like(x).index_add(0, e[1], x[e[0]])


def with_own_loops(x, e):
    n = x.shape[0]
    e = e[:, e[0] != e[1]]
    own = torch.arange(n).view(1, -1).repeat(2, 1)
    source, target = torch.cat([e, own], 1)
    degree = x.new_zeros(n).scatter_add_(0, target, torch.ones(source.shape[0]))
    norm = degree.pow(-0.5)
    w = norm[source] * norm[target]
    return torch.zeros_like(x).index_add(0, target, x[source] * w[:, None])


def attention(x, a, e):
    n = x.shape[0]
    e = e[:, e[0] != e[1]]
    source, target = torch.cat([e, torch.arange(n).expand(2, n)], 1)
    s = torch.tanh((x[source] * a).sum(-1) + x[target].sum(-1))
    top = torch.zeros(n).scatter_reduce(0, target, s.detach(), "amax", include_self=False)
    p = (s - top[target]).exp()
    total = torch.zeros(n).scatter_add(0, target, p) + 1e-16
    return torch.zeros_like(x).index_add(0, target, x[source] * (p / total[target])[:, None])


def scaled_in_place(x, m):
    part = x[:, m]
    part *= 2
    return part.sum() * x


def from_two(x, e, m):
    e = torch.cat([e[:, m], e[:, ~m]], 1)
    return torch.zeros_like(x).index_add(0, e[1], x[e[0]] * 2)


def experts(x, best, w):
    """As a mixture of experts is written: the rows of one go through its matrix."""
    y = torch.zeros_like(x)
    for k in range(2):
        (i,) = torch.where(best == k)
        y[i] += F.silu(x[i] @ w[k])
    return y


def two_experts(x, hot, w):
    y = torch.zeros_like(x)
    for k in range(2):
        slot, row = torch.where(hot[k])
        y.index_add_(0, row, (x[row] @ w[k]) * w[1, slot, 0, None])
    return y


def places(x, m):
    i = m.nonzero().flatten()
    y = x.clone()
    y[:, i] = 2 * x[:, i] + torch.argwhere(m)[:, 0]
    return y


def changed_in_place(x, m):
    part = x[:, m]
    first = part[0]
    part *= 2
    return first.sum() * part.sum()


def spline(x, w):
    """Positions among knots, each of which is a sum of shares, inside of an interval."""
    inside = x.abs() < 1
    knots = F.pad(w[inside].softmax(-1).cumsum(-1), (1, 0))
    knots[..., -1] = 2
    wide = knots[..., 1:] - knots[..., :-1]
    k = (x[inside].unsqueeze(-1) >= knots).sum(-1, keepdim=True).clamp(1, 4) - 1
    y = torch.zeros_like(x)
    y[inside] = (x[inside] - knots.gather(-1, k)[..., 0]) / wide.gather(-1, k)[..., 0]
    return y


BEST = torch.tensor([1, 0, 2, 1])
HOT = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0)).gt(0.5).long()


def cosines(x, m):
    return F.cosine_similarity(x[m][:, None], x[~m], dim=-1).mean()


def beside_zeros(x, m):
    s = x[m] @ x[~m].T
    s[s < -1] = -2
    return torch.cat([s, torch.zeros(len(s), 1)], 1).logsumexp(1).mean()


def of_its_largest(x, m):
    s = x[m[:, None] & m]
    return (s - s.max(0).values).exp().sum().log()


def off_diagonal(x, m):
    s = x[m] @ x[m].T
    return s[~torch.eye(len(s)).bool()].mean()


def focal(x, y):
    m = y >= 0
    picked = (lp := x.log_softmax(1))[m].gather(1, y[m][:, None]).squeeze(1)
    return ((1 - picked.exp()) ** 2 * picked).sum() + lp.sum()


FEW = torch.tensor([0, 2, 1, 1, 2])
READ = [
    (
        experts,
        (r(4, 3), BEST, r(2, 3, 3)),
        "where(kept2[n], y[n,c] + h2[n,c]*sigmoid(h2[n,c]), y[n,c])",
    ),
    (two_experts, (r(4, 3), HOT, r(2, 3, 3)), "+ sum[t | kept2[t,n]](h2[n,c]*w[1,t,0])"),
    (places, (r(3, 5), MASK), "where(m[c], x[n,c]*2 + c, x[n,c])"),
    (lambda x: x[x.nonzero()[:, 1]].sum(), (r(3, 3),), "sum[n,c,c2 | kept[n,c]](x[c,c2])"),
    (without_loops, (r(4, 3), EDGES), "sum[m | kept[m] and e[1,m] == n](x[e[0,m],c])"),
    (with_own_loops, (r(4, 3), EDGES), "](x[e[0,m],c]*w[m]) + x[n,c]*w2[n]"),
    (attention, (r(4, 3), r(3), EDGES), "top[n] = where("),
    (from_two, (r(4, 3), EDGES[:, :5], MASK), "not m["),
    (lambda x, m: F.huber_loss(x[m], 2 * x[m]), (r(5, 3), MASK), "mean[n,c | m[n]]("),
    (lambda x, m: (x[:, m] * 2).sum(), (r(3, 5), MASK), "sum[n,c | m[c]](x[n,c]*2)"),
    (lambda x, m: torch.ones(x[:, m].shape[1]).sum() * x, (r(3, 5), MASK), "sum[c2 | m[c2]](1)"),
    (scaled_in_place, (r(3, 5), MASK), "| m["),
    (changed_in_place, (r(3, 5), MASK), "y = sum[c | m[c]](part[0,c])*"),
    (spline, (r(3, 5), r(3, 5, 4)), "u[n,c,m] = sum[m2 | m2 <= m](knots[n,c,m2])"),
    (spline, (r(6), r(6, 4)), "y[c] = where(inside[c], (x[c] - knots3[c,k[c]])/wide[c,k[c]], 0)"),
    (lambda x, m: (x[m].flip(1) * x[m]).sum(), (r(5, 3), MASK), "x[n,size(c) - 1 - c]*x[n,c]"),
    (lambda x, m: x[:, m].sum(1), (r(3, 5), MASK), "sum[c | m[c]](x[n,c])"),
    (lambda x, m: torch.softmax(x[:, m], 1).sum(), (r(3, 5), MASK), "where(m[c], x[n,c], -inf)"),
    (lambda x, m: x[:, m] @ x[:, m].t(), (r(3, 5), MASK), "sum[c | m[c]](x[n,c]*x[n2,c])"),
    (lambda x, m: (x[m] @ x[m].T).logsumexp(1).sum(), (r(5, 3), MASK), "logsumexp[n2 | m[n2]](h["),
    (lambda x, m: (x[m][:, None] - x[~m]).exp().mean((0, 1)), (r(5, 3), MASK), "m[n] and not m["),
    (lambda x, m: (x[m][:, None] - x[~m]).amin(1).sum(), (r(5, 3), MASK), "amin[n2 | not m[n2]]("),
    (lambda x, m: x[m].max(0).values, (r(5, 3), MASK), "max[n | m[n]](x[n,c])"),
    (lambda x, m: x[m].T @ x[m], (r(5, 3), MASK), "sum[n | m[n]](x[n,c]*x[n,c2])"),
    (lambda x, m: ((x[m] @ x[m].T).softmax(1) @ x[m]).sum(), (r(5, 3), MASK), "sum[n2 | m[n2]](p["),
    (lambda x, m: x[m].var(0), (r(5, 3), MASK), "/maximum(sum[n | m[n]](1) - 1, 0)"),
    (lambda x, m: x[m].std(0, correction=0), (r(5, 3), MASK), "mean[n | m[n]]("),
    (lambda x, m: x[m].norm(dim=0), (r(5, 3), MASK), "norm2[n](where(m[n], x[n,c], 0))"),
    (lambda x, m: torch.cdist(x[m], x[~m]).mean(), (r(5, 3), MASK), "m[n] and not m["),
    (lambda x, m: x[:, m].cumsum(1).exp().sum(), (r(3, 5), MASK), "sum[c2 | c2 <= c and m[c2]]("),
    (cosines, (r(5, 3), MASK), "clamp(norm2[c2](x[n,c2]), 1e-08, inf)"),
    (beside_zeros, (r(5, 3), MASK), "logaddexp(logsumexp[n2 | not m[n2]](where("),
    (lambda x, m: torch.cat([x[m], x[~m] ** 2]).prod(0), (r(5, 3), MASK), "*prod[n | not m[n]]("),
    (of_its_largest, (r(5, 5), MASK), "- max[n3,n4 | m[n3] and m[n4]]("),
    (off_diagonal, (r(5, 3), MASK), "m[n] and m[n2] and n != n2](s[n,n2])"),
    (lambda x, m: (x[m] @ x[m].T).triu(1).sum(), (r(5, 3), MASK), "where(n2 >= n + 1, h[n,n2], 0)"),
    (lambda x, m: (x[m] @ x[m].T).diagonal().sum(), (r(5, 3), MASK), "sum[n | m[n]](sum[c]("),
    (lambda x, m: torch.einsum("nc,nd->cd", x[m], x[m]), (r(5, 3), MASK), "sum[n | m[n]](x[n,c]*"),
    (lambda h, m: (h - h[m][:, None]).logsumexp(1).sum(), (r(5), MASK), "logsumexp[c2](h[c2] - h["),
    (
        lambda x, m: torch.cat([x[m], 2 * x]).mean(0),
        (r(5, 3), MASK),
        "/(sum[n | m[n]](1) + size(n))",
    ),
    (lambda x, m, i: x[m, i[m]].exp().sum(), (r(5, 3), MASK, FEW), "sum[n | m[n]](exp(x[n,i[n]]))"),
    (focal, (r(5, 3), torch.tensor([0, -1, 2, 1, -1])), "= where(m[n], picked[n,y[n]], 0)"),
]


@pytest.mark.parametrize(("function", "examples", "said"), READ)
def test_a_sum_is_that_where_the_mask_holds(function, examples, said):
    assert said in reading(function, *examples, name="f", comments=False).text


def test_what_stands_outside_of_the_mask_is_no_position():
    y = torch.tensor([255, 2, -1, 1, 0])
    f = derive.load(derive.read_torch(focal, r(5, 3), torch.tensor([0, 2, 2, 1, 0])))
    x = r(5, 3)
    torch.testing.assert_close(f(x, -y), focal(x, -y))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: x[:, m],
        lambda x, m: x[:, m][:, 0],
        lambda x, m: x[:, m][:, 1:].sum(),
        lambda x, m: x[:, m].argmax(1) * x,
        lambda x, m: x.gather(1, x[:, m].max(1, keepdim=True).indices),
        lambda x, m: (x[:, m].T @ x[:, m]).triu(2).sum(),
        lambda x, m: (x[:, m].T @ x[:, ~m] * torch.eye(m.sum(), (~m).sum())).sum(),
        lambda x, m: torch.cat([x[:, m], x[:, ~m]], 1).T @ torch.cat([x[:, m], x[:, ~m]], 1),
        lambda x, m: (x[:, m].flip(1) * x[:, m]).sum(),
        lambda x, m: (x[:, m] * x[:, ~m]).sum(),
        lambda x, m: x[:, m].flip(1) @ torch.ones(2),
        lambda x, m: x[:, m.nonzero()[0, 0]],
        lambda x, m: m.nonzero().flatten() * x[0, 0],
        lambda x, m: torch.ones(3) @ x[:, m].t(),
        lambda x, m: x[:, m].t().reshape(-1)[0] * x,
    ],
)
def test_what_depends_on_their_number_or_order_is_refused(function):
    with pytest.raises(derive.DeriveError):
        derive.read_torch(function, r(3, 5), MASK)


AT = {
    "first": lambda x, i: x[i[0]].exp(),
    "last": lambda x, i: x[..., i[1]].exp(),
    "two": lambda x, i: x[i[1], :, i[0]].exp(),
    "an axis between": lambda x, i: x[1:, None, i[0], 0:2].exp(),
    "around an ellipsis": lambda x, i: x[i[1], ..., i[0]].exp(),
    "beside a tensor": lambda x, i: x[i[1], i].exp(),
    "around an axis": lambda x, i: x[i, :, i].exp(),
    "around new and given axes": lambda x, i: x[i[:, None], None, :, i].exp(),
    "after an axis, around a part": lambda x, i: x[None, i, 1:, None, i[1]].exp(),
    "each row": lambda x, i: sum(x[n, 0].log_softmax(-1)[i[n]] for n in range(2)),
}


@pytest.mark.parametrize("name", AT)
def test_an_element_of_an_integer_tensor_selects(name):
    examples = [(4, 3, 5), torch.tensor([2, 0])]
    assert_read(AT[name], examples, [(5, 4, 6), torch.tensor([3, 1])])


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (lambda i: i[0], (3, 5)),
        (lambda i: i[0], (5,)),
        (lambda i: (0, i[1]), (5,)),
        (lambda i: (slice(1, None), None, i[1]), (3, 1, 5)),
        (lambda i: (..., i[0]), (4, 3)),
        (lambda i: (i[1], i[0]), (5,)),
        (lambda i: (slice(None), i[1], i[0]), (4,)),
        (lambda i: (i[1], 1, i[0]), ()),
    ],
)
def test_an_element_of_an_integer_tensor_selects_what_is_written(index, shape):
    def written(x, i, v):
        z = x.clone()
        z[index(i)] = v
        return z.exp() * x

    other = tuple({3: 4, 4: 5, 5: 6}.get(n, n) for n in shape)
    examples = [(4, 3, 5), torch.tensor([2, 0]), shape]
    assert_read(written, examples, [(5, 4, 6), torch.tensor([3, 1]), other])


@pytest.mark.parametrize("row", [0, 2, -1])
def test_the_row_of_a_padding_has_no_gradient(row):
    examples = [torch.tensor([[1, 2, 0], [3, 0, 1]]), (4, 5)]
    op = assert_read(lambda i, w: F.embedding(i, w, padding_idx=row).exp(), examples)
    assert "detach(w[i[n,c],m])" in str(op).replace(", ", ",")

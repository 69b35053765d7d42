"""Sums, maxima and means by index, what is put somewhere, and elements that a mask holds."""

import math

import pytest
import torch
import torch.nn.functional as F
from kit.reads import r

import derive
from derive.tracing.read import reading

I = torch.tensor([0, 2, 1, 0, 2])  # noqa: E741


def wide(index, x):
    return index[:, None].expand_as(x)


def put(x, y, m):
    z = x.clone()
    z[m] = x[m] * y[m]
    return z * 2


def put_number(x, m):
    z = x.clone()
    z[m] = 0
    return z * 2


def put_function(x, m):
    z = x * 2
    z[m] = torch.log(x[m].abs() + 1) * 3 - 1
    return z


def accumulated(x, i, j, v):
    return x.index_put((i, j), v, accumulate=True)


def selected_twice(x, y):
    m = (y > 0) & (y < 1)
    x = x * 2
    x[0] = 0
    return (x[m] * x[(y > 0) & (y < 1)]).sum()


def written_between(x, y):
    y = y.clone()
    before = x[y > 0]
    y.mul_(-1)
    return F.mse_loss(before, x[y > 0])


def noise(x):
    return torch.rand_like(x) - 0.5


def clear_before(x, i):
    """Clear the rows before those at i; that before the first is the last one."""
    y = x.clone()
    y[i - 1] = 0
    return y.exp()


X, Y, ROWS = r(5, 4), r(5, 4), r(5) > 0
READ = [
    (lambda x, i: x.new_zeros(3, x.shape[1]).index_add(0, i, x), (X, I), "sum[n | i[n] == k]"),
    (lambda x, i, b: b.index_add(1, i, x, alpha=2.0), (r(4, 5), I, r(4, 3)), "(x[n,c]*2.0)"),
    (lambda x, i: torch.zeros(3, x.shape[1]).scatter_add_(0, wide(i, x), x), (X, I), "i[n] == k"),
    (
        lambda x, i, b: b.scatter_add(1, i, x),
        (r(4, 5), torch.randint(0, 3, (4, 5)), r(4, 3)),
        "b[n,k] + sum[c | i[n,c] == k](x[n,c])",
    ),
    (
        lambda x, i, b: b.scatter_reduce(0, wide(i, x), x, "amax", include_self=False),
        (X, I, r(3, 4)),
        "where(any[n](i[n] == k), amax[n | i[n] == k](x[n,c]), b[k,c])",
    ),
    (
        lambda x, i, b: b.scatter_reduce(0, wide(i, x), x, "amax"),
        (X, I, r(3, 4)),
        "maximum(b[k,c], amax[n | ",
    ),
    (
        lambda x, i: x.new_full((3, 4), -torch.inf).scatter_reduce(0, wide(i, x), x, "amax"),
        (X, I),
        "y[k,c] = amax[n | i[n] == k](x[n,c])",
    ),
    (
        lambda x, i: torch.ones(3, 4).scatter_reduce(0, wide(i, x), x, "prod") * 2,
        (X, I),
        "y[k,c] = prod[n | i[n] == k](x[n,c])*2",
    ),
    (
        lambda x, i, b: b.scatter_reduce(0, wide(i, x), x, "mean"),
        (X, I, r(3, 4)),
        "/(1 + sum[n | i[n] == k](1))",
    ),
    (
        lambda x, i, b: b.scatter_reduce(0, wide(i, x), x, "mean", include_self=False),
        (X, I, r(3, 4)),
        "mean[n | i[n] == k]",
    ),
    (
        lambda x, i: torch.zeros_like(x).scatter_(1, i.unsqueeze(1), 1) * x,
        (r(5, 3), I),
        "where(i[n] == c, 1, 0)*x[n,c]",
    ),
    (
        lambda x, i: x.scatter(1, i, 0.0) * 2,
        (r(5, 3), torch.randint(0, 3, (5, 2))),
        "where(any[k](i[n,k] == c), 0.0, x[n,c])",
    ),
    (lambda x, i: x.index_fill(0, i, -1.0) * 2, (r(3, 4), I), "where(any[k](i[k] == n), -1.0"),
    (accumulated, (r(3, 4), I, torch.randint(0, 4, (5,)), r(5)), "i[k] == n and j[k] == c"),
    (put, (X, Y, X > 0), "where(m[n,c], x[n,c]*y[n,c], x[n,c])*2"),
    (put_number, (X, X > 0), "where(m[n,c], 0, x[n,c])*2"),
    (clear_before, (r(3, 4), I), "where(index[k] < 0, index[k] + size(n), index[k]) == n"),
    (put_function, (X, ROWS), "y[n,c] = where(m[n], log(abs(x[n,c]) + 1)*3 - 1, z[n,c])"),
    (lambda x: x[x > 0].sum(), (X,), "sum[n,c | x[n,c] > 0](x[n,c])"),
    (selected_twice, (X, Y), "y2 = sum[n,c | m[n,c]](x3[n,c]*x3[n,c])"),
    (
        lambda x, y, m: F.mse_loss(x[m], y[m]),
        (X, Y, X > 0),
        "mean[n,c | m[n,c]]((x[n,c] - y[n,c])**2)",
    ),
    (
        lambda x, y: F.mse_loss(x[(y + 1).abs() > 0.5], y[(y + 1).abs() > 0.5]),
        (X, Y),
        "mean[n,c | abs(y[n,c] + 1) > 0.5]((x[n,c] - y[n,c])**2)",
    ),
    (
        lambda x, y: F.l1_loss(x.masked_select(y != 1), y.masked_select(y != 1)),
        (X, Y),
        "mean[n,c | y[n,c] != 1](abs(x[n,c] - y[n,c]))",
    ),
    (lambda x, m: x.masked_select(m).amax(), (X, X > 0), "amax[n,c | m[n,c]]"),
    (lambda x, m: x[m].exp().sum() / m.sum(), (r(5), r(5) > 0), "sum[c | m[c]](exp(x[c]))/"),
    (lambda x, m: x[m].max(-1).values.mean(), (X, ROWS), "mean[n | m[n]](max[c](x[n,c]))"),
    (
        lambda x, m: torch.logsumexp(x[m], 0) + (-x[~m]).logsumexp((0,)),
        (r(5), r(5) > 0),
        "logsumexp[c | m[c]](x[c]) + logsumexp[c | not m[c]](-x[c])",
    ),
    (lambda x, m: (x[m].sum(-1) * (x[m] > 1).any(-1)).sum(), (X, ROWS), "[any[c]("),
    (lambda x, m, w: w[x[m].argmax(1)].sum(), (X, ROWS, r(4)), "w[index[n]]"),
    (lambda x, m: x[m].mean(0), (X, ROWS), "y[c] = mean[n | m[n]](x[n,c])"),
    (lambda x, m: x[:, m].amax(1), (r(4, 5), r(5) > 0), "y[n] = amax[c | m[c]](x[n,c])"),
    (lambda x, m: x[m].sum(-1).mean(), (r(5, 3, 4), r(5, 3) > 0), "mean[n,t | m[n,t]](sum[c]("),
    (lambda x, m: x[m].var(-1).mean(), (X, ROWS), "mean[n | m[n]](sum[c]("),
    (
        lambda x, m, i: F.cross_entropy(x[m], i[m]),
        (X, ROWS, I),
        "/sum[n | m[n]](where(i[n] != -100, 1, 0))",
    ),
    (
        lambda x, m, i, w: F.cross_entropy(x[m], i[m], weight=w),
        (X, ROWS, I, r(4)),
        "/sum[n | m[n]](where(i[n] != -100, w[index[n]], 0))",
    ),
    (
        lambda x, i: F.cross_entropy(x[i > 0], i[i > 0]),
        (r(2, 3, 4), torch.tensor([[1, 2, 3], [0, 3, 0]])),
        "] > 0](where(i[n",
    ),
    (put, (r(5, 3, 4), r(5, 3, 4), r(5, 3) > 0), "where(m[n,t], x[n,t,c]*y[n,t,c], x[n,t,c])*2"),
]


@pytest.mark.parametrize(("function", "examples", "said"), READ)
def test_what_meets_a_position_is_read(function, examples, said):
    made = reading(function, *examples, name="f", comments=False)
    assert said in made.text


OF_SELECTED = "sum[n,c](where(m[n,c], 1, 0))"


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(
    ("function", "selects", "said"),
    [
        (lambda x, m: x[m].sum() / x[m].shape[0], r(5, 4) > 0, "/" + OF_SELECTED),
        (lambda x, m: x[m].sum() / (len(x[m]) - 1), r(5, 4) > 0, f"/(-1 + {OF_SELECTED})"),
        (lambda x, m: x[m].sum() / x[m].numel(), r(5) > 0, "/(sum[n](where(m[n], 1, 0))*size(c))"),
        (
            lambda x, m: F.kl_div(x[m], x[m].softmax(-1), reduction="batchmean"),
            r(5) > 0,
            "/sum[n](where(m[n], 1, 0))",
        ),
        (lambda x, m: x[m].norm(), r(5, 4) > 0, "y = norm2[n,c](where(m[n,c], x[n,c], 0))"),
        (lambda x, m: x[m].norm(p=1), r(5, 4) > 0, "y = sum[n,c | m[n,c]](abs(x[n,c]))"),
        (lambda x, m: x[m].var(), r(5, 4) > 0, "**2)/maximum(sum[n,c | m[n,c]](1) - 1, 0)"),
        (
            lambda x, m: x[m].var(correction=0),
            r(5, 4) > 0,
            "y = mean[n,c | m[n,c]]((x[n,c] - mu)**2)",
        ),
        (lambda x, m: (x - x[m].mean()) / x[m].std(), r(5, 4) > 0, "where(variance == 0, 0, sqrt("),
        (lambda x, m: x.sum() / (x[m].numel() ** 2 + 1), r(5, 4) > 0, f"/(1 + {OF_SELECTED}**2)"),
        (lambda x, m: (x * m).sum() / max(int(m.sum()), 1), r(5, 4) > 0, "/maximum(1, sum[n,c]("),
        (lambda x, m: x.sum() / math.sqrt(m.sum().item() + 1), r(5) > 0, "/sqrt(1 + sum["),
        (lambda x, m: x * (m.sum().item() // 2 % 3) + m.sum().item() / 4, r(5) > 0, "// 2 % 3)"),
        (lambda x, m: x / (x.abs().max().item() + abs(x[0, 1].item())), r(5) > 0, "detach(amax["),
        (lambda x, m: x * torch.arange(4) * float(m.sum()) + 1 / (len(x[m]) + 1), r(5) > 0, "*c*"),
        (lambda x, m: torch.full_like(x, x[m].sum().item()) * x, r(5) > 0, "detach(sum[n2,c2 | m["),
        (lambda x, m: x.index_put((m,), x[m].tanh()).sum() / len(x), r(5) > 0, "/size(n)"),
        (lambda x, m: x * (m.sum().item() > 2) + (len(x) == 5), r(5) > 0, "size(n) == 5, 1, 0)"),
    ],
)
def test_numbers_of_selected_elements_are_read(function, selects, said):
    x = r(*selects.shape, *(4,) * (2 - selects.dim()))
    made = reading(function, x, selects, name="f", comments=False)
    assert said in made.text
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    derive.load(made.operation)(ours, selects).sum().backward()
    function(theirs, selects).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    few = torch.zeros_like(selects)  # none, and one element
    for _ in range(2):
        have, want = derive.load(made.operation)(x, few), function(x, few)
        torch.testing.assert_close(have, want, equal_nan=True)
        few.view(-1)[0] = True


@pytest.mark.parametrize(
    ("function", "examples", "said"),
    [
        (
            lambda x, i, s: x.scatter(1, i, s),
            (r(5, 3), I[:, None].repeat(1, 2), r(5, 2)),
            "repeated positions",
        ),
        (lambda x, m: x[m], (X, X > 0), "number of elements"),
        (lambda x, m: (x[m] * x[~m]).sum(), (X, X > 0), "number of elements"),
        (lambda x, m: x[m].cumsum(0).sum(), (X, X > 0), "number of elements"),
        (lambda x, m: x[: m.sum().item()].sum(), (X, X > 0), "number extracted"),
        (lambda x, m: x[torch.where(m)[0][:2]].sum(), (X, ROWS), "number of elements"),
        (lambda x, i: x.roll(i[0].item(), 0), (X, I), "extracted .* keep it as a tensor"),
        (lambda x, i: x - x[F.one_hot(i, 4) == 1][:, None], (X, I), "number of elements"),
        (written_between, (X, Y), "two masks"),
        (lambda x: F.mse_loss(x[noise(x) > 0], x[noise(x) > 0]), (X,), "two masks"),
    ],
)
def test_what_is_not_said_is_refused(function, examples, said):
    with pytest.raises(derive.DeriveError, match=said):
        derive.read_torch(function, *examples)


def test_tensors_made_without_a_dtype_are_those_of_the_check():
    before = torch.get_default_dtype()
    derive.read_torch(lambda x: torch.ones(x.shape[0]) @ x, r(3, 4))
    assert torch.get_default_dtype() is before


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        (lambda p, t: torch.arange(p.shape[0]), ""),
        (lambda p, t: torch.arange(t.numel()), ""),
        (lambda p, t: torch.arange(len(t)), ""),
        (lambda p, t: range(len(t)), "size(n)=3"),
    ],
)
def test_one_element_of_each_row_is_changed(rows, size):
    def f(p, t):
        p = p.exp()
        p[rows(p, t), t] -= 1
        return p

    made = reading(f, torch.randn(3, 4), torch.tensor([0, 2, 1]), comments=False).text
    head, _, last = made.strip().split("\n")
    assert head.startswith("op f(p[n,c], t[n]: int") and size in head
    assert last.startswith("y[n,c] = where(t[n] == c, p2[n")
    assert last.endswith(",t[n]] - 1, p2[n,c])")


def test_offsets_of_parts_end_with_the_axis_at_other_sizes_too():
    def centred(x, offsets):
        part = (torch.arange(len(x))[:, None] >= offsets[1:]).sum(1)
        mean = x.new_zeros(len(offsets) - 1).index_add(0, part, x) / offsets.diff().clamp(min=1)
        return x - mean[part]

    x, offsets = r(7), torch.tensor([0, 3, 3, 7])
    f = derive.load(derive.read_torch(centred, x, offsets))
    torch.testing.assert_close(f(x, offsets), centred(x, offsets))

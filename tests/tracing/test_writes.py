"""What is written into a part of a tensor in place, and diagonals."""

import pytest
import torch
from kit.reads import r

import derive
from derive.tracing.read import reading


def columns(x, d):
    q = torch.zeros(x.shape[0], 5)
    q[..., 1:2] = x[:, :1]
    q[:, 0] = x[:, 1]
    q[:, 2:5] += d
    return q


def all_columns(x):
    q = torch.empty(x.shape[0], 3)
    q[:, 0] = x[:, 1]
    q[:, 1:] = 2 * x[:, :2]
    return q


def in_turn(x, w):
    out = torch.empty(x.shape[0], 3, x.shape[2])
    state = torch.zeros_like(w)
    for i in range(3):
        state = torch.tanh(state * w + x[:, i])
        out[:, i] = state
    return out


def of_two_lengths(x, y):
    q = torch.empty(x.shape[0], x.shape[1] + y.shape[1])
    q[:, : x.shape[1]] = x
    q[:, x.shape[1] :] = y
    return q**2


def every_other(x):
    q = torch.zeros_like(x)
    q[:, 0::2] = torch.sin(x[:, 0::2])
    q[:, 1::2] = torch.cos(x[:, 1::2])
    return q * 2


def self_loops(x, index):
    a = torch.zeros(2, x.shape[1], x.shape[1])
    a[:, index, index] = 1
    return a * x[:, :, None]


def own_loops(x):
    a, i = x.clone(), torch.arange(x.shape[-1])
    a[:, i, i] = 1
    return a * x


def a_row_each(x, y):
    z, i = x * 3, torch.arange(x.shape[0])
    z[i, 0] = y
    return z * 2


def views_of_views(x):
    y = x * 2
    row = y.t()
    row[0] = 3
    y.diagonal().fill_(1.0)
    y.view(-1)[2:5] = 0
    return y


def read_before_and_after(x):
    y = x * 2
    first = y[0]
    y += 1
    before = first * 5
    first.mul_(2)
    return first * y, before


def masked_and_inside(x, m):
    y = x * 2
    y[:, 0][m] = 0
    y[1:-1, 1:-1] = 7
    return y


def of_chunks(x):
    y = x * 2
    second = y.chunk(2, -1)[1]
    second.zero_()
    return y * 3


def up_to_a_size(x, y):
    q = torch.zeros(x.shape[0], 7)
    q[:, : y.shape[0]] = 2
    q[:, 3:] = x
    return q * y.sum()


def truths(x):
    m = x > 0
    m[:, 0] = True
    return torch.where(m, x, 2 * x)


def truths_elsewhere(x, i):
    m = torch.zeros_like(x, dtype=torch.bool)
    m[:, 1:] = i[:, 1:] == i[:, :-1]
    return x.masked_fill(m, 1), x[m].sum()


def no_truth_on_the_diagonal(x, i):
    m = i[:, None] == i
    m.fill_diagonal_(False)
    return x.masked_fill(m, 0)


def joined_truths(x, m):
    return x.masked_fill(torch.cat([m[:, :1], ~m[:, 1:]], 1), 0)


def ends_and_middle(x):
    q = torch.empty(x.shape[0], x.shape[1] + 2)
    q[:, 1:-1] = x
    q[:, 0] = x.sum(1)
    q[:, -1] = 0
    return q


def products_of_pairs(x):
    q = torch.empty(3, 3, len(x))
    for i in range(3):
        for j in range(3):
            q[i, j] = x[:, i] * x[:, j]
    return q


def row_and_columns(x):
    q = torch.empty_like(x)
    q[1:, 1:] = x[:-1, 1:]
    q[0] = x[1]
    q[:, 0] = x[:, 1]
    return q


def experts(x, gate, w):
    """Each row goes through the matrix that has its largest weight."""
    p = (x @ gate).softmax(-1)
    best, y = p.argmax(-1), torch.zeros_like(x)
    for k in range(2):
        m = best == k
        y[m] += (x[m] @ w[k]) * p[m, k].unsqueeze(-1)
    return y


def rows_added_to(x, m, v):
    y = x.clone()
    y[m] += v.square()
    return y


def columns_scaled(x, m, v):
    y = x.clone()
    y[..., m] *= v
    return y


def rows_set(x, m, v):
    y = x.clone()
    y[m] = v[:, None]
    return y


def columns_set(x, m, v):
    y = x.clone()
    y[:, m] = v
    return y


ODD = torch.tensor([False, True, False, True])

READ = [
    (
        experts,
        (r(7, 4), r(4, 2), r(2, 4, 4)),
        "where(m2[n], y[n,c] + sum[c2](x[n,c2]*w[1,c2,c])*p[n,1], y[n,c])",
    ),
    (rows_added_to, (r(4, 3), ODD, r(3)), "where(m[n], x[n,c] + square(v[c]), x[n,c])"),
    (rows_added_to, (r(2, 4, 3), ODD.repeat(2, 1), r(3)), "where(m[n,t], x[n,t,c] + square(v[c])"),
    (columns_scaled, (r(2, 3, 4), ODD, r(3, 1)), "where(m[c], x[n,t,c]*v[t,0], x[n,t,c])"),
    (rows_set, (r(4, 3), ODD, r(1)), "where(m[n], v[0], x[n,c])"),
    (columns_set, (r(3, 4), ODD, r(3, 1)), "where(m[c], v[n,0], x[n,c])"),
    (ends_and_middle, (r(4, 5),), "where(k == 0, sum[c](x[n,c]), x[n,k - 1]))"),
    (products_of_pairs, (r(4, 3),), "where(k == 0 and k2 == 1, x[n,0]*x[n,1], x[n,0]*x[n,0])"),
    (row_and_columns, (r(4, 5),), "where(c == 0, x[n,1], where(n == 0, x[1,c], x[n - 1,c]))"),
    (truths, (r(3, 4),), "where(c == 0 or m[n,c], "),
    (truths_elsewhere, (r(3, 4), torch.tensor([[1, 1, 2, 2]] * 3)), "c >= 1 and i[n,c] == i["),
    (no_truth_on_the_diagonal, (r(3, 3), torch.tensor([1, 2, 1])), "where(n != n2 and m[n,n2], "),
    (joined_truths, (r(3, 4), r(3, 4) > 0), "c < 1 and m[n,0] or c >= 1 and not m[n,c]"),
    (up_to_a_size, (r(3, 4), r(5)), "where(m >= 3, x[n,m - 3], where(m < size(k), 2, 0))"),
    (columns, (r(4, 2), r(4, 3)), "where(m == 0, x[n,1], where(m == 1, x[n,0], 0"),
    (all_columns, (r(4, 6),), "where(k >= 1, x[n,k - 1 + start]*2, x[n,1])"),
    (in_turn, (r(4, 3, 5), r(5)), "where(k == 2, state"),
    (of_two_lengths, (r(4, 2), r(4, 3)), "where(m >= size(c), y[n,m - size(c)], x[n,m + start])"),
    (every_other, (r(3, 10),), "where(m == 1, cos("),
    (self_loops, (r(2, 5), torch.tensor([0, 3, 1, 1])), "any[k](index[k] == c and"),
    (own_loops, (r(2, 5, 5),), "where(c == t, 1, x[n,t,c])"),
    (a_row_each, (r(3, 4), r(3)), "where(c == 0, y[n], "),
    (views_of_views, (r(3, 6),), "where(n == c, 1.0"),
    (read_before_and_after, (r(4, 5),), "where(n == 0, "),
    (masked_and_inside, (r(4, 5), torch.tensor([True, False, True, False])), "c == 0 and m[n]"),
    (of_chunks, (r(3, 6),), "where(c >= (size(c) + 1)//2, 0, "),
    (lambda x: torch.diagonal(x, 1, -2, -1) * 2, (r(2, 3, 7),), "x[n,k,k + 1]"),
    (lambda x: torch.trace(x @ x.t()), (r(3, 4),), "sum"),
    (lambda x: torch.diag(x[0]) + torch.diag(torch.diag_embed(x)[1]), (r(3, 4),), "where("),
]


@pytest.mark.parametrize(("function", "examples", "said"), READ)
def test_what_is_written_into_a_part_is_read(function, examples, said):
    assert said in reading(function, *examples, name="f", comments=False).text


def into_an_argument(x):
    first = x[:, 0]
    first += 1
    return x


def unset(x):
    q = torch.empty(x.shape[0], 3)
    q[:, 0] = x[:, 1]
    return q


def rows_of_others(x):
    y = x.clone()
    y[x[:, 0] > 0] = x[x[:, 0] <= 0]
    return y


def as_many_as_selected(x):
    y = x.clone()
    y[x[:, 0] > 0] = x[:2]
    return y


HALVES = torch.tensor([1.0, -1.0, 2.0, -2.0])[:, None] + torch.zeros(6)


@pytest.mark.parametrize(
    ("function", "x", "said"),
    [
        (into_an_argument, r(4, 6), "changes an argument"),
        (unset, r(4, 6), "uninitialized memory"),
        (rows_of_others, HALVES, "another mask"),
        (as_many_as_selected, HALVES, "as many values as a mask selects"),
    ],
)
def test_what_is_not_said_is_refused(function, x, said):
    with pytest.raises(derive.DeriveError, match=said):
        derive.read_torch(function, x)


def state_of_each_step(decay, v):
    out, state = torch.empty_like(v), torch.zeros(v.shape[0])
    for t in range(decay.shape[1]):
        state = decay[:, t] * state + v[:, t]
        out[:, t] = state
    return out


def test_what_a_loop_writes_has_as_many_steps_as_the_loop():
    op = derive.read_torch(state_of_each_step, r(2, 3), r(2, 3))
    assert op.inputs[0].axes == op.inputs[1].axes

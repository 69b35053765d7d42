"""Truths as numbers, floats that become integers, and numbers that grow evenly."""

import pytest
import torch
from kit.reads import r

import derive
from derive.tracing.read import reading


def finite(x, y):
    return torch.where(torch.isfinite(x) & ~torch.isnan(y), 1 - (y == 0).float(), 0.0)


def in_a_table(x, table):
    return table[torch.floor(x.abs()).long().clamp_(0, 4)] * x


def cut(x, table):
    i = (x * 2).long().clamp(0, 4)
    return table[i] * (x - i)


def compared(x):
    c = (x > 0).int()
    return x * c + (c == 0) * 3.0


def around_a_point(x):
    return x.trunc() * x + torch.ceil(x * 2) * torch.frac(x)


def of_one(x, i):
    return x.mean(0, keepdim=True)[i] * i[:, None]


READ = [
    (lambda x: x * (x > 0), (r(3, 4),), "x[n,c]*[x[n,c] > 0]"),
    (lambda x: 1 - (x < 1).to(x.dtype) * x, (r(3, 4),), "1 - [x[n,c] < 1]*x[n,c]"),
    (finite, (r(3, 4), r(3, 4)), "where(abs(x[n,c]) < inf and y[n,c] == y[n,c]"),
    (in_a_table, (r(3, 4), r(5)), "clamp(int(floor(abs(x[n,c]))), 0, 4)"),
    (cut, (r(3, 4), r(5)), "int(trunc(x[n,c]*2))"),
    (compared, (r(3, 4),), "c[n,k] = [x[n,k] > 0]"),
    (lambda x: ((x > 0) == (x < 1)).float() * x, (r(3, 4),), "[[x[n,c] > 0] == [x[n,c] < 1]]"),
    (lambda x: (x > 0) * (x < 1) * x, (r(3, 4),), "[x[n,c] > 0 and x[n,c] < 1]*x[n,c]"),
    (lambda x, m: (m * x).sum() + m.float().mean(), (r(3, 4), r(3, 4) > 0), "m[n,c]*x[n,c]"),
    (lambda x: (x > 0).cumsum(0) * x, (r(3, 4),), "[x[n2,c] > 0]"),
    (around_a_point, (r(3, 4),), "trunc(x[n,c])*x[n,c] + ceil(x[n,c]*2)*frac(x[n,c])"),
    (lambda x, i: x[:, i // 2] * (i % 3), (r(3, 4), torch.tensor([0, 1, 5, 2, 3])), "i[k] // 2"),
    (lambda x: x * torch.linspace(-2, 2, 5)[:, None], (r(5, 4),), "x[n,c]*(n - 2)"),
    (lambda x: x * torch.linspace(0, 1, 7), (r(3, 7),), "x[n,c]*c/6"),
    (lambda x: torch.stack([x.sum()]).view(()) * x, (r(3, 4),), "sum[n2,c2](x[n2,c2])*x[n,c]"),
    (
        lambda x, i: x.mean(0, keepdim=True)[i] * i[:, None],
        (r(3, 4), torch.zeros(5).long()),
        "mean",
    ),
    (lambda x, w: torch.stack([x, w])[1] * 2, (r(3), r(3)), "= w[c]*2"),
    (lambda x, b: x * b + torch.full_like(x, b), (r(3, 4), True), "= x[n,c] + 1"),
]


@pytest.mark.parametrize(("function", "examples", "said"), READ)
def test_truths_and_whole_numbers_are_read(function, examples, said):
    assert said in reading(function, *examples, name="f", comments=False).text


def test_what_is_returned_twice_has_two_names_and_none_is_none():
    def f(x):
        y = x.exp()
        return y, None, y

    assert derive.read_torch(f, r(3, 4)).outputs == ("y", "y3")
    first, none, second = derive.differentiate(f)(r(3, 4))
    assert none is None and torch.equal(first, second)

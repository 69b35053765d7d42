"""Slices, windows, paddings and rotations as positions of an axis."""

import pytest
import torch
import torch.nn.functional as F
from kit.reads import r

import derive
from derive.tracing.read import reading

READ = {
    "size(k)=size(c) - 1, size(k2)=size(k)) -> y\ny[n,k,k2] = x[n,k + 1] - x[n,k2]": (
        lambda x: x[:, 1:].unsqueeze(2) - x[:, :-1].unsqueeze(1),
        [(3, 5)],
        [(2, 4)],
    ),
    "y[n,k] = x[n,k + 1] - x[n,k]": (lambda x: x[:, 1:] - x[:, :-1], [(4, 7)], [(3, 5)]),
    "y[n] = sum[k]((x[n,k + 1] - x[n,k])**2)": (
        lambda x: (x[:, 1:] - x[:, :-1]).pow(2).sum(1),
        [(4, 7)],
        [(3, 2)],
    ),
    "size(k)=size(c) - 3) -> y\ny[n,k] = x[n,k + 1]**2": (
        lambda x: x[..., 1:-2] ** 2,
        [(2, 7)],
        [(3, 9)],
    ),
    "size(k)=(size(c) + 1)//2) -> y\ny[n,k] = x[n,2*k]**2": (
        lambda x: x[:, ::2] ** 2,
        [(2, 7)],
        [(3, 8)],
    ),
    "y[n,k] = x[n,2*k + 1]**2": (lambda x: x[:, 1::2] ** 2, [(2, 7)], [(3, 8)]),
    "parts[n,k,m] = x[n,(k m)]": (lambda x: x[:, ::2] * x[:, 1::2], [(2, 6)], [(3, 10)]),
    "; start=0, size(k)=3) -> y\ny[n,k] = x[n,k + start]**2": (
        lambda x: x[:, :3] ** 2,
        [(2, 7)],
        [(3, 4)],
    ),
    "y[n,k] = x[n,k + size(c) - 3]**2": (lambda x: x[:, -3:] ** 2, [(2, 7)], [(4, 3)]),
    "start=0) -> y\ny[n,t,c] = x[n,t,c] + p[t + start,c]": (
        lambda x, p: x + p[: x.shape[1]],
        [(2, 3, 4), (9, 4)],
        [(3, 5, 2), (6, 2)],
    ),
    "y[n,k] = mean[m](x[n,2*k + m])": (lambda x: x.unfold(1, 3, 2).mean(-1), [(2, 7)], [(3, 10)]),
    "where(k >= 1 and k - 1 < size(c), x[n,k - 1], 0)": (
        lambda x: F.pad(x, (1, 2)) * 2,
        [(3, 7)],
        [(2, 5)],
    ),
    "where(m >= 1 and m - 1 < size(c) and k < size(n), x[k,m - 1], 1.5)": (
        lambda x: F.pad(x, (1, 2, 0, 3), value=1.5) * 2,
        [(4, 7)],
        [(2, 5)],
    ),
    "y[j,h] = where(h >= 1 and j >= 1, joined2[j - 1,h - 1], 0)": (
        lambda x: F.pad(x.repeat_interleave(2, 0).repeat_interleave(3, 1), (1, 0, 1, 0)),
        [(2, 3)],
        [(3, 2)],
    ),
    "where(n >= 1, x[n - 1,c], 0)": (lambda x: F.pad(x, (0, 0, 1, -1)) * 2, [(5, 7)], [(3, 2)]),
    "y[n,k] = x[n,int(size(c) - 1 - abs(size(c) - 1 - abs(k - 2)))]*2": (
        lambda x: F.pad(x, (2, 1), mode="reflect") * 2,
        [(3, 7)],
        [(2, 5)],
    ),
    "y[n,k] = x[n,int(clamp(k - 2, 0, size(c) - 1))]*2": (
        lambda x: F.pad(x, (2, 1), mode="replicate") * 2,
        [(3, 7)],
        [(2, 5)],
    ),
    "y[n,t,k] = x[n,t,(k - 2) % size(c)]*2": (
        lambda x: F.pad(x, (2, 1), mode="circular") * 2,
        [(2, 3, 7)],
        [(3, 2, 5)],
    ),
    "y[n,c] = x[(n - 1) % size(n),(c + 2) % size(c)]*x[n,c]": (
        lambda x: torch.roll(x, (1, -2), (0, 1)) * x,
        [(4, 7)],
        [(3, 2)],
    ),
    "joined[n,m,k] = where(m < 1, c[0,0,k], x[n,m - 1,k])": (
        lambda c, x: torch.cat([c.expand(x.shape[0], 1, -1), x], 1) * 2,
        [(1, 1, 5), (2, 3, 5)],
        [(1, 1, 2), (3, 4, 2)],
    ),
    "y[n] = sum[k](x[n,k + start])*sum[m](x[n,m + size(k)])": (
        lambda x: x.chunk(2, 1)[0].sum(1) * x.chunk(2, 1)[1].sum(1),
        [(4, 5)],
        [(3, 7)],
    ),
    "y = sum[n,m](abs(h[n,m + 1] - h[n,m + start]))": (
        lambda x: x.diff(n=2).abs().sum(),
        [(2, 7)],
        [(3, 5)],
    ),
    "where(m < 1, x[n,0], where(m < size(c) + 1, x[n,m - 1], w[": (
        lambda x, w: torch.diff(x, dim=1, prepend=x[:, :1], append=w),
        [(2, 4), (2, 3)],
        [(3, 5), (3, 2)],
    ),
    "y[n,k] = sum[m](x[n,(m + 1)*size(k) + k])": (
        lambda x: x.view(x.shape[0], 4, -1)[:, 1:3].sum(1),
        [(3, 8)],
        [(2, 12)],
    ),
    "parts[k,m,c] = x[(k m),c]\ny[k,d,c] = parts[k,d + 1,c]**2": (
        lambda x: x.view(3, -1, x.shape[-1])[:, 1:3] ** 2,
        [(15, 4)],
        [(12, 2)],
    ),
}


@pytest.mark.parametrize("said", READ)
def test_parts_are_read(said):
    function, examples, others = READ[said]
    made = reading(function, *(r(*s) for s in examples), name="f", comments=False)
    assert said in made.text
    given = [r(*s) for s in others]
    torch.testing.assert_close(derive.load(made.operation)(*given), function(*given))


def test_positions_that_are_counted_read_the_first_of_a_table():
    def embedded(words, table, places):
        _, t = words.shape
        return table[words] + places[torch.arange(t)]

    made = reading(embedded, torch.tensor([[0, 1, 2], [1, 0, 2]]), r(5, 4), r(9, 4), comments=False)
    assert "start=0" in made.text and "+ start,c]" in made.text


def test_a_difference_may_be_taken_from_itself_again():
    """The labels are a step after the scores: products of sizes that agree, factor by factor."""

    def loss(scores, labels):
        flat = scores[:, :-1].reshape(-1, scores.shape[-1])
        return F.cross_entropy(flat, labels[:, 1:].reshape(-1))

    op = derive.read_torch(loss, r(2, 6, 3), torch.randint(0, 3, (2, 6)))
    scores, labels = r(3, 4, 5), torch.randint(0, 5, (3, 4))
    torch.testing.assert_close(derive.load(op)(scores, labels), loss(scores, labels))

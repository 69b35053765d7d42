"""Masks of infinities that are added, scaled, exponentiated and masked again."""

import pytest
import torch
from kit.reads import r

import derive
from derive.tracing.choices import Outward
from derive.tracing.read import reading
from derive.tracing.values import TracedApply, TracedNumber, TracedParameter, apply

LOW = float("-inf")
MASK = torch.eye(4).bool()


def lines(function, *example):
    return reading(function, *example, comments=False).text.strip().split("\n")[1:]


def added(s):
    return (s + torch.full((s.shape[-1], s.shape[-1]), LOW).triu(1)).softmax(-1)


def scaled(s, m):
    s = s.masked_fill(m, LOW)
    s = s * 0.5
    return s.softmax(-1)


def with_a_bias(s, m, bias):
    return torch.logsumexp(torch.where(m, s, LOW) + bias, -1)


def without_the_largest(s, m):
    s = s.masked_fill(m, LOW)
    p = (s - s.max(-1, keepdim=True).values).exp()
    return p / p.sum(-1, keepdim=True)


def masked_again(s, m):
    return s.masked_fill(m, LOW).masked_fill(m.T, -1e9).softmax(-1)


def negative(s, m):
    return (-s.masked_fill(m, float("inf"))).softmax(-1)


def bounded(s, m):
    return s.masked_fill(m, LOW).clamp(-5, 5).sigmoid()


def beside_a_sink(s, m, sink):
    return torch.cat([s.masked_fill(m, LOW), sink[:, None]], -1).softmax(-1)[:, :-1]


def one_of_two(s, m):
    return torch.stack([s.masked_fill(m, LOW), s * 2], 1).amax(1)


@pytest.mark.parametrize(
    ("function", "more", "said"),
    [
        (beside_a_sink, (MASK, r(4)), "y[n,c] = p[n,c + start]"),
        (
            one_of_two,
            (MASK,),
            "y[n,c] = amax[k](where(k == 0 and m[n,c], -inf, where(k == 0, s[n,c], s[n,c]*2)))",
        ),
        (added, (), "p[n,n2] = softmax[n2](where(n2 >= n + 1, -inf, s[n,n2]))"),
        (scaled, (MASK,), "p[n,c] = softmax[c](where(m[n,c], -inf, s2[n,c]))"),
        (with_a_bias, (MASK, r(4)), "y[n] = logsumexp[c](where(m[n,c], s[n,c] + bias[c], -inf))"),
        (masked_again, (MASK,), "p[n,n2] = softmax[n2](where(not m[n2,n] and m[n,n2], -inf, {}))"),
        (negative, (MASK,), "p[n,c] = softmax[c](where(m[n,c], -inf, -s[n,c]))"),
        (bounded, (MASK,), "y[n,c] = sigmoid(where(m[n,c], -5, clamp(s[n,c], -5, 5)))"),
    ],
)
def test_a_mask_of_infinities_is_what_the_reduction_leaves_out(function, more, said):
    found = lines(function, r(4, 4), *more)
    start, _, end = said.partition("{}")
    assert found[-1].startswith(start) and found[-1].endswith(end), found


def test_what_is_exponentiated_is_0_where_it_is_left_out():
    found = lines(without_the_largest, r(4, 5), r(4, 5) > 0.5)
    assert "y[n,c] = h[n,c]/sum[c2](h[n,c2])" in [x.replace("p[", "h[") for x in found], found
    assert any("where(m[n,c], 0, exp(" in line for line in found), found


def test_a_masked_mask_is_the_condition_of_the_softmax():
    def attend(q, k, mask):
        return (q @ k.T + mask.masked_fill(mask > 0, LOW)).softmax(-1)

    found = lines(attend, r(3, 5), r(4, 5), r(3, 4))
    assert found == [
        "h[n,m] = sum[c](q[n,c]*k[m,c])",
        "p[n,m] = softmax[m](where(mask[n,m] > 0, -inf, h[n,m] + mask[n,m]))",
    ]


def test_a_number_whose_sign_decides_stays_a_number():
    def weights(s, m, temperature=2.0):
        return (s.masked_fill(m, LOW) / temperature).softmax(-1)

    made = reading(weights, r(4, 4), MASK)
    assert made.numbers == ()
    with pytest.raises(derive.DeriveError, match="it stays the number"):
        derive.read_torch(weights, r(4, 4), MASK, parameters=["temperature"])


@pytest.mark.parametrize(
    "node",
    [
        apply(
            "*",
            apply("where", TracedParameter("c"), TracedNumber(LOW), TracedParameter("x")),
            TracedParameter("y"),
        ),
        apply("log", apply("where", TracedParameter("c"), TracedNumber(LOW), TracedParameter("x"))),
        apply(
            "*",
            apply("where", TracedParameter("c"), TracedNumber(LOW), TracedParameter("x")),
            TracedNumber(0),
        ),
    ],
)
def test_what_is_of_no_known_sign_stays(node):
    made = Outward()(node)
    assert isinstance(made, TracedApply) and made.name == node.name


def over_chunks(q, k, v):
    future = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).triu(k.shape[0] - q.shape[0] + 1)
    top = q.new_full(q.shape[:1], LOW)
    total, out = torch.zeros_like(top), q.new_zeros(len(q), v.shape[1])
    for first in range(0, len(k), 2):
        part = slice(first, first + 2)
        scores = (q @ k[part].mT).masked_fill(future[:, part], LOW)
        higher = torch.maximum(top, scores.amax(-1))
        shrink, p = (top - higher).exp(), (scores - higher[:, None]).exp()
        total, out = total * shrink + p.sum(-1), out * shrink[:, None] + p @ v[part]
        top = higher
    return out / total[:, None]


def test_gradients_of_a_row_that_is_nan_may_be_nan():
    """At other sizes, whole rows are masked: torch has a gradient of 0 for their nan."""
    made = lines(over_chunks, r(5, 3), r(5, 3), r(5, 2))
    assert made[0].startswith("scores[n,")

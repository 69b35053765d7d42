"""Means weighted by a softmax of products, found by the structure of equations."""

from __future__ import annotations

import pytest

from derive import parse
from derive.calculus.alpha_renaming import canonical
from derive.calculus.build_lets import flatten_operation
from derive.kernels.attention import match_attention


def found(text):
    """The means among the equations, and the definitions that they are found in."""
    op, display_names = canonical(parse(text))
    lets = flatten_operation(op, display_names)
    return [mean for let in lets if (mean := match_attention(lets, let)) is not None], lets


def test_scores_and_softmax_may_have_names_or_none():
    head = "op f(q[*b,i,d], k[*b,j,d], v[*b,j,e]) -> y\n"
    named = """S[*b,i,j] = sum[d](q[*b,i,d]*k[*b,j,d])/sqrt(size(d))
P[*b,i,j] = softmax[j](S[*b,i,j])
y[*b,i,e] = sum[j](P[*b,i,j]*v[*b,j,e])"""
    scores = "sum[d](q[*b,i,d]*k[*b,j,d])/sqrt(size(d))"
    bare = f"y[*b,i,e] = sum[j](v[*b,j,e]*softmax[j]({scores}))"
    for text in (named, bare):
        ((mean,), lets) = found(head + text)
        assert [lets.display_name(x.tensor) for x in (mean.q, mean.k, mean.v)] == ["q", "k", "v"]
        assert [lets.display_names[i.name] for i in mean.batch] == ["b"]
        assert mean.seen is None and not mean.added.terms
        assert len(mean.hidden) == (2 if text is named else 1)


def test_what_is_seen_is_said_by_the_softmax_or_by_minus_infinity():
    head = "op f(q[i,d], k[j,d], v[j,e], m[i,j]: bool) -> y\nS[i,j] = sum[d](q[i,d]*k[j,d])\n"
    for softmax in (
        "softmax[j | m[i,j]](S[i,j])",
        "softmax[j](where(m[i,j], S[i,j], -inf))",
        "softmax[j | m[i,j] and j <= i](S[i,j])",
    ):
        ((mean,), _) = found(head + f"y[i,e] = sum[j](v[j,e]*{softmax})")
        assert mean.seen is not None and not mean.added.terms


def test_what_is_added_is_the_rest_of_the_scores():
    text = """op f(q[i,d], k[j,d], v[j,e], m[i,j], w[j]; c=2.0) -> y
S[i,j] = c*sum[d](q[i,d]*k[j,d]) + m[i,j] - 3*w[j]
y[i,e] = sum[j](v[j,e]*softmax[j](S[i,j]))"""
    ((mean,), lets) = found(text)
    assert {lets.display_name(a.tensor) for t in mean.added.terms for a in t.factors} == {"m", "w"}


def test_heads_may_share_their_keys():
    text = """op f(q[b,h,i,d], k[b,j,d], v[b,j,e]) -> y
y[b,i,h,e] = sum[j](v[b,j,e]*softmax[j](sum[d](q[b,h,i,d]*k[b,j,d])))"""
    ((mean,), lets) = found(text)
    assert [lets.display_names[x.name] for x in (mean.ends[0], mean.ends[3])] == ["h", "e"]
    assert [lets.display_names[x.name] for x in mean.batch] == ["b", "i"]


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ("", "2*sum[j](v[j,e]*softmax[j](sum[d](q[i,d]*k[j,d])))"),
        ("", "sum[j](v[j,e]*softmax[i](sum[d](q[i,d]*k[j,d])))"),
        ("", "sum[j](v[j,e]*softmax[j](sum[d]((q[i,d] - k[j,d])**2)))"),
        ("", "sum[j](v[j,e]*softmax[j](sum[d](q[i,d]*k[j,d]))**2)"),
        ("", "sum[j](v[j,e]*softmax[j](sum[d](q[i,d]*k[j,d])*v[j,e]))"),
        ("", "sum[j](v[j,e]*exp(sum[d](q[i,d]*k[j,d])))"),
        (", u[d]", "sum[j](v[j,e]*softmax[j](sum[d](q[i,d]*k[j,d]*u[d])))"),
        (", t", "sum[j](v[j,e]*softmax[j](t*sum[d](q[i,d]*k[j,d])))"),
        (", t[e]", "sum[j](t[e]*v[j,e]*softmax[j](sum[d](q[i,d]*k[j,d])))"),
        (", m[i,j]", "sum[j](v[j,e]*softmax[j | j <= i](sum[d](q[i,d]*k[j,d]) + m[i,j]))"),
        (", s: bool", "sum[j](v[j,e]*softmax[j | s](sum[d](q[i,d]*k[j,d])))"),
    ],
)
def test_what_only_looks_like_one_is_none(inputs, body):
    means, _ = found(f"op f(q[i,d], k[j,d], v[j,e]{inputs}) -> y\ny[i,e] = {body}")
    assert means == []

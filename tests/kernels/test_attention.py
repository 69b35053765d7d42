"""Means weighted by a softmax of products, found by the structure of equations."""

import pytest
from kit.each import each_row, some_now
from kit.lowered import assert_right
from kit.texts import source
from kit.unwritten import first_order

from derive import load, parse
from derive.calculus.alpha_renaming import canonical
from derive.calculus.build_lets import flatten_operation
from derive.check.samples import cases, sample
from derive.check.tracing import replicated
from derive.kernels.attention import Attentions, match_attention
from derive.kernels.table import ATTENTIONS
from derive.lowering.saved_values import Statistics
from derive.pipeline import derive_option


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


@each_row(
    "inputs, body",
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


NAMED = """op f(q[b,i,d], k[b,j,d], v[b,j,e]) -> y
S[b,i,j] = sum[d](q[b,i,d]*k[b,j,d])/sqrt(size(d))
P[b,i,j] = softmax[j](S[b,i,j])
y[b,i,e] = sum[j](P[b,i,j]*v[b,j,e])"""

MASKED = """op f(q[b,i,d], k[b,j,d], v[b,j,e], m[i,j]=0) -> y
S[b,i,j] = m[i,j] + sum[d](q[b,i,d]*k[b,j,d])
y[b,i,e] = sum[j](v[b,j,e]*softmax[j](S[b,i,j]))"""


def made(text, optional=()):
    derived = derive_option(parse(text), None)
    named = Statistics(derived.lets).named
    return Attentions.of(ATTENTIONS, derived.lets, derived.backward, named, optional).made


def test_the_mean_and_each_gradient_is_a_result_of_a_kernel():
    every = [repr(p) for p in made(NAMED).values()]
    assert [("attention backward" in p, "'attention'" in p) for p in every] == [
        (False, True),
        *[(True, False)] * 3,
    ]


@pytest.mark.parametrize(
    "text",
    [
        NAMED.replace("-> y", "-> y, P"),
        NAMED.replace("-> y", "-> y, z") + "\nz[b,i] = sum[j](P[b,i,j]**2)",
        NAMED.replace("-> y", "-> y, z") + "\nz[b] = max[i,j](S[b,i,j])",
        MASKED.replace("m[i,j]=0", "m[i,j]"),
    ],
)
def test_scores_that_are_computed_anyway_leave_no_kernel(text):
    assert not made(text)


def test_a_mask_that_may_be_absent_has_its_gradient_beside_the_kernel():
    derived = derive_option(parse(MASKED), None)
    (mask,) = (t.name for t in derived.operation.inputs if t.default is not None)
    assert not made(MASKED) and len(made(MASKED, [mask])) == 4


def test_a_gradient_that_shares_products_with_others_is_not_in_first_order():
    """That of the mask is made of the shares; the kernel computes them inside."""
    text = source(parse(MASKED))
    assert "if not ctx.needs_input_grad[3] and (rt.compiles() or rt.unrecorded(" in text
    first = first_order(text)
    assert "rt.attention_backward(" in first and "softmax_backward" not in first
    assert "grad_m" not in first.split("return")[0]
    projected = MASKED.replace("v[b,j,e]", "v[b,j,e], w[a,e]", 1).replace("-> y", "-> z")
    text = source(parse(projected + "\nz[b,i,a] = sum[e](y[b,i,e]*w[a,e])"))
    assert "grad_w = " in first_order(text)


def test_keys_of_two_means_have_the_gradients_of_both():
    text = """op f(q[b,i,d], k[b,j,d], p[b,l,d]) -> y, z
y[b,i,d] = sum[j](softmax[j](sum[e](q[b,i,e]*k[b,j,e]))*k[b,j,d])
z[b,l,d] = sum[j](softmax[j](sum[e](p[b,l,e]*k[b,j,e]))*k[b,j,d])"""
    whole = max(map(repr, made(text).values()), key=lambda p: p.count("AttentionResult"))
    assert whole.count("AttentionResult") == 4 and "exp" not in whole


@pytest.mark.parametrize(
    "text",
    some_now(
        [
            NAMED,
            NAMED.replace("softmax[j]", "softmax[j | j <= i]"),
            NAMED.replace("softmax[j]", "softmax[j | j <= i and i - j < 3]"),
            # Heads share their keys; the result has its axes in another order.
            """op f(q[b,h,i,d], k[b,j,d], v[b,j,e]) -> y
y[b,i,h,e] = sum[j](v[b,j,e]*softmax[j](sum[d](q[b,h,i,d]*k[b,j,d])))""",
            # Axes of the batch between others, and a value that more of them share.
            """op f(q[i,b,d,h], k[d,h,j,b], v[e,j,h]) -> y
y[b,e,i,h] = sum[j](v[e,j,h]*softmax[j](2*sum[d](q[i,b,d,h]*k[d,h,j,b])))""",
            # What is made of it, at each place and in all; conditions that hold together.
            """op f(q[b,i,d], k[b,j,d], v[b,j,d], g[d]) -> z
y[b,i,d] = sum[j](softmax[j | j <= i and i < j + 4](sum[e](q[b,i,e]*k[b,j,e]))*v[b,j,d])
z[b,i,d] = q[b,i,d] - 3*y[b,i,d]*g[d]""",
            """op f(q[b,i,d], k[b,j,d], v[b,j,e]) -> z
h[b,i,j] = sum[d](q[b,i,d]*k[b,j,d])
s[b,i,j] = h[b,i,j]/2
y[b,i,e] = sum[j](softmax[j](where(j <= i, s[b,i,j], -inf))*v[b,j,e])
z[b,e] = mean[i](y[b,i,e])""",
            # Query, key and value are parts of one tensor.
            """op f(w[r,h,d,c], u[b,t,c]; size(r)=3) -> y
x[b,t,r,h,d] = sum[c](u[b,t,c]*w[r,h,d,c])
y[b,t,h,d] = sum[j](x[b,j,2,h,d]*softmax[j | j <= t](sum[e](x[b,t,0,h,e]*x[b,j,1,h,e])/2))""",
            # What the mean is given is computed, and so is what is made of it.
            """op f(x[b,i,d], w[e,d], u[e,d]) -> y
q[b,i,e] = sum[d](x[b,i,d]*w[e,d])
k[b,j,e] = sum[d](x[b,j,d]*u[e,d])
c[b,i,d] = sum[j](softmax[j | j <= i](sum[e](q[b,i,e]*k[b,j,e]))*x[b,j,d])
y[b,i,d] = x[b,i,d] + tanh(c[b,i,d])""",
        ],
        9,
        3,
    ),
)
def test_kernels_are_what_loops_and_autograd_compute(text):
    op = parse(text)
    assert "rt.attention(" in source(op) and "rt.attention_backward(" in source(op)
    assert_right(text)
    assert_right(text, fuses=True)


@pytest.mark.parametrize("seen", ["j <= i", "j <= i and i - j < 3"])
def test_what_is_seen_lives_where_the_tensors_do(seen):
    op = parse(NAMED.replace("softmax[j]", f"softmax[j | {seen}]"))
    made = sample(op, next(cases(op)))
    assert not replicated(op, load(op), made)

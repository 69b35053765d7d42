"""Sums weighted by products over the positions between two are linear recurrences.

Each operation is held against torch's autograd of its equations as they stand.
"""

import itertools

import pytest
import torch
from kit.each import each_row, told
from kit.lines import defined

import derive

T = 5
SIZES = {"n": 3, "d": 2, "e": 4, "t": T, "s": T, "k": T}


def assert_alike(op, **sizes):
    sizes = {**SIZES, **sizes}
    shapes = [[sizes[i.name] for i in t.axes] for t in op.inputs]
    own = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes]
    have, want = derive.load(op)(*own), defined(op)(*own)
    torch.testing.assert_close(have, want)
    for _ in range(2):
        first, other = (
            torch.autograd.grad(y.sin().sum(), own, create_graph=True, materialize_grads=True)
            for y in (have, want)
        )
        torch.testing.assert_close(first, other)
        have, want = (torch.cat([g.flatten() for g in grads]) for grads in (first, other))
        have, want = (y + 0 * sum(x.sum() for x in own) for y in (have, want))


def code_of(op):
    """The Function and what follows, without the helpers."""
    text = derive.source(op, standalone=False)
    return text[text.index("class ") :]


FORMS = list(itertools.product(("t", "k"), ("<=", "<"), ("<=", "<"), ("<=", "<")))


@pytest.mark.parametrize("weight", ["prod[{}](a[n,l])", "exp(-2*sum[{}](a[n,l]))"])
@pytest.mark.parametrize("form", FORMS, ids="".join)
def test_either_end_may_belong_to_the_product(form, weight):
    low, order, first, last = form
    high = "k" if low == "t" else "t"
    op = derive.parse(
        "op f(x[n,t], a[n,t]) -> y\n"
        f"y[n,t] = sum[k | {low} {order} {high}]"
        f"(x[n,k]*{weight.format(f'l | {low} {first} l and l {last} {high}')})"
    )
    if form[1:] != ("<", "<=", "<=") or "exp" in weight:
        # There, the gradient of a product has no pair with both at the same place.
        assert "_recurrence(" in code_of(op)
        assert ".prod(" not in code_of(op) and "exclusive_prod" not in code_of(op)
    for t in (1, 2, 5, 8):
        assert_alike(op, t=t)


OPERATIONS = """\
op f(x[n,t], a[t]) -> y; y[n,t] = sum[k | t <= k](x[n,k]*prod[l | t <= l and l < k](a[l]))
op f(x[t], a[n,t], w[n]) -> y; \
  y[t] = sum[n,k | k <= t](w[n]*x[k]*prod[l | k < l and l <= t](a[n,l]))
op f(x[n,t], a[n,t], w[t]) -> y; \
  y[n,t] = w[t]*sum[k | k <= t and x[n,k] > 0](x[n,k]*prod[l | k < l and l <= t](a[n,l]))
op f(a[t]) -> y; y[t] = sum[k | k <= t](prod[l | k < l and l <= t](a[l]))
op f(x[t], b) -> y; y[t] = sum[k | k <= t](x[k]*prod[l | k <= l and l <= t](b))
# gated linear attention
op f(q[t,d], k[s,d], v[s,e], a[t,d]; size(s)=size(t)) -> y; \
  y[t,e] = sum[s,d | s <= t](q[t,d]*k[s,d]*v[s,e]*prod[l | s < l and l <= t](sigmoid(a[l,d])))
# a selective state-space model, and the same with exponents
op f(u[t,d], r[t,d], A[d,n], B[t,n], C[t,n]) -> y; y[t,d] = sum[s,n | s <= t]\
  (C[t,n]*B[s,n]*r[s,d]*u[s,d]*prod[l | s < l and l <= t](exp(r[l,d]*A[d,n])))
op f(u[t,d], r[t,d], A[d,n], B[t,n], C[t,n]) -> y; y[t,d] = sum[s,n | s <= t]\
  (C[t,n]*B[s,n]*r[s,d]*u[s,d]*exp(A[d,n]*sum[l | s < l and l <= t](r[l,d])))
# other conditions leave elements out of the product
op f(x[t], a[t], m[t]) -> y; \
  y[t] = sum[k | k <= t](x[k]*prod[l | k < l and l <= t and m[l] > 0](a[l]))
op f(x[t], a[t], m[t]) -> y; y[t] = sum[k | t <= k]\
  (x[k]*exp(sum[l | t <= l and l < k and (m[l] > 0 or l == 1)](a[l])))
# advantages of episodes
op f(x[n,t], b[n,t]; g=0.9) -> y; \
  y[n,t] = sum[k | t <= k](g**(k - t)*x[n,k]*prod[l | t <= l and l < k](1 - b[n,l]))
"""


@each_row("text", [text for text, _ in told(OPERATIONS)])
def test_no_tensor_has_two_positions(text):
    op = derive.parse(text)
    assert "_recurrence(" in code_of(op) and "exclusive_prod" not in code_of(op)
    assert_alike(op)


MASKED = (
    "prod[l | l <= t and m[l] > 0](a[l])",
    "m[0]*prod[l | l >= t and l > 1](a[l])",
    "logsumexp[l | l <= t and (l == 0 or m[l] > 0)](a[l])",
    "sum[l | l <= t and m[l] > 0](a[l]*softmax[l | l <= t and m[l] > 0](a[l]))",
    "amax[l | l >= t and 0 <= l](a[l])**2*m[0]",
)


@each_row("body", MASKED)
def test_the_gradient_of_a_cumulative_call_has_its_other_conditions(body):
    op = derive.parse(f"op f(a[t], m[t]) -> y\ny[t] = {body}")
    code = code_of(op)
    assert any(name in code for name in ("_recurrence(", "decayed_sum(", "sum_while_equal("))
    assert "unsqueeze(1)" not in code
    m = torch.tensor([-1.0, 1, 1, -1, 1], dtype=torch.float64)
    a = torch.tensor([0.3, -1.2, 0.7, 0.1, 2.0], dtype=torch.float64, requires_grad=True)
    G = torch.arange(1.0, T + 1, dtype=torch.float64)

    def derivatives(y):
        (first,) = torch.autograd.grad(y, a, G, create_graph=True)
        return y.detach(), first.detach(), torch.autograd.grad(first.sin().sum(), a)[0]

    torch.testing.assert_close(derivatives(derive.load(op)(a, m)), derivatives(defined(op)(a, m)))


MATRICES = (
    "M[t,k]*x[n,k]*prod[l | t <= l and l < k](a[n,l])",
    "M[k,t]*x[n,k]*prod[l | t <= l and l < k](a[n,l]*M[l,k])",
)


@each_row("text", MATRICES)
def test_a_factor_of_both_positions_keeps_the_matrix(text):
    op = derive.parse(f"op f(x[n,t], a[n,t], M[t,k]) -> y\ny[n,t] = sum[k | t <= k]({text})")
    forward, _ = code_of(op).split("def setup_context")
    assert "_recurrence(" not in forward
    assert_alike(op)


@pytest.mark.parametrize("form", FORMS[:8], ids="".join)
def test_many_features_with_one_weight_take_matrices_of_products(form):
    """Retention: a matrix has two positions, a recurrence has one and two features."""
    _, order, first, last = form
    op = derive.parse(
        "op f(q[t,d], k[s,d], v[s,e], a[t]; size(s)=size(t)) -> y\n"
        f"y[t,e] = sum[s,d | s {order} t]"
        f"(q[t,d]*k[s,d]*v[s,e]*prod[l | s {first} l and l {last} t](a[l]))"
    )
    forward, _ = code_of(op).split("def setup_context")
    assert "_recurrence(" not in forward
    assert_alike(op)


def test_what_no_product_takes_may_be_infinite():
    """a[size(t) - 1] belongs to no product of l < k, and a[0] to none of l > t."""
    for first, last, end in (("<=", "<", -1), ("<", "<=", 0), ("<", "<", -1)):
        op = derive.parse(
            "op f(x[t], a[t]) -> y\n"
            f"y[t] = sum[k | t <= k](x[k]*prod[l | t {first} l and l {last} k](a[l]))"
        )
        x, a = (torch.rand(T, dtype=torch.float64).requires_grad_() for _ in range(2))
        with torch.no_grad():
            a[end] = torch.inf
        y = derive.load(op)(x, a)
        assert y.isfinite().all()
        assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), (x, a)))


def test_what_some_product_takes_is_found_out_from_the_conditions():
    """An element of a selective scan, exp(d[l]*r[s]): that of l = 0 belongs to no product."""
    op = derive.parse(
        "op f(x[t], d[t], r[s], c[t,s]) -> y\n"
        "y[t] = sum[s,k | k <= t](c[t,s]*x[k]*prod[l | k < l and l <= t](exp(d[l]*r[s])))"
    )
    code = code_of(op)
    assert "_recurrence(" in code and ".any(" not in code
    assert_alike(op, s=2)
    large = torch.tensor([1e4, 0.1, 0.2, -0.3, 0.4], dtype=torch.float64).requires_grad_()
    own = [torch.rand(s, dtype=torch.float64) for s in ((T,), (2,), (T, 2))]
    y = derive.load(op)(own[0], large, *own[1:])
    assert y.isfinite().all() and torch.autograd.grad(y.sum(), large)[0].isfinite().all()


def test_conditions_that_exclude_each_other_leave_nothing():
    """No i is below b and above it; what the softmax is there does not matter."""
    op = derive.parse(
        "op f(x[i], a[i]) -> y, z\nz[i] = x[i]**2\n"
        "y[i] = x[i]*a[i] + "
        "sum[b | i <= b](softmax[i | i > b](x[i])*prod[l | i <= l and l < b](a[l]))"
    )
    x, a = (torch.rand(T, dtype=torch.float64).requires_grad_() for _ in range(2))
    y, _ = derive.load(op)(x, a)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), (x, a)), (a, x))


@pytest.mark.parametrize("element", ["v[1]", "v[a]*w[i]"])
def test_two_ends_that_are_one_index_are_no_segment(element):
    op = derive.parse(f"op f(v[j], w[i]) -> y\ny[i] = w[i]*prod[a | a >= i and a <= i]({element})")
    own = [torch.rand(T, dtype=torch.float64).requires_grad_() for _ in range(2)]
    assert torch.autograd.gradcheck(derive.load(op), own)


def test_integers_stay_whole():
    op = derive.parse(
        "op f(x[t]: int, a[t]: int, w[t], z[i]) -> y\n"
        "m[t] = sum[k | t <= k](x[k]*prod[l | t <= l and l < k](a[l]))\n"
        "y[t] = w[t]*z[m[t]]"
    )
    x, a, w = torch.tensor([1, 1, 3]), torch.tensor([1, 1, 4]), torch.tensor([2.0, 3.0, 5.0])
    assert derive.load(op)(x, a, w, torch.arange(6.0)).tolist() == [10, 12, 15]

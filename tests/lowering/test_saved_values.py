"""What the forward has computed is read by the backward where no graph of it is wanted."""

import pytest
import torch
from kit.unwritten import first_order

import derive
from derive.check.checks import checks_of

RMS = """
op f(x[n,i], w[i]; eps=1e-6) -> y
r[n] = 1/sqrt(mean[i](x[n,i]**2) + eps)
y[n,i] = w[i]*r[n]*x[n,i]
"""
NORM = "op f(x[n,k]) -> y\ns[n] = sqrt(sum[k](x[n,k]**2) + 1)\ny[n,k] = x[n,k]/s[n]"


def kept(f, *tensors):
    """What is saved that is none of these."""
    saved = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t)
    with hooks:
        y = f(*tensors)
    own = {t.data_ptr() for t in (*tensors, y) if isinstance(t, torch.Tensor)}
    return y, [tuple(t.shape) for t in saved if t.data_ptr() not in own]


def test_a_statistic_is_kept_and_is_no_output():
    f = derive.load(derive.parse(RMS))
    x, w = torch.randn(3, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    y, others = kept(f, x, w)
    assert isinstance(y, torch.Tensor) and others == [(3,)]
    with torch.no_grad():
        torch.testing.assert_close(f(x, w), y)


def test_a_statistic_of_segments_is_kept_though_it_has_as_many_axes():
    f = derive.load(
        derive.parse(
            "op f(x[k], v[k,c], T[k]: int; count=size(s)) -> y\n"
            "z[s] = sum[k | T[k] == s](exp(x[k]))\n"
            "y[s,c] = sum[k | T[k] == s](exp(x[k])/z[T[k]]*v[k,c])"
        )
    )
    x, v = torch.randn(7, requires_grad=True), torch.randn(7, 2, requires_grad=True)
    y, others = kept(f, x, v, torch.tensor([0, 2, 0, 4, 4, 2, 2]), 5)
    assert (5,) in others and y.shape == (5, 2)


def test_a_count_of_pairs_is_kept():
    """The position of each token in its expert."""
    op = derive.parse(
        "op f(x[i,c], T[n]: int) -> y\np[n] = sum[m | m < n]([T[m] == T[n]])\ny[n,c] = x[p[n],c]**2"
    )
    x, T = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 0, 0, 1])
    y, others = kept(derive.load(op), x, T)
    assert others == [(5,)]
    assert torch.equal(y, x[torch.tensor([0, 0, 1, 2, 1])] ** 2)


def test_the_backward_that_is_differentiated_computes_it_again():
    op = derive.parse(NORM)
    text = derive.source(op)
    assert ".square().sum(1" not in first_order(text)
    assert ".square().sum(1" in text.split("class _F")[1]
    f = derive.load(op)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(f, x) and torch.autograd.gradgradcheck(f, x)


@pytest.mark.parametrize("text", [RMS, NORM])
def test_statistics_may_be_mapped_over(text):
    op = derive.parse(text)
    f = derive.load(op)
    tensors = [torch.randn(2, *s, dtype=torch.float64) for s in [(3, 5), (5,)][: len(op.inputs)]]

    def loss(*one):
        return f(*one).sin().sum()

    mapped = torch.func.vmap(torch.func.grad(loss))(*tensors)
    alone = [torch.func.grad(loss)(*(t[n] for t in tensors)) for n in range(2)]
    torch.testing.assert_close(mapped, torch.stack(alone))


def test_what_saves_no_operation_is_not_kept():
    f = derive.load(derive.parse("op f(x[n,k]) -> y; y[n,k] = exp(x[n,k])/sum[j](exp(x[n,j]))"))
    assert kept(f, torch.randn(3, 4, requires_grad=True))[1] == []


PRODUCT = "op f(x[n,k], w[k,m]) -> y\nh[n,m] = sum[k](x[n,k]*w[k,m])\ny[n] = max[m](tanh(h[n,m]))"


def test_a_product_is_kept_unless_little_is_to_be():
    op = derive.parse(PRODUCT)
    x, w = torch.randn(3, 5, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    assert kept(derive.load(op), x, w)[1] == [(3, 4), (3,)]
    y, others = kept(derive.load(op, save="least"), x, w)
    assert others == []
    asked = torch.autograd.grad(y.sin().sum(), (x, w))
    expected = torch.autograd.grad((x @ w).tanh().amax(1).sin().sum(), (x, w))
    torch.testing.assert_close(asked, expected)


@pytest.mark.parametrize("text", [RMS, NORM, PRODUCT])
def test_the_backward_reads_what_is_kept(text):
    op = derive.parse(text)
    sizes = [(3, 5), (5,) if text is RMS else (5, 4)][: len(op.inputs)]
    tensors = [torch.randn(s, requires_grad=True) for s in sizes]
    y = derive.load(op)(*tensors)
    *_, statistic = (t for t in y.grad_fn.saved_tensors if t.is_floating_point())
    statistic.data.fill_(torch.nan)
    assert torch.autograd.grad(y.sum(), tensors)[0].isnan().any()


@pytest.mark.parametrize(
    ("of", "names"),
    [
        ("sum[m](p[n,m]**2)", {"p"}),
        # Both are read: of the two the product alone is kept.
        ("sum[m](s[n,m]*p[n,m]**2)", {"s"}),
    ],
)
def test_a_map_is_kept_in_the_stead_of_what_it_is_of(of, names):
    head = "op f(x[n,k], w[k,m]) -> y\ns[n,m] = sum[k](x[n,k]*w[k,m])\np[n,m] = softmax[m](s[n,m])"
    op = derive.parse(f"{head}\ny[n] = {of}")
    assert set(derive.derivation(op).saved) == {"x", "w", "y", *names}
    f = derive.load(op)
    x, w = torch.randn(3, 5, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    assert kept(f, x, w)[1] == [(3, 4)]
    x, w = (t.detach().double().requires_grad_() for t in (x, w))
    assert torch.autograd.gradcheck(f, (x, w)) and torch.autograd.gradgradcheck(f, (x, w))


def test_a_kept_product_has_the_parts_of_its_axis():
    op = derive.parse(
        "op f(x[n,c], w[c,k]; size(p)=2) -> y\ns[n,(p o)] = sum[c](x[n,c]*w[c,(p o)])\n"
        "t[n,(p o)] = relu(s[n,(p o)])\ny[n,o] = sum[p](t[n,(p o)])"
    )
    assert set(derive.derivation(op).saved) == {"x", "w", "s"}
    x, w = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((3, 5), (5, 8)))
    f = derive.load(op)
    torch.testing.assert_close(f(x, w), (x @ w).relu().view(3, 2, 4).sum(1))
    f(x, w).sum().backward()
    own = torch.autograd.grad((x @ w).relu().sum(), (x, w))
    torch.testing.assert_close((x.grad, w.grad), own)


def test_a_softmax_holds_the_statistic_of_its_rows():
    op = derive.parse(
        "op f(x[n,k], t[n]: int) -> y\nl[n,k] = log_softmax[k](x[n,k])\n"
        "y[n] = l[n,t[n]]*(1 - exp(l[n,t[n]]))"
    )
    assert set(derive.derivation(op).saved) == {"t", "l"}
    assert "softmax(x" not in first_order(derive.source(op))
    f, t = derive.load(op), torch.tensor([1, 0, 4])
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(f, (x, t)) and torch.autograd.gradgradcheck(f, (x, t))


def test_nothing_is_kept_for_its_shape():
    op = derive.parse(
        "op f(x[n,a], w[a,b], t[m]: int, v[m]) -> y\n"
        "h[n,b] = sum[a](x[n,a]*w[a,b])\ny[m,b] = h[t[m],b]*v[m]"
    )
    f, t = derive.load(op), torch.tensor([1, 0, 2, 2])
    x, w, v = torch.randn(3, 5), torch.randn(5, 6), torch.randn(4)
    assert kept(f, x.requires_grad_(), w, t, v)[1] == []
    assert kept(f, x, w, t, v.requires_grad_())[1] == [(3, 6)]


@pytest.mark.filterwarnings("ignore")
def test_a_statistic_of_a_position_has_the_axes_that_it_is_kept_with():
    op = derive.parse(
        "op f(a[k], v[l], b[j]) -> y\ne[0,k,j] = sum[h]((h - k)*v[h])\ny = norm2[l](e[0,0,0])"
    )
    assert all(c.ok for c in checks_of(op, derive.load(op)))

"""Windows and strided reads in the code, and where what is read goes back to."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kit.each import each_row
from kit.lowered import assert_code, code_table
from kit.recognised import functions, named, nothing_recognised, results, tensor
from kit.texts import module, source
from kit.unwritten import source_without_reuse
from torch.autograd import gradcheck, gradgradcheck

from derive import load, parse
from derive.algebra.affine import Polynomial
from derive.algebra.expr import Index, Num, Param, Size
from derive.algebra.inequalities import Bounds
from derive.calculus.guards import given_sizes
from derive.check import oracle
from derive.lowering.patterns.unfold import sliding
from derive.notation.operation import Extent

MAX = "op f(x[n,c,u]; kernel=size(k), stride=1) -> y; y[n,c,t] = max[k](x[n,c,stride*t+k])"
DILATED = "op f(x[n,c,u]; kernel=size(k)) -> y; y[n,c,t] = max[k](x[n,c,t+2*k])"
AVERAGE = (
    "op f(x[n,c,h,w]; kernel=size(i), stride=1, size(j)=size(i)) -> y; "
    "y[n,c,p,q] = mean[i,j](x[n,c,stride*p+i,stride*q+j])"
)
BLOCKS = "op f(x[n,u,c]; kernel=size(k)) -> y; y[n,t,c] = mean[k](x[n,size(k)*t+k,c]**2)"
SPREAD = "op f(x[n,c,u]; kernel=size(k)) -> y; y[n,c,t] = mean[k](x[n,c,t+2*k])"
LARGEST = AVERAGE.replace("mean", "amax")
LOCAL = "op f(a[n,t,k], x[n,u]) -> y; y[n,t] = sum[k](a[n,t,k]*x[n,t+k])"
GROUPS = "op f(x[*p,u,c], v[k]) -> y; y[*p,t,c] = max[k](v[k]*x[*p,3*t+k,c])"
SECOND = "op f(x[n,u]) -> y; y[n,t] = x[n,2*t]"
GRID = "op f(x[n,h,w]) -> y; y[n,p,q] = exp(x[n,2*p+1,3*q])"
LAST = "op f(x[*p,u]) -> y; y[*p,t] = x[*p,2*t+1]"
BOTH = "op f(x[u]) -> y; y[t] = x[2*t]*x[2*t+1]"
SHUFFLE = "op f(x[n,h,w]; size(i)=2, size(j)=3) -> y; y[n,i,j,p,q] = x[n,2*p+i,3*q+j]"
UP = "op f(x[n,t]; size(u)=2*size(t)) -> y; y[n,u] = sum[t]([u == 2*t]*x[n,t])"

CODE = code_table(
    f"""\
{MAX}
    max_of_x = x.unfold(2, kernel, stride).max(3)
    y = max_of_x.values
    winner = max_of_x.indices
        grad_x = G.new_zeros(x_shape).scatter_add(2, winner + stride * torch.arange(G.shape[2], \
          device=G.device), G)
{DILATED}
    max_of_x = x.unfold(2, 2 * kernel - 1, 1)[..., ::2].max(3)
    y = max_of_x.values
    winner = max_of_x.indices
{AVERAGE}
    y = torch.nn.functional.avg_pool2d(x, kernel, stride)
{BLOCKS}
    y = torch.nn.functional.avg_pool1d(x.square().mT, kernel).mT
{SPREAD}
    y = x.unfold(2, 2 * kernel - 1, 1)[..., ::2].mean(3)
{LARGEST}
    top = x.unfold(2, kernel, stride).unfold(3, kernel, stride).amax((4, 5))
{LOCAL}
{GROUPS}
{SECOND}
    y = x[:, ::2]
{GRID}
    y = x[:, 1::2][:, :, ::3].exp()
{LAST}
    y = x[..., 1::2]
{BOTH}
    y = x[::2].narrow(0, 0, (x.shape[0] - 2) // 2 + 1) * x[1::2]
{SHUFFLE}
{UP}
    y = x.new_zeros((x.shape[0], 2 * x.shape[1])).slice_scatter(x, 1, 0, 2 * x.shape[1], 2)
        grad_x = G[:, ::2]
"""
)

SMALL = {
    MAX: ([(2, 1, 8)], {"kernel": 3, "stride": 2}),
    DILATED: ([(2, 1, 7)], {"kernel": 3}),
    AVERAGE: ([(1, 2, 5, 4)], {"kernel": 2, "stride": 2}),
    BLOCKS: ([(2, 7, 3)], {"kernel": 3}),
    SPREAD: ([(2, 1, 7)], {"kernel": 3}),
    LARGEST: ([(1, 2, 5, 4)], {"kernel": 2, "stride": 2}),
    LOCAL: ([(2, 4, 3), (2, 6)], {}),
    GROUPS: ([(2, 8, 3), (4,)], {}),
    SECOND: ([(2, 7)], {}),
    GRID: ([(2, 5, 7)], {}),
    LAST: ([(2, 3, 7)], {}),
    BOTH: ([(7,)], {}),
    SHUFFLE: ([(2, 5, 7)], {}),
    UP: ([(2, 3)], {}),
}


@pytest.mark.parametrize("text", CODE, ids=named)
def test_the_code_that_an_expert_writes(text):
    assert_code(text, *CODE[text])
    assert "index_select" not in "".join(functions(source_without_reuse(parse(text)))[0])


def distinct(*shape: int) -> torch.Tensor:
    """Values in random order, no two of them near each other."""
    n = int(np.prod(shape))
    values = np.random.default_rng(n).permutation(np.linspace(0.5, 1.5, n))
    return torch.tensor(values.reshape(shape), requires_grad=True)


@pytest.mark.parametrize("text", SMALL, ids=named)
def test_values_and_gradients_of_both_orders(text):
    shapes, parameters = SMALL[text]
    op = parse(text)
    f = load(op)
    inputs = [distinct(*shape) for shape in shapes]
    arrays = {t.name: x.detach().numpy() for t, x in zip(op.inputs, inputs, strict=True)}

    def call(*given):
        return f(*given, **parameters)

    (wanted,) = oracle.outputs(op, arrays, parameters).values()
    np.testing.assert_allclose(call(*inputs).detach().numpy(), wanted)
    assert gradcheck(call, inputs, check_forward_ad=True)
    assert gradgradcheck(call, inputs)
    several = [torch.stack([x, 2 * x]).detach() for x in inputs]
    stacked = torch.stack([call(*one) for one in zip(*several, strict=True)])
    torch.testing.assert_close(torch.func.vmap(call)(*several), stacked)


@pytest.mark.parametrize("text", SMALL, ids=named)
def test_what_is_recognised_equals_the_general_lowering(text):
    shapes, parameters = SMALL[text]
    op = parse(text)
    recognised = source(op)
    with nothing_recognised():
        general = source(op)
    assert recognised != general
    tensors = {
        t.name: distinct(*shape).detach().numpy()
        for t, shape in zip(op.inputs, shapes, strict=True)
    }
    found = [
        results(getattr(module(f"derive_windows_{n}", s), op.name), tensors, parameters)
        for n, s in enumerate((recognised, general))
    ]
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@each_row("stride", [1, 2, 3])
@each_row("size", range(3, 10))
def test_pooling_is_torchs(size, stride):
    """Also where the stride does not divide: the last values are in no window."""
    x = distinct(2, 3, size)
    made = load(parse(MAX))(x, kernel=3, stride=stride)
    wanted = F.max_pool1d(x, 3, stride)
    assert torch.equal(made, wanted)
    G = torch.rand_like(wanted)
    (a,), (b,) = (torch.autograd.grad(y, x, G) for y in (made, wanted))
    torch.testing.assert_close(a, b)
    x = distinct(2, 3, size, size + 1)
    made = load(parse(AVERAGE))(x, kernel=3, stride=stride)
    wanted = F.avg_pool2d(x, 3, stride)
    torch.testing.assert_close(made, wanted)
    G = torch.rand_like(wanted)
    (a,), (b,) = (torch.autograd.grad(y, x, G) for y in (made, wanted))
    torch.testing.assert_close(a, b)


def test_ties_send_the_gradient_to_the_first_winner():
    x = torch.ones(1, 1, 5, requires_grad=True)
    load(parse(MAX))(x, kernel=3, stride=1).sum().backward()
    assert x.grad.tolist() == [[[1, 1, 1, 0, 0]]]


@each_row("size", range(6))
def test_a_strided_read_of_any_size(size):
    x = distinct(2, size)
    y = load(parse(SECOND))(x)
    assert torch.equal(y, x[:, ::2])
    y.sum().backward()
    assert x.grad[:, ::2].eq(1).all() and x.grad[:, 1::2].eq(0).all()


def test_strided_reads_of_integers_and_bools():
    op = parse(
        "op f(T[n]: int, q[n]: bool, x[m]) -> y, s\ny[t] = T[2*t+1]\n"
        "s[t] = x[0]*where(q[2*t+1], 1, 2)"
    )
    y, s = load(op)(torch.arange(5), torch.arange(5) > 2, tensor(1) * 0 + 3)
    assert y.tolist() == [1, 3] and s.tolist() == [6, 3]


def test_a_window_that_is_not_certain_to_lie_on_the_axis():
    """p may be negative, which narrow would take from the end."""
    f = load(parse("op f(x[u], b[t], c[k]; p=1) -> y\ny[t] = max[k](b[t]*c[k]*x[t+k+p])"))
    x = distinct(7)
    assert f(x, tensor(3), tensor(2), p=1).shape == (3,)
    for p in (-1, 5):
        with pytest.raises((IndexError, RuntimeError)):
            f(x, tensor(3), tensor(2), p=p)


T, K = Index("i", "i"), Index("k", "k")


def size(name: str) -> Polynomial:
    return Polynomial.of(Size(name))


def test_sizes_say_which_index_counts_the_windows():
    valid = Extent("i", size=Size("u") - Size("k") + 1)
    bounds = Bounds(given_sizes([Extent("u"), Extent("k"), valid]))
    for position in (T + K, K + T):
        w = sliding(bounds, position, "u")
        assert w is not None and (w.place, w.within) == (T, K)
        assert w.counted and w.is_torch and w.before == w.after == Polynomial({})
    w = sliding(bounds, T + K, "u", K)
    assert w is not None and (w.place, w.within) == (K, T)


def test_zeros_around_the_axis_follow_from_sizes():
    bounds = Bounds(given_sizes([Extent("u"), Extent("k"), Extent("i")]))
    w = sliding(bounds, 2 * T + 3 * K, "u", T)
    assert w is not None and not w.counted and not w.guarded
    assert w.covered(bounds) == w.length(bounds)
    two, three = Polynomial.of(2), Polynomial.of(3)
    assert w.after == two * size("i") + three * size("k") - size("u") - Polynomial.of(4)


def test_what_is_no_window():
    bounds = Bounds(given_sizes([Extent("u"), Extent("k"), Extent("i")]))
    for position in (T, T * K, T + K - 1, T + Param("p"), Num(3)):
        assert sliding(bounds, position, "u") is None
    same = Bounds(given_sizes([Extent("u"), Extent("i")]))
    assert sliding(same, T + Index("j", "u"), "u", T) is None


EQUALITIES = [
    "op f(x[t], z[u]) -> y\ny[u] = z[u]*sum[t]([u == t+2]*x[t])",
    "op f(x[t], z[u]) -> y\ny[u] = z[u]*sum[t]([t == 2*u-1]*exp(x[t]))",
    "op f(x[t], z[u]) -> y\ny = sum[t,u]([t == u+1]*x[t]*z[u])",
    "op f(x[t], z[u]) -> y\ny[u] = z[u]*sum[t]([t == u+1 and t != 2]*x[t])",
    "op f(x[t], z[u]) -> y\ny[u] = z[u]*sum[t]([t == size(t)-1-u]*x[t]**2)",
    "op f(x[t], z[u]) -> y\ny[u] = z[u]*sum[t,s]([u == s+2*t]*x[t]*x[s])",
    "op f(x[t], w[k], z[u]) -> y\ny[u] = z[u]*sum[t,k]([u == 3*t-k]*x[t]*w[k])",
]


@each_row("text", EQUALITIES)
@each_row("sizes", [(5, 3, 4), (3, 4, 7), (1, 2, 2)])
def test_a_sum_over_an_equality(text, sizes):
    """Where what it is equal to lies beside the axis there is nothing to add."""
    op = parse(text)
    shapes = dict(zip(("x", "w", "z"), sizes, strict=True))
    arrays = {t.name: distinct(shapes[t.name]).detach().numpy() for t in op.inputs}
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays.values()]
    y = load(op)(*leaves)
    (wanted,) = oracle.outputs(op, arrays, {}).values()
    np.testing.assert_allclose(y.detach().numpy(), wanted)
    assert "==" not in source(op).partition("def forward(")[2].partition("def setup_context")[0]
    y.sum().backward()
    for name, leaf in zip(arrays, leaves, strict=True):
        expected = oracle.gradient(op, arrays, {"y": np.ones_like(wanted)}, {}, name)
        np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-6, atol=1e-8)


WITHIN = load(
    parse(
        "op f(x[n,t,*q]; s=1, length=size(m), v=0) -> y\n"
        "y[n,m,*q] = where(s <= m and m < size(t) + s, x[n,m - s,*q], v)"
    )
)


@pytest.mark.parametrize("size", range(4))
@pytest.mark.parametrize("length", range(1, 4))
def test_a_window_may_lie_anywhere_beside_the_axis(size, length):
    x = torch.rand(2, size, 3, dtype=torch.float64, requires_grad=True)
    for s in range(-6, 7):
        y = WITHIN(x, s=s, length=length, v=0.5)
        where = [m - s if 0 <= m - s < size else None for m in range(length)]
        assert y.shape == (2, length, 3)
        assert y._base is None
        for m, t in enumerate(where):
            expected = torch.full((2, 3), 0.5) if t is None else x[:, t].detach()
            assert y[:, m].tolist() == expected.tolist()
        (found,) = torch.autograd.grad(y.sum(), x)
        assert found[0, :, 0].tolist() == [float(t in where) for t in range(size)]

"""Windows, pieces and zeros in the code: what is recognised, and that it equals what is not."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from kit.each import each_row, some_now
from kit.lowered import assert_code, code_table
from kit.rows import without
from kit.runs import random_runs
from kit.texts import module, source

from derive import catalog, load, parse
from derive.check import oracle
from derive.check.checks import QUICK, VALUES, checks_of
from derive.pipeline import derive_option

CAT = "op f(a[n,i], b[n,j]) -> y; y[n,m] = concat[m](a[n,m], b[n,m])"
UNCUT = "op f(x[t], z[s]) -> y; y[t] = [t < size(s)]*x[t]*z[0]"
CODE = code_table(
    f"""\
{CAT}
    y = torch.cat((a, b), 1)
        grad_a = G.narrow(1, 0, a_shape[1])
        grad_b = G.narrow(1, a_shape[1], b_shape[1])
op f(a[i], b[j], c[k]) -> y; y[m] = concat[m](a[m], exp(b[m]), 2*c[m])
    y = torch.cat((a, b.exp(), 2 * c), 0)
op f(a[*p,i,q], b[*p,j,q]) -> y; y[*p,m,q] = concat[m](a[*p,m,q], b[*p,m,q])
    y = torch.cat((a, b), -2)
        grad_a = G.narrow(-2, 0, a_shape[-2])
        grad_b = G.narrow(-2, a_shape[-2], b_shape[-2])
op f(a[n,i]) -> y; y[n,m] = concat[m](a[n,m], a[n,m])
    y = torch.cat((a, a), 1)
        grad_a = G.narrow(1, 0, a_shape[1]) + G.narrow(1, a_shape[1], a_shape[1])
# What lacks an axis is spread over it; a number is a tensor of its piece.
op f(a[n,i], b[j]) -> y; y[n,m] = concat[m](a[n,m], b[m])
    y = torch.cat((a, b.expand((a.shape[0], b.shape[0]))), 1)
        grad_a = G.narrow(1, 0, a_shape[1])
        grad_b = G.narrow(1, a_shape[1], b_shape[0]).sum(0)
op f(a[i], b[j]) -> y; y[m] = concat[m](a[m], 0*b[m] + 3)
    y = torch.nn.functional.pad(a, (0, b.shape[0]), value=3)
op f(a[i], b[j]) -> y; y[m] = concat[m](a[m], 0*b[m])
    y = torch.nn.functional.pad(a, (0, b.shape[0]))
# A reduction is made of its piece alone.
op f(a[i,d], b[j,d], c[k]) -> y; \
  y[m] = concat[m](c[m], logsumexp[d](a[m,d]), logsumexp[d](b[m,d] + c[0])*c[0])
    lse2 = torch.logsumexp(b, 1)
    y = torch.cat((c, torch.logsumexp(a, 1), c[0] * (lse2 + c[0])), 0)
# What all pieces have in common is outside.
op f(a[i], b[j], w[m]) -> y; h[m] = concat[m](a[m], b[m]); y[m] = w[m]*h[m]
    h = torch.cat((a, b), 0)
    y = w * h
op f(a[n,i], b[n,j], W[o,k]) -> y; h[n,m] = concat[m](a[n,m], b[n,m]); \
  y[n,o] = sum[m](h[n,m]*W[o,m])
    h = torch.cat((a, b), 1)
    y = h @ W.mT
        grad_h = G @ W
        grad_a = grad_h.narrow(1, 0, a_shape[1])
        grad_b = grad_h.narrow(1, a_shape[1], b_shape[1])
        h = torch.cat((a, b), 1)
        grad_W = G.mT @ h
op f(a[n,i], b[n,j], W[o,k]) -> y; h[n,m] = concat[m](a[n,m], b[n,m]); \
  y[n,o] = sum[m | m < size(i)](h[n,m]*W[o,m])
    h = torch.cat((a, b), 1)
    y = h.narrow(1, 0, a.shape[1]) @ W.narrow(1, 0, a.shape[1]).mT
y[u] = x[u+1] - x[u]
    y = x.narrow(0, 1, x.shape[0] - 1) - x.narrow(0, 0, x.shape[0] - 1)
        padded_G = torch.nn.functional.pad(G, (1, 0))
        grad_x = padded_G - torch.nn.functional.pad(G, (0, 1))
# What only rearranges has the backward of torch itself.
op f(x[n,t]) -> y; y[n,u] = x[n,u+2]
    y = x.narrow(1, 2, x.shape[1] - 2)
op f(x[t,n]) -> y; y[u,n] = x[u+2,n]
    y = x.narrow(0, 2, x.shape[0] - 2)
op f(x[*p,t,*q]; dim=axis(t)) -> y; y[*p,t,*q] = x[*p,size(t)-1-t,*q]
    y = x.flip(dim)
        grad_x = G.flip(dim)
op f(x[t]) -> y; y[u] = x[size(t)-3-u]
    y = x.narrow(0, 0, x.shape[0] - 2).flip(0)
# A shift leaves the axis by as much as it is: no mask, and right where the axis is shorter.
op f(x[t]) -> y; y[t] = where(t >= 2, x[t-2], 0)
    y = rt.window(x, 0, -2, x.shape[0])
        grad_x = rt.window(G, 0, 2, G.shape[0])
# A number outside is what torch pads with.
op f(x[*p,t,*q]; s=1, v=0, dim=axis(t)) -> y; \
  y[*p,t,*q] = where(s <= t and t < size(t) + s, x[*p,t - s,*q], v)
    y = rt.window(x, dim, -s, x.shape[dim], v)
        grad_x = rt.window(G, dim, s, G.shape[dim])
op f(x[n,t]; v=0, size(m)=size(t) + 5) -> y; \
  y[n,m] = where(m < 2 or m >= size(t) + 2, 1 - v, x[n,m - 2])
    y = torch.nn.functional.pad(x, (2, 3), value=1 - v)
        grad_x = G.narrow(1, 2, x_shape[1])
op f(x[n,t]; size(m)=size(t) + 5) -> y; y[n,m] = where(m < 3 or m >= size(t) + 2, 7, x[n,m - 2])
    positions_of_x = torch.arange(x.shape[1] + 5, device=x.device)
    y = torch.where((positions_of_x < 3) | (positions_of_x >= 2 + x.shape[1]), 7, \
      torch.nn.functional.pad(x, (2, 3)))
# A mask stays where the condition says less than the axis, or something else is read.
op f(x[t]) -> y; y[t] = where(t >= 3, x[t-2], 0)
    y = torch.where(torch.arange(x.shape[0], device=x.device) >= 3, rt.window(x, 0, -2, \
      x.shape[0]), 0)
op f(x[t], z[t]) -> y; y[t] = where(t >= 1, x[t-1]*z[t], 0)
    y = torch.where(torch.arange(x.shape[0], device=x.device) >= 1, rt.window(x, 0, -1, \
      x.shape[0]) * z, 0)
# Nothing says where a parameter or a free size cuts an axis.
{UNCUT}
    y = torch.where(torch.arange(x.shape[0], device=x.device) < z.shape[0], z[0] * x, 0)
y[t] = x[2*t+1]
    y = x[1::2]
"""
)


@each_row("text", CODE)
def test_the_code_that_an_expert_writes(text):
    assert_code(text, *CODE[text])


def test_the_catalogs_concat_is_torchs():
    text = source(catalog.find("concat"))
    assert "return torch.cat((A, B), dim)" in text
    assert "grad_A = G.narrow(dim, 0, ctx.A_shape[dim])" in text
    assert "grad_B = G.narrow(dim, ctx.A_shape[dim], ctx.B_shape[dim])" in text
    assert "reshape" not in text


@pytest.mark.parametrize("columns", some_now([VALUES, QUICK], 1), ids=len)
@each_row("text", CODE)
def test_the_family_of_checks(text, columns):
    """Values and gradients now; all checks, on sizes of every kind, in the long campaign."""
    op = parse(text)
    assert [c for c in checks_of(op, load(op), columns=columns) if not c.ok] == []


nothing_recognised = partial(
    without,
    *("window", "every n-th", "guarded window", "run", "places along several axes"),
    *("pieces", "piece", "zeros outside", "number outside", "part of a range"),
    *("digits", "run by digits", "digits of places"),
)
"""The general lowering alone: gathers, masks and scatters."""


def assert_the_same(op, tensors):
    """Values and gradients of the code as it is and of the general code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        derive_option.cache_clear()
        recognised = source(op)
        with nothing_recognised():
            general = source(op)
    results = []
    for n, text in enumerate((recognised, general)):
        f = getattr(module(f"derive_pieces_{n}", text), op.name)
        given = [torch.tensor(t, requires_grad=t.dtype == np.float64) for t in tensors.values()]
        made = f(*given, **{p.name: 1 for p in op.parameters})
        made = made if isinstance(made, tuple) else (made,)
        total = sum((y * torch.arange(1.0, y.numel() + 1).reshape(y.shape)).sum() for y in made)
        wanted = [t for t in given if t.requires_grad]
        found = torch.autograd.grad(total, wanted, materialize_grads=True)
        results.append([*made, *found])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@each_row("text", CODE, turns=3)
def test_what_is_recognised_equals_the_general_lowering(text):
    op = parse(text)
    for sizes in ((4, 5, 6, 7, 3, 2), (7, 6, 5, 4, 3, 8)):
        known = dict(zip((e.name for e in op.extents if e.size is None), sizes, strict=False))
        complete(op, known)
        rng = np.random.default_rng(0)
        tensors = {t.name: rng.uniform(0.5, 1.5, shape(t, known)) for t in op.inputs}
        assert_the_same(op, tensors)
    with nothing_recognised():
        general = source(op)
    assert (general == source(op)) == (text == UNCUT)


def complete(op, known):
    """The sizes that follow from others."""
    for e in op.extents:
        if e.group:
            known[e.name] = (2,) if e.name == "p" else (3, 1)
    for e in [*op.extents, *op.extents]:
        if e.size is not None:
            try:
                known[e.name] = int(oracle.evaluate(e.size, {}, known, {}, {}))
            except KeyError:
                continue


def shape(t, known):
    sizes = [known[i.extent] for i in t.axes]
    return tuple(n for s in sizes for n in (s if isinstance(s, tuple) else (s,)))


def by_loops(text, tensors):
    """The operation and the arrays of all its equations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op = parse(text)
    return op, oracle.run(op, tensors, {})


PROGRAMS = {seed: random_runs(seed) for seed in range(200, 240)}


@each_row("seed", PROGRAMS, turns=3)
def test_random_runs_equal_the_general_lowering(seed):
    """Where an axis is empty the general lowering has nothing that it could gather."""
    tensors = PROGRAMS[seed].tensors
    op, made = by_loops(PROGRAMS[seed].text, tensors)
    if all(a.size for a in (*tensors.values(), *made.values())):
        assert_the_same(op, tensors)


@pytest.mark.parametrize("sizes", [(0, 3, 2), (3, 0, 2), (2, 3, 0), (0, 0, 4), (0, 0, 0)], ids=str)
def test_pieces_may_be_empty(sizes):
    op = parse(
        "op f(a[i], b[j], c[k]) -> y, z\ny[m] = concat[m](2*a[m], b[m], exp(c[m]))\n"
        "z[m] = where(m < size(i), y[m], 0) + [size(i) + size(j) <= m]*y[m]**2"
    )
    rng = np.random.default_rng(0)
    tensors = {n: rng.uniform(0.5, 1.5, s) for n, s in zip("abc", sizes, strict=True)}
    expected = oracle.outputs(op, tensors, {})
    given = [torch.tensor(t, requires_grad=True) for t in tensors.values()]
    for name, made in zip(expected, load(op)(*given), strict=True):
        np.testing.assert_allclose(made.detach().numpy(), expected[name])
    G = {name: np.ones_like(value) for name, value in expected.items()}
    sum(y.sum() for y in load(op)(*given)).backward()
    for name, x in zip(tensors, given, strict=True):
        want = oracle.gradient(op, tensors, G, {}, name)
        np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("size", range(5))
def test_a_shift_may_be_longer_than_the_axis(size):
    op = parse(
        "op f(x[t]) -> y, z\ny[t] = where(t >= 3, x[t-3], 0)\n"
        "z[t] = where(t + 2 < size(t), exp(x[t+2]), x[t])"
    )
    tensors = {"x": np.random.default_rng(0).uniform(0.5, 1.5, size)}
    expected = oracle.outputs(op, tensors, {})
    x = torch.tensor(tensors["x"], requires_grad=True)
    for name, made in zip(expected, load(op)(x), strict=True):
        np.testing.assert_allclose(made.detach().numpy(), expected[name])
    sum(y.sum() for y in load(op)(x)).backward()
    want = oracle.gradient(op, tensors, {n: np.ones_like(v) for n, v in expected.items()}, {}, "x")
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-8, atol=1e-10)


def test_what_a_mask_excludes_is_not_read():
    """A value that is not finite stays out of every other piece and of the gradient."""
    op = parse(
        "op f(a[i], b[j]) -> y\nh[m] = concat[m](log(a[m]), b[m])\ny[m] = [m >= size(i)]*h[m]"
    )
    a = torch.tensor([-1.0, 0.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64, requires_grad=True)
    y = load(op)(a, b)
    assert y.tolist() == [0, 0, 2, 3, 4]
    y.sum().backward()
    assert b.grad.tolist() == [1, 1, 1]


def test_integers_and_bools_are_joined_and_shifted_as_they_are():
    op = parse(
        "op f(x[t], T[i]: int, S[j]: int, q[t]: bool) -> y, U\nU[m] = concat[m](T[m], 0*S[m] + 1)\n"
        "y[t] = where(t >= 1, where(q[t-1], x[t], 2*x[t]), x[t])"
    )
    x, q = torch.arange(3.0, dtype=torch.float64) + 1, torch.tensor([True, False, True])
    y, U = load(op)(x, torch.tensor([5, 6]), torch.tensor([7, 8, 9]), q)
    assert U.dtype == torch.int64 and U.tolist() == [5, 6, 1, 1, 1]
    assert y.tolist() == [1, 2, 6]


def test_a_trace_serves_other_sizes():
    """Nothing of the sizes of one call stays in the code that torch exports."""
    f = load(parse(CAT))
    n, m = torch.export.Dim("n"), torch.export.Dim("m")

    class Module(torch.nn.Module):
        def forward(self, a, b):
            return f(a, b)

    exported = torch.export.export(
        Module(), (torch.zeros(2, 3), torch.zeros(2, 4)), dynamic_shapes={"a": {1: n}, "b": {1: m}}
    )
    a, b = torch.ones(2, 6), torch.zeros(2, 5)
    assert torch.equal(exported.module()(a, b), torch.cat((a, b), 1))


FIXED = """\
op f(v[l], w[k]) -> y
e[m] = concat[m](amin[k](w[k])*v[m], size(m)*v[m], w[1]*v[m])
y = sum[k](e[11]*w[k])*(w[0] - w[2])
"""


@pytest.mark.parametrize("length", [4, 6, 9, 13])
def test_a_fixed_position_may_be_in_any_part(length):
    """A gradient is padded to the length of a part only where the position is in this part."""
    given = [torch.rand(n, dtype=torch.float64, requires_grad=True) for n in (length, 3)]
    assert torch.autograd.gradcheck(load(parse(FIXED)), given)

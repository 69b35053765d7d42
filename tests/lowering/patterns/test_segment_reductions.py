"""Extrema and logsumexps of what belongs together, without a mask of all pairs."""

import math

import numpy as np
import pytest
import torch
from kit.each import each_row, some_now
from kit.lines import run
from kit.texts import source
from kit.unwritten import source_without_reuse
from torch.utils._python_dispatch import TorchDispatchMode

from derive.api import load
from derive.check import oracle
from derive.check.checks import QUICK, VALUES, checks_of
from derive.notation.specification import parse

SEGMENTS = "op f(x[n,q], s[n]: int; num=size(g)) -> y\ny[g,q] = {kind}[n | s[n]==g](x[n,q])"
TEXTS = {
    "rows": SEGMENTS,
    "a group": "op f(x[n,*q], s[n]: int; num=size(g)) -> y\ny[g,*q] = {kind}[n | g==s[n]](x[n,*q])",
    "the other order": (
        "op f(x[n,q], s[n]: int; num=size(g)) -> y\ny[q,g] = {kind}[n | s[n]==g](x[n,q])"
    ),
    "a batch": (
        "op f(x[b,n], s[b,n]: int; num=size(g)) -> y\ny[b,g] = {kind}[n | s[b,n]==g](x[b,n])"
    ),
    "several axes": (
        "op f(x[n,t], s[n,t]: int, w[t]; num=size(g)) -> y\n"
        "y[g] = {kind}[n,t | s[n,t]==g](x[n,t]*w[t])"
    ),
    "the segment in the body": (
        "op f(x[n], v[g], s[n]: int) -> y\ny[g] = {kind}[n | s[n]==g](x[n]*v[g])"
    ),
    "one more condition": (
        "op f(x[n], m[n]: bool, s[n]: int; num=size(g)) -> y\n"
        "y[g] = {kind}[n | m[n] and s[n]==g](exp(x[n]))"
    ),
    "a condition with both": (
        "op f(x[n], v[g], s[n]: int) -> y\n"
        "y[g] = {kind}[n | s[n]==g and x[n] < v[g]](x[n]) + 0*v[g]"
    ),
    "a computed position": (
        "op f(x[n], s[n]: int; num=size(g)) -> y\ny[g] = {kind}[n | s[n] + 1 == g](x[n]**2)"
    ),
    "a softmax over each segment": (
        "op f(x[n], s[n]: int; num=size(g)) -> y\nm[g] = {kind}[n | s[n]==g](x[n])\n"
        "e[n] = exp(x[n] - m[s[n]])\nt[g] = sum[n | s[n]==g](e[n])\ny[n] = e[n]/t[s[n]]"
    ),
}


def made(name, kind):
    return parse(TEXTS[name].format(kind=kind))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("columns", some_now([VALUES, QUICK], 1), ids=len)
@each_row("kind", ["amax", "amin", "logsumexp"])
@each_row("name", TEXTS)
def test_the_family_of_checks(name, kind, columns):
    """Values and gradients now; all checks, on sizes of every kind, in the long campaign."""
    op = made(name, kind)
    assert not [c for c in checks_of(op, load(op), columns=columns) if not c.ok]


@each_row("kind", ["amax", "logsumexp"])
@each_row("name", TEXTS)
def test_no_mask_of_all_pairs_is_made(name, kind):
    code = source(made(name, kind))
    assert "scatter_reduce" in code
    assert "arange" not in code


SHARES = {
    "a softmax over each segment, as it is defined": (
        "op f(u[k], s[k]: int, v[n]) -> y\n"
        "t[n] = sum[k | s[k] == n](exp(u[k]))\n"
        "y[k] = exp(u[k])/t[s[k]]*v[s[k]]"
    ),
    "a softmax over the edges into each node": (
        "op gat(x[n,d], a[d], b[n], src[k]: int, dst[k]: int) -> y\n"
        "u[k] = sum[d](a[d]*tanh(x[src[k],d] + x[dst[k],d]))\n"
        "e[k] = exp(u[k] - b[dst[k]])\n"
        "t[n] = sum[k | dst[k] == n](e[k])\n"
        "y[n,d] = sum[k | dst[k] == n](e[k]/t[n]*x[src[k],d])"
    ),
    "the average share": (
        "op f(x[k], s[k]: int, v[n]) -> y\n"
        "t[n] = v[n] + mean[k | s[k] == n](x[k]**2)\n"
        "y[k] = x[k]/t[s[k]]"
    ),
}


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that is made."""

    def __init__(self):
        super().__init__()
        self.found = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        tensors = made if isinstance(made, tuple | list) else (made,)
        sizes = [t.numel() for t in tensors if isinstance(t, torch.Tensor)]
        self.found = max(self.found, *sizes, 0)
        return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", SHARES.values(), ids=SHARES)
def test_a_softmax_over_segments_makes_no_tensor_of_pairs(text):
    op = parse(text)
    function = load(op)
    assert not [c for c in checks_of(op, function) if not c.ok]
    k, n, d = 60, 40, 3
    sizes = {"k": k, "n": n, "d": d}
    inputs = [
        torch.arange(k).remainder(n - 5)
        if t.kind == "int"
        else torch.linspace(0.1, 1, math.prod(sizes[i.extent] for i in t.axes))
        .reshape([sizes[i.extent] for i in t.axes])
        .requires_grad_()
        for t in op.inputs
    ]
    with Largest() as largest:
        function(*inputs).sum().backward()
    assert largest.found <= (k + n) * d


@pytest.mark.parametrize("kind", ["amax", "amin"])
def test_ties_share_and_what_is_in_no_segment_is_not_read(kind):
    op = made("rows", kind)
    x = np.array([[1.0, 2.0], [1.0, 0.0], [3.0, 3.0], [np.nan, 1.0], [3.0, 3.0], [9.0, 9.0]])
    tensors = {"x": x, "s": np.array([0, 0, 2, -1, 2, 7])}
    t = torch.tensor(x, requires_grad=True)
    y = load(op)(t, torch.tensor(tensors["s"]), num=4)
    expected = oracle.outputs(op, tensors, {"num": 4})["y"]
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    G = np.arange(1.0, 9.0).reshape(4, 2)
    (found,) = torch.autograd.grad(y, t, torch.tensor(G))
    # Each extremum's cotangent is shared by those that reach it; an empty segment has none.
    wanted = np.zeros_like(x)
    for g in range(4):
        rows = np.flatnonzero(tensors["s"] == g)
        for q in range(2):
            winners = [n for n in rows if x[n, q] == expected[g, q]]
            for n in winners:
                wanted[n, q] = G[g, q] / len(winners)
    np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_and_one(n):
    x = torch.ones(n, 3, requires_grad=True)
    y = load(made("rows", "amax"))(x, torch.zeros(n, dtype=torch.int64), num=2)
    assert y.tolist() == [[1.0] * 3 if n else [-math.inf] * 3, [-math.inf] * 3]
    (found,) = torch.autograd.grad(y[:1].sum(), x)
    assert torch.equal(found, torch.ones(n, 3))


def test_second_derivatives_where_a_segment_is_empty():
    x = torch.tensor([[1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    G = torch.tensor([[1.0], [1.0]], dtype=torch.float64, requires_grad=True)
    y = load(made("rows", "amax"))(x, torch.tensor([1, 1]), num=2)
    (first,) = torch.autograd.grad(y, x, G, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), G)
    assert second.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    "text",
    [
        "op f(x[n], v[g], s[n]: int) -> y\ny[n] = sum[g | s[n]==g](v[g]*[x[n] < v[g]])",
        "op f(x[n], v[g], s[n]: int) -> y\ny[g] = sum[n | s[n]==g](x[n]*[x[n] < v[g]])",
        "op f(x[n], v[g], s[n]: int) -> y\ny[g] = amax[n | s[n]==g](x[n]*v[g])",
        "op f(x[n], v[g], s[n]: int) -> y\ny[g] = amin[n | s[n]==g and v[g] < 1](x[n]) + v[g]",
    ],
)
def test_no_segments(text):
    x, v = torch.ones(3, requires_grad=True), torch.ones(0, requires_grad=True)
    y = load(parse(text))(x, v, torch.tensor([0, 1, -1]))
    first = torch.autograd.grad(y.sum(), (x, v))
    assert y.tolist() == ([] if y.numel() == 0 else [0.0, 0.0, 0.0])
    assert [g.tolist() for g in first] == [[0.0, 0.0, 0.0], []]


def test_an_infinity_is_placed_beside_its_brackets():
    """A logarithm of a softmax is -inf where it excludes; no place that is not asked counts it."""
    spec = (
        "op f(v[i], U[k]: int) -> y\n"
        "y[i] = sum[e | U[e] == i](log_softmax[i | (U[e] == i) or (i != e)](v[i]*(e + 1)))"
    )
    op = parse(spec)
    tensors = {"v": np.array([0.3, -0.2, 0.7, 0.1]), "U": np.array([1, 3, 1])}
    (wanted,) = oracle.outputs(op, tensors, {}).values()
    found = load(op)(torch.tensor(tensors["v"]), torch.tensor(tensors["U"]))
    np.testing.assert_allclose(found.numpy(), wanted)


GRAPH = """op f(x[n,d], s[n], src[e]: int, dst[e]: int) -> y
deg[n] = 1 + sum[e]([dst[e] == n])
y[n,d] = x[n,d] + sum[e]([dst[e] == n]*x[src[e],d]*s[n]*rsqrt(deg[src[e]]*deg[n]))"""


@pytest.mark.parametrize("nodes", (0, 1, 4))
def test_what_is_read_at_places_has_no_branches(nodes):
    code = source_without_reuse(parse(GRAPH))
    bodies = code.partition("def forward(")[2].partition("\ndef f(")[0]
    assert "if x.shape[0]" not in bodies and "dst == dst" not in bodies
    assert "rt.index_add_if_any(" in bodies and ".mT" not in bodies
    random = np.random.default_rng(0)
    tensors = {"x": random.normal(size=(nodes, 3)), "s": random.normal(size=nodes)}
    # Ids that are none of a node.
    dst = np.array([-1, 0, 3, nodes, 0, 9])
    src = np.where((dst >= 0) & (dst < nodes), random.integers(max(nodes, 1), size=6), 0)
    run(GRAPH, {**tensors, "src": src, "dst": dst})
    read = "where(at[e,f] >= 0 and at[e,f] < size(n), x[at[e,f],d]*s[at[e,f]], 0)"
    read = f"op f(x[n,d], s[n], at[e,f]: int) -> y\ny[e,f,d] = {read}"
    run(read, {**tensors, "at": dst.reshape(3, 2)})


MEANS = {
    "named": "c[g] = sum[n]([s[n] == g])\ny[g,q] = sum[n]([s[n] == g]*x[n,q])/c[g]",
    "a mean": "y[g,q] = mean[n | s[n] == g](x[n,q])",
    "weighted": "c[g] = sum[n]([s[n] == g]*w[n])\ny[g,q] = sum[n]([s[n] == g]*w[n]*x[n,q])/c[g]",
}


@pytest.mark.parametrize("case", MEANS)
def test_a_share_of_what_has_a_value_is_read_from_a_table(case):
    weights = ", w[n]" if case == "weighted" else ""
    text = f"op f(x[n,q], s[n]: int{weights}; num=size(g)) -> y\n{MEANS[case]}"
    tabled = case != "weighted"
    assert (".clamp(min=1)" in source(parse(text))) == tabled
    random = np.random.default_rng(0)
    tensors = {"x": random.normal(size=(6, 2)), "s": np.array([2, 0, 2, -1, 0, 5])}
    if weights:
        tensors["w"] = random.uniform(0.5, 2, size=6)
    f = load(parse(text))
    given = [torch.tensor(t, requires_grad=t.dtype == float) for t in tensors.values()]
    y = f(*given, num=4)[[0, 2]]
    wanted = oracle.outputs(parse(text), tensors, {"num": 4})["y"][[0, 2]]
    np.testing.assert_allclose(y.detach().numpy(), wanted)
    assert torch.autograd.gradcheck(lambda *t: f(*t, num=4)[[0, 2]], given)
    assert torch.autograd.gradgradcheck(lambda *t: f(*t, num=4)[[0, 2]], given)


TABLES = {
    "a product": "op f(x[m,k], W[k,c], z[n,c], s[m]: int) -> y\n"
    "y[n,c] = z[n,c] + sum[m | s[m]==n](sum[k](x[m,k]*W[k,c]))",
    "means of batches": "op f(x[b,m,c], s[b,m]: int, z[n]) -> y\n"
    "y[b,n,c] = z[n]*mean[m | s[b,m]==n](x[b,m,c])",
    "extrema of batches": "op f(x[b,m,c], s[b,m]: int, z[n]) -> y\n"
    "y[b,n,c] = z[n]*amax[m | s[b,m]==n](x[b,m,c])",
}


@pytest.mark.parametrize("case", TABLES)
def test_no_tensor_of_more_axes_than_the_inputs_is_made(case):
    op = parse(TABLES[case])
    random = np.random.default_rng(0)
    sizes = {"b": 2, "m": 40, "n": 30, "c": 3, "k": 4}
    given = []
    for t in op.inputs:
        shape = [sizes[i.name] for i in t.axes]
        whole = np.resize(random.permutation(30), shape)
        given.append(torch.tensor(whole if t.kind == "int" else random.normal(size=shape)))
    given = [t.requires_grad_(t.is_floating_point()) for t in given]
    largest = max(t.numel() for t in given)

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            found = made if isinstance(made, (tuple, list)) else [made]
            for t in found:
                if isinstance(t, torch.Tensor):
                    assert t.numel() <= 2 * largest, (func, t.shape)
            return made

    f = load(op)
    with Watch():
        y = f(*given)
        torch.autograd.grad(y.sum(), [t for t in given if t.requires_grad])
    assert all(c.ok for c in checks_of(op, f))

"""Modules that take an index in blocks: what they compute, keep, refuse and remember."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, randint, randn

import derive
from derive import catalog, parse
from derive.notation.operation import Operation

# A function that takes an index in blocks, held against the same one without.

Given = Callable[[], Sequence[Tensor | None]]


def agrees(
    op: Operation,
    given: Given,
    letter: str = "n",
    blocks: Sequence[int | None] = (1, 3, 7, 9, None),
    **parameters: Any,
) -> None:
    """Values, gradients of both orders and a second backward, for blocks of these sizes."""
    whole, parted = derive.load(op), derive.load(op, letter)
    for block in blocks:
        torch.manual_seed(3)
        made = [None if x is None else x.double() if x.is_floating_point() else x for x in given()]
        want = orders(whole, made, parameters)
        got = orders(parted, made, {**parameters, "block": block})
        for name, value in want.items():
            same = torch.allclose(got[name], value, rtol=1e-9, atol=1e-11)
            # Of no rows a mean is 0/0, whose gradient may be 0 or no number.
            assert same or value.isnan().all(), f"{op.name}, block {block}: {name}"


def orders(
    function: Callable[..., Any], given: Sequence[Tensor | None], parameters: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Outputs, gradients, those of a second backward, and what those of the gradients are."""
    tensors = [copy(x) for x in given]
    inputs = [x for x in tensors if x is not None and x.requires_grad]
    result = function(*tensors, **parameters)
    outputs = [y for y in (result if isinstance(result, tuple) else (result,))]
    floats = [y for y in outputs if y.is_floating_point()]
    torch.manual_seed(4)
    cotangents = [torch.randn_like(y) for y in floats]
    keep = {"materialize_grads": True, "retain_graph": True}
    first = torch.autograd.grad(floats, inputs, cotangents, **keep)
    again = torch.autograd.grad(floats, inputs, cotangents, **keep)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True) if not a.isnan().any())
    with torch.no_grad():
        plain = function(*tensors, **parameters)
    graph = torch.autograd.grad(floats, inputs, cotangents, create_graph=True, **keep)
    found = {f"output {n}": y.detach() for n, y in enumerate(outputs)}
    for n, y in enumerate(plain if isinstance(plain, tuple) else (plain,)):
        assert torch.allclose(y, found[f"output {n}"], equal_nan=True)
    for n, (one, two) in enumerate(zip(first, graph, strict=True)):
        found[f"gradient {n}"] = one
        found[f"gradient {n}, with its graph"] = two.detach()
    total = sum((g * torch.randn_like(g)).sum() for g in graph)
    if isinstance(total, Tensor) and total.requires_grad:
        second = torch.autograd.grad(total, inputs, materialize_grads=True)
        found |= {f"second {n}": g for n, g in enumerate(second)}
    return found


def copy(x: Tensor | None) -> Tensor | None:
    if x is None:
        return None
    return x.detach().clone().requires_grad_(x.is_floating_point())


MLP = """
op mlp(x[n,i], W[i,h], b[h], V[h,k]) -> y
z[n,h] = tanh(sum[i](x[n,i]*W[i,h]) + b[h])
y[n,k] = sum[h](z[n,h]*V[h,k])
"""
NORM = """
op norm(x[n,d], g[d], b[d]=0; eps=1e-5) -> y
m[n]   = mean[d](x[n,d])
v[n]   = mean[d]((x[n,d] - m[n])**2)
y[n,d] = g[d]*(x[n,d] - m[n])/sqrt(v[n] + eps) + b[d]
"""
BATCH = """
op batch(x[n,d], g[d]; eps=1e-5) -> y
m[d]   = mean[n](x[n,d])
v[d]   = mean[n]((x[n,d] - m[d])**2)
y[n,d] = g[d]*(x[n,d] - m[d])/sqrt(v[d] + eps)
"""
PAIRS = "op pairs(x[n,d], y[m,d]; s=1.0) -> k\nk = sum[n,m](exp(-s*sum[d]((x[n,d] - y[m,d])**2)))"
SELF = "op own(x[n,d]; s=1.0) -> k\nk = mean[n,m](exp(-s*sum[d]((x[n,d] - x[m,d])**2)))"
SEGMENTS = "op seg(x[n,d], s[n]: int, z[k]) -> y\ny[k,d] = z[k]*sum[n | s[n]==k](x[n,d]**2)"
TWO = "op two(x[n,d], w[d]) -> y, t\ny[n] = sum[d](x[n,d]*w[d])\nt = log(sum[n](y[n]**2))"
CAUSAL = """
op causal(q[n,d], k[n,d], v[n,e]) -> y
s[n,m] = sum[d](q[n,d]*k[m,d])
p[n,m] = softmax[m | m <= n](s[n,m])
y[n,e] = sum[m](p[n,m]*v[m,e])
"""
POSITIONS = "op at(x[n,d]) -> y, t\ny[n,d] = x[n,d]*cos(n*d) + size(n)\nt[d] = sum[n](x[n,d]*n)"
LATER = "op later(x[k,n], b[k]) -> z\nz[k,n] = sin(x[k,n]) + b[k]"
NAMED = """
op named(x[i,n], y[j,n], b[j]) -> v
C[i,j] = sum[n](x[i,n]*y[j,n])
g[j]   = exp(sum[i](C[i,j]))
v      = sum[j](g[j]*b[j])
"""
CYCLES = "op cycles(A[n,j], w[n]) -> y\ny = sum[n,j,k](A[n,j]*A[j,k]*A[k,n]*w[n])"
MASKED = "op masked(x[n,d], m[n]: bool) -> z\nz[d] = mean[n | m[n]](x[n,d]**2)"


def classified(n: int, bias: bool = True, weight: bool = True):
    def given():
        target = randint(5, (n,))
        target[1:2] = -100
        linear = (randn(n, 3), randn(5, 3), target)
        return [*linear, randn(5) if bias else None, torch.rand(5) + 0.5 if weight else None]

    return given


def test_linear_cross_entropy():
    op = catalog.find("linear_cross_entropy")
    agrees(op, classified(7), blocks=(3,), label_smoothing=0.1)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (MLP, lambda: [randn(7, 3), randn(3, 6), randn(6), randn(6, 4)]),
        (SELF, lambda: [randn(7, 3)]),
        (TWO, lambda: [randn(7, 3), randn(3)]),
        (PAIRS, lambda: [randn(7, 3), randn(5, 3)]),
        (NAMED, lambda: [randn(4, 7), randn(5, 7), randn(5)]),
        (CYCLES, lambda: [randn(7, 7), randn(7)]),
    ],
    ids=["mapped", "both ways", "mapped and summed", "a centre", "a later name", "two axes"],
)
def test_blocks_agree_with_the_whole(text, given):
    agrees(parse(text), given, blocks=(3, 9))


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "given"),
    [
        (MLP, lambda: [randn(7, 3), randn(3, 6), randn(6), randn(6, 4)]),
        (NORM, lambda: [randn(7, 3), randn(3), randn(3)]),
        (NORM, lambda: [randn(7, 3), randn(3), None]),
        (BATCH, lambda: [randn(7, 3), randn(3)]),
        (PAIRS, lambda: [randn(7, 3), randn(5, 3)]),
        (SELF, lambda: [randn(7, 3)]),
        (SEGMENTS, lambda: [randn(7, 3), randint(4, (7,)), randn(4)]),
        (TWO, lambda: [randn(7, 3), randn(3)]),
        (CAUSAL, lambda: [randn(7, 3), randn(7, 3), randn(7, 4)]),
        (POSITIONS, lambda: [randn(7, 3)]),
        (LATER, lambda: [randn(3, 7), randn(3)]),
        (MASKED, lambda: [randn(7, 3), randn(7) > 0]),
        (MLP, lambda: [randn(0, 3), randn(3, 6), randn(6), randn(6, 4)]),
        (MLP, lambda: [randn(1, 3), randn(3, 6), randn(6), randn(6, 4)]),
    ],
)
def test_blocks_of_all_sizes_agree_with_the_whole(text, given):
    agrees(parse(text), given)


SHARING = {
    "an input": ("x[n], w[n]", "sum[n](x[n]*w[n])", [(7,), (7,)]),
    "one for two": (
        "x[n,k], w[n], v[n]",
        "sum[n]((w[n]+v[n])*logsumexp[k](x[n,k]))",
        [(7, 3), (7,), (7,)],
    ),
    "the value": ("x[n], s", "sum[n](exp(s)*x[n])", [(7,), ()]),
}
OPTIONAL = """
op average(x[n,k], w[n]=1) -> y
y = mean[n](w[n]*logsumexp[k](x[n,k]))/sum[n](w[n])
"""


@pytest.mark.parametrize("kind", SHARING)
def test_a_gradient_that_is_formed_is_multiplied_alone(kind):
    inputs, body, shapes = SHARING[kind]
    op = parse(f"op f({inputs}) -> y\ny = {body}")
    agrees(op, lambda: [randn(shape) for shape in shapes], blocks=(3, 7))


@pytest.mark.parametrize("weight", [True, False])
def test_a_tensor_that_is_absent_has_no_gradient_though_others_need_what_it_is(weight):
    agrees(parse(OPTIONAL), lambda: [randn(7, 3), torch.rand(7) + 1 if weight else None])


def test_a_value_that_is_read_without_a_gradient_has_no_backward():
    text = "op f(x[n,d], c[k,d]) -> y; i[n] = argmin[k](sum[d]((x[n,d] - c[k,d])**2)); "
    op = parse(f"{text}y[n,d] = c[i[n],d]*x[n,d]**2")
    agrees(op, lambda: [randn(5, 7), randn(3, 7)], "d")


def test_a_value_that_one_gradient_forms_is_there_for_another():
    agrees(catalog.find("cross_entropy"), lambda: [randn(7, 3, 2), randint(3, (7, 2)), None])


def test_rows_of_one_element():
    agrees(parse("op f(x[n]) -> y\ny[n] = sin(x[n])"), lambda: [randn(7)], blocks=(None,))


@pytest.mark.long
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_the_catalog(reduction):
    op = catalog.find("linear_cross_entropy")
    for rows in (7, 1, 0):
        agrees(op, classified(rows), reduction=reduction)
    agrees(op, classified(7, bias=False, weight=False), reduction=reduction)
    agrees(op, classified(7, weight=False), reduction=reduction, label_smoothing=0.1)
    pairs = [randn(7, 3), randn(7, 3)]
    agrees(catalog.find("info_nce"), lambda: pairs, reduction=reduction)
    rows = [randn(7, 3), randint(3, (7,)), torch.rand(3)]
    agrees(catalog.find("nll_loss"), lambda: rows, reduction=reduction)
    grouped = [randn(7, 3, 2), randint(3, (7, 2)), torch.rand(3)]
    agrees(catalog.find("cross_entropy"), lambda: grouped, reduction=reduction)


def test_no_row_that_counts_gives_the_gradient_0():
    f = derive.load(catalog.find("linear_cross_entropy"), "n")
    x, w = randn(4, 3, requires_grad=True), randn(5, 3, requires_grad=True)
    f(x, w, torch.full((4,), -100), block=2).backward()
    assert not x.grad.any()
    assert not w.grad.any()


def test_cotangents_may_be_batched():
    f = derive.load(parse("op f(x[n,d], w[d]) -> t\nt = sum[n](tanh(sum[d](x[n,d]*w[d])))"), "n")
    x, w = randn(7, 3), randn(3, requires_grad=True)
    cotangents = randn(4)
    loss = f(x, w, block=2)
    (batched,) = torch.autograd.grad(loss, w, cotangents, is_grads_batched=True, retain_graph=True)
    (one,) = torch.autograd.grad(loss, w)
    assert torch.allclose(batched, cotangents[:, None] * one, atol=1e-6)


def test_no_tensor_has_more_rows_than_a_block():
    f = derive.load(catalog.find("linear_cross_entropy"), "n")
    x, w, t = randn(64, 3, requires_grad=True), randn(50, 3, requires_grad=True), randint(50, (64,))
    met = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            met.extend(
                y.numel() for y in torch.utils._pytree.tree_leaves(result) if hasattr(y, "numel")
            )
            return result

    with Sizes():
        f(x, w, t, block=4).backward()
    assert max(met) == 4 * 50 < 64 * 50


@pytest.mark.parametrize(
    ("block", "error", "said"),
    [
        (0, ValueError, "block must be positive, not 0"),
        (2.5, TypeError, "block must be an integer"),
    ],
)
def test_what_is_no_block(block, error, said):
    f = derive.load(parse(TWO), "n")
    with pytest.raises(error, match=said):
        f(randn(7, 3), randn(3), block=block)


def test_an_operation_with_a_block_of_its_own():
    with pytest.raises(derive.DeriveError, match="has an argument block"):
        derive.source(parse("op f(x[n], block[n]) -> y\ny = sum[n](x[n]*block[n])"), "n")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_is_compiled_and_transformed():
    f = derive.load(catalog.find("linear_cross_entropy"), "n")
    x, w, t = randn(6, 3), randn(5, 3), randint(5, (6,))
    want = torch.func.grad(lambda w: torch.nn.functional.cross_entropy(x @ w.mT, t))(w)
    for given in ({}, {"block": 2}):
        assert torch.allclose(
            torch.func.grad(lambda w, g=given: f(x, w, t, **g))(w), want, atol=1e-6
        )
        both = torch.func.vmap(torch.func.grad(lambda w, g=given: f(x, w, t, **g)))(
            w.expand(2, 5, 3)
        )
        assert torch.allclose(both, want.expand(2, 5, 3), atol=1e-6)
        made = w.clone().requires_grad_()
        compiled = torch.compile(lambda x, w, g=given: f(x, w, t, **g), fullgraph=True)
        compiled(x, made).backward()
        assert torch.allclose(made.grad, want, atol=1e-6)
    dynamic = torch.compile(lambda x, w, t: f(x, w, t), fullgraph=True, dynamic=True)
    for n in (4, 9):
        x, t = randn(n, 3), randint(5, (n,))
        assert torch.allclose(dynamic(x, w, t), f(x, w, t), atol=1e-6)

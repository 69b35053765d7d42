"""Tensors look otherwise from outside: groups as their axes, composites as one."""

import numpy as np
import pytest
from kit.lowered import assert_code

from derive import load, parse
from derive.check import oracle

torch = pytest.importorskip("torch")


def test_a_group_at_one_end_is_counted_from_the_other():
    assert_code(
        "op f(x[*p,k]) -> y\ny[*p] = sum[k](x[*p,k]**2)",
        ["y = x.square().sum(-1)"],
        ["grad_x = (2 * G).unsqueeze(-1) * x"],
    )


def test_an_axis_that_a_flag_keeps_has_size_1():
    op = parse("op f(x[*p,k]; keepdim=keep(k)) -> y\ny[*p] = sum[k](x[*p,k])")
    x = torch.ones(2, 3, 4)
    assert load(op)(x).shape == (2, 3)
    assert load(op)(x, keepdim=True).shape == (2, 3, 1)


def test_a_composite_axis_is_one_axis_outside():
    f = load(parse("op f(x[n,t,d]) -> y\ny[n,(t d)] = 2*x[n,t,d]"))
    x = torch.rand(2, 3, 5, dtype=torch.float64, requires_grad=True)
    y = f(x)
    assert torch.equal(y, 2 * x.detach().reshape(2, 15))
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((2, 3, 5), 2.0).double())


TEXT = "op f(x[n,(t d)], w[d]; size(t)=2) -> y\ny[n,t] = sum[d](x[n,(t d)]*w[d])"


def test_a_tensor_is_taken_apart_where_it_enters():
    assert_code(
        TEXT,
        ["y = x.unflatten(1, (2, w.shape[0])) @ w"],
        [
            "grad_x = (w * G.unsqueeze(2)).flatten(1, 2)",
            "grad_w = (G.unsqueeze(2) * x.unflatten(1, (2, w_shape[0]))).sum((0, 1))",
        ],
    )


def test_values_and_gradients_are_those_of_the_loops():
    op = parse(TEXT)
    rng = np.random.default_rng(0)
    tensors = {"x": rng.uniform(size=(3, 10)), "w": rng.uniform(size=5)}
    leaves = [torch.tensor(a, requires_grad=True) for a in tensors.values()]
    y = load(op)(*leaves)
    np.testing.assert_allclose(y.detach(), oracle.outputs(op, tensors, {})["y"], rtol=1e-12)
    G = rng.uniform(size=(3, 2))
    y.backward(torch.tensor(G))
    for name, leaf in zip(tensors, leaves, strict=True):
        want = oracle.gradient(op, tensors, {"y": G}, {}, name)
        np.testing.assert_allclose(leaf.grad, want, rtol=1e-6)

"""Cases of a short axis, one value for each position, are one stack."""

import numpy as np
import pytest
import torch
from kit.lines import made, run
from kit.lowered import assert_right
from kit.texts import source

from derive import load, parse


def test_a_case_that_reads_its_axis_needs_the_position_to_be_on_it():
    """grad_v = .. - delta(k, 8)*f/v[k]**2: v may have no element 8, where e has one."""
    text = (
        "op f(A[p,k], v[k]) -> y\n"
        "e[p,x,k] = concat[x](1/v[x], v[x])*A[p,k]\n"
        "y[p] = tanh(e[p,3,0] + amin[k](e[p,8,k]))"
    )
    for size in (5, 9):
        values = np.random.default_rng(2)
        shapes = {"A": (3, size), "v": (size,)}
        assert_right(text, **{name: values.uniform(0.5, 1.5, of) for name, of in shapes.items()})


ELEMENTS = {
    "op f(c[n,i,j]) -> y\ny[n] = c[n,0,0]*c[n,1,1] - c[n,0,1]*c[n,1,0]": ["rt.stack(", "pad("],
    "op f(c[n,i,j]; size(i)=3, size(j)=4) -> y\ny[n] = c[n,0,0]*c[n,1,1] - c[n,0,1]*c[n,1,0]": [
        "rt.stack(",
        "(0, 2, 0, 1)",
    ],
    "op f(c[i,n,j]) -> y\ny[n] = c[0,n,1]*sin(c[1,n,1])": ["rt.stack(", "pad("],
    "op f(c[n,i]) -> y\ny[n] = exp(c[n,0])*c[n,2]": ["rt.stack(", "pad("],
    "op f(c[n,i]) -> y\ny[n] = exp(c[n,0])*c[n,2] + c[n,0]**2": ["rt.stack(", "pad("],
    "op f(c[n,*g,i]) -> y\ny[n,*g] = exp(c[n,*g,0])*c[n,*g,1]": ["rt.stack(", "pad("],
    "op f(c[i,*g,n]) -> y\ny[n,*g] = exp(c[0,*g,n])*c[1,*g,n]": None,
    "op f(c[n,i,j]) -> y\ny[n] = exp(c[n,1,2])": ["pad("],
    "op f(c[i,*g,n,j]) -> y\ny[n,*g] = exp(c[1,*g,n,2])": ["pad("],
    "op f(c[i,j,*g]) -> y\ny[*g] = exp(c[1,2,*g])": None,
    "op f(c[i,n,*g,j]) -> y\ny[n,*g] = exp(c[0,n,*g,1])*c[1,n,*g,0]": None,
    "op f(c[n,i,j]; p=1) -> y\ny[n] = exp(c[n,p,2])": ["torch.full("],
    "op f(c[i,j], z[n]) -> y\ny[n] = c[0,0]*z[n] + c[1,1]*z[n]**2": ["rt.stack(", "pad("],
    "op f(c[n,i,j]; size(i)=3, size(j)=3, size(k)=3) -> y\n"
    "y[n] = sum[k](c[n,k,k]) + c[n,0,2]**2": None,
    "op f(c[i,j]) -> y\ny = exp(c[0,0])*c[1,2]": ["rt.stack(", "pad("],
}


@pytest.mark.parametrize("text", ELEMENTS)
def test_gradients_of_elements_are_stacked_without_a_copy_from_the_host(text):
    code = source(made(text))
    backward = code[code.index("def backward(") :]
    assert "torch.tensor(" not in backward
    assert all(call in backward for call in ELEMENTS[text] or ())
    sizes = {"n": 5, "i": 3, "j": 3 if "size(j)=3" in text else 4}
    for rank in (0, 1, 2) if "*g" in text else (1,):
        axes = parse(text).inputs
        shapes = {
            t.name: [
                s for a in t.axes for s in ([2, 6][:rank] if a.extent == "g" else [sizes[a.extent]])
            ]
            for t in axes
        }
        rng = np.random.default_rng(rank)
        run(text, {name: rng.uniform(0.5, 1.5, shape) for name, shape in shapes.items()})


def test_elements_far_from_each_other_are_placed_one_by_one():
    text = "op f(c[n,i]) -> y\ny[n] = exp(c[n,0])*c[n,40]"
    assert "rt.stack(" not in source(made(text))
    run(text, {"c": np.random.default_rng(0).uniform(0.5, 1.5, (3, 50))})


def test_many_stacked_values_are_those_of_few():
    """From 4096 elements on they are copied into place."""
    text = "op f(c[n,i]) -> y\ny[n] = c[n,0]*sin(c[n,1])"
    run(text, {"c": np.random.default_rng(0).uniform(0.5, 1.5, (5000, 2))[:2]})
    f = load(parse(text))
    c = torch.randn(5000, 2, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(f(c).sum(), c)
    (wanted,) = torch.autograd.grad((c[:, 0] * c[:, 1].sin()).sum(), c)
    torch.testing.assert_close(found, wanted)


def test_stacked_integers_stay_integers():
    """A float32 holds no position above 2^24."""
    text = (
        "op f(a[n], b[m]; size(k)=2) -> y\n"
        "index[k,n] = where(k == 0, n + size(n), n)\ny[k,n] = a[n]*b[index[k,n]]"
    )
    assert "torch.stack((positions_of_a + a.shape[0], positions_of_a), 0)" in source(made(text))
    assert ".to(torch.int64)" not in source(made(text))
    rng = np.random.default_rng(0)
    run(text, {"a": rng.uniform(0.5, 1.5, 3), "b": rng.uniform(0.5, 1.5, 7)})


def test_integers_stacked_with_floats_are_floats():
    text = "op f(a[n]; size(k)=2) -> y\ny[k,n] = where(k == 0, n + 1, a[n])*a[n]"
    run(text, {"a": np.random.default_rng(0).uniform(0.5, 1.5, 3)})

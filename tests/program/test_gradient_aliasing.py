"""Gradients that are kept share no memory: of views of one all but one are copies."""

from __future__ import annotations

import pytest
import torch

from derive import catalog, load, parse, source
from derive.program.cse import Line
from derive.program.gradient_aliasing import gradients_apart
from derive.program.program import BackwardLine, Program
from derive.program.torch_ir import Attribute, Code, Literal, MethodCall, Name

SHARING = {
    "x[n,i,j], z[n,(i j)]": ("y[n,(i j)] = x[n,i,j]+z[n,(i j)]", [(2, 3, 5), (2, 15)]),
    "w[i,j], z[n,(i j)], x[n,i,j]": (
        "y[n,(i j)] = x[n,i,j]+z[n,(i j)]+tanh(w[i,j])",
        [(3, 5), (2, 15), (2, 3, 5)],
    ),
    "x[n,(h d)], r[n,h,d], s[(n h),d]": (
        "y[n,h,d] = x[n,(h d)]+r[n,h,d]+s[(n h),d]",
        [(2, 15), (2, 3, 5), (6, 5)],
    ),
    "a[n,c], b[c,n], e[n,c]=0": ("y[n] = sum[c](e[n,c]+a[n,c]+b[c,n])", [(2, 1), (1, 2), (2, 1)]),
}


def storage(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


@pytest.mark.parametrize("inputs", SHARING)
@pytest.mark.parametrize("blocks", [None, "n"])
def test_gradients_that_are_kept_share_no_memory(inputs, blocks):
    equation, shapes = SHARING[inputs]
    if blocks is not None and "(n h)" in inputs:
        pytest.skip("n is a part of an axis")
    f = load(parse(f"op f({inputs}) -> y\n{equation}"), blocks=blocks)
    tensors = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    (f(*tensors) ** 2).sum().backward()
    assert len({storage(x.grad) for x in tensors}) == len(tensors)
    assert torch.autograd.gradcheck(f, tensors, check_batched_grad=blocks is None)
    assert torch.autograd.gradgradcheck(f, tensors)


def test_one_gradient_that_is_a_view_is_no_copy():
    inputs, (equation, shapes) = next(iter(SHARING.items()))
    f = load(parse(f"op f({inputs}) -> y\n{equation}"))
    for wanted in (0, 1):
        tensors = [torch.randn(s, requires_grad=n == wanted) for n, s in enumerate(shapes)]
        y = f(*tensors)
        G = torch.randn_like(y)
        (gradient,) = torch.autograd.grad(y, tensors[wanted], G)
        assert storage(gradient) == storage(G)


@pytest.mark.parametrize("name", ["concat", "stack", "linear"])
def test_where_no_two_are_views_of_one_memory_nothing_is_copied(name):
    assert "grad_" in source(catalog.find(name))
    assert ".clone()" not in source(catalog.find(name))


def narrow(start: str, length: str) -> Code:
    return MethodCall(Name("G"), "narrow", tuple(map(Literal, ("0", start, length))))


@pytest.mark.parametrize(
    ("one", "two", "copied"),
    [
        (narrow("0", "2"), narrow("2", "3"), False),
        (narrow("2", "3"), narrow("0", "2"), False),
        (narrow("0", "3"), narrow("2", "3"), True),
        (narrow("0", "n"), narrow("m", "3"), True),
        (Attribute(Name("G"), "mT"), Name("G"), True),
        (Name("G"), Name("grad_x"), False),
    ],
)
def test_parts_beside_each_other_and_a_tensor_itself_are_no_copies(one, two, copied):
    lines = [
        BackwardLine(Line("grad_x", one), ("x",)),
        BackwardLine(Line("grad_z", two), ("z",)),
    ]
    program = Program(
        inputs=("x", "z"),
        parameters=(),
        outputs=("y",),
        forward=(),
        differentiable=("x", "z"),
        cotangents=(("y", "G"),),
        saved=(),
        kept_parameters=(),
        kept_shapes=(),
        backward=tuple(lines),
        gradients={"x": "grad_x", "z": "grad_z"},
    )
    assert len(gradients_apart(program, lines)) == 2 + copied


def test_one_tensor_is_not_the_gradient_of_two_inputs():
    f = load(parse("op f(a[n,c], b[c], d[c]) -> y\ny[n,c] = tanh(a[n,c] + b[c] + d[c])"))
    tensors = [torch.randn(s, requires_grad=True) for s in ((2, 3), (3,), (3,))]
    _, one, other = torch.autograd.grad(f(*tensors).sum(), tensors)
    assert torch.equal(one, other) and storage(one) != storage(other)
    one.zero_()
    assert other.any()

"""Masks that follow data select without branches, whatever is selected."""

import warnings

import pytest
import torch
from kit import texts
from kit.each import each_row
from kit.lines import made
from kit.lowered import assert_code, assert_right
from torch.autograd import gradcheck, gradgradcheck

from derive import load, parse

INF, NAN = torch.inf, torch.nan
HEAD = "op f(x[i], z[i]; t=0.5) -> y\n"
LEVELS = {
    "y[i] = where(x[i] <= t, 0, z[i])": (
        "torch.ops.aten.threshold_backward(z, x, t)",
        lambda x, z: ~(x <= 0.5),
    ),
    "y[i] = where(x[i] >= 2*t, 0, z[i])": (
        "torch.ops.aten.threshold_backward(z, -x, -(2 * t))",
        lambda x, z: ~(x >= 1),
    ),
    "y[i] = where(abs(x[i]) <= t, 0, z[i])": (
        "torch.ops.aten.threshold_backward(z, x.abs(), t)",
        lambda x, z: ~(x.abs() <= 0.5),
    ),
    "y[i] = where(x[i] <= -t, 0, where(x[i] >= 2*t, 0, z[i]))": (
        "torch.ops.aten.hardtanh_backward(z, x, -t, 2 * t)",
        lambda x, z: ~((x <= -0.5) | (x >= 1)),
    ),
    # x > t does not hold for a nan; two tensors are not a tensor and a number.
    "y[i] = where(x[i] > t, z[i], 0)": ("rt.where(x > t, z, 0)", lambda x, z: x > 0.5),
    "y[i] = where(x[i] <= 2*t*z[i], 0, z[i])": ("", lambda x, z: ~(x <= z)),
}


@pytest.mark.parametrize("line", LEVELS)
def test_above_a_number(line):
    code, _ = LEVELS[line]
    if code:
        assert_code(HEAD + line, [f"y = {code}"])
    assert_right(HEAD + line)


@pytest.mark.parametrize(("condition", "slow"), [("i <= t", False), ("i > t or m[i]", True)])
def test_the_branches_of_positions_are_foreseen_and_those_of_what_is_given_are_not(condition, slow):
    text = f"op f(x[i], m[i]: bool; t=2) -> y, n\ny[i] = where({condition}, x[i], 0)\nn[i] = [m[i]]"
    assert ("rt.where(" in texts.source(made(text))) == slow


@each_row("line", LEVELS)
def test_a_nan_and_an_infinity_are_selected(line):
    x = torch.tensor([NAN, INF, -INF, 0.5, 0, 2, 0.7])
    z = torch.tensor([1.0, INF, NAN, NAN, INF, -INF, NAN], requires_grad=True)
    cotangent = torch.tensor([1.0, NAN, 3, INF, 5, 6, NAN])
    y = load(parse(HEAD + line))(x, z)
    y.backward(cotangent)
    taken = LEVELS[line][1](x, z)
    assert torch.equal(y.nan_to_num(7), torch.where(taken, z, 0).nan_to_num(7))
    assert torch.equal(z.grad.nan_to_num(7), torch.where(taken, cotangent, 0).nan_to_num(7))


def test_relu_has_the_gradient_of_torch_at_a_nan():
    for f in (load(parse("op f(x[i]) -> y\ny[i] = relu(x[i])")), torch.relu):
        x = torch.tensor([NAN, -1.0, 0, 2], requires_grad=True)
        f(x).backward(torch.tensor([3.0, 4, 5, 6]))
        assert x.grad.tolist() == [3, 0, 0, 6]


SIZE = 4099
VALUES = [NAN, INF, -INF, 0.0, 1.5, -2.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_it_is_what_torch_has(dtype):
    where = texts.rt.where
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(SIZE, generator=generator) > 0.5
    x = torch.tensor(VALUES, dtype=dtype)[torch.randint(6, (SIZE,), generator=generator)]
    y = x.flip(0)
    for pair in ((x, y), (x, 0), (x, 1), (x, -INF), (0.25, y), (NAN, y), (x[:1], y), (x, y[0])):
        found, wanted = where(mask, *pair), torch.where(mask, *pair)
        assert found.dtype is wanted.dtype
        assert torch.equal(found.nan_to_num(7.0), wanted.nan_to_num(7.0))
    wide = torch.stack((x, y))
    assert torch.equal(where(mask, wide, 0).isnan(), torch.where(mask, wide, 0).isnan())
    columns = torch.rand(SIZE, 1, generator=generator) > 0.5
    found = where(columns, x[:3], 1)
    assert torch.equal(found.isnan(), torch.where(columns, x[:3], 1).isnan())


def test_it_is_differentiated_as_torch_does():
    where = texts.rt.where
    x = torch.randn(SIZE, dtype=torch.float64, requires_grad=True)
    y = torch.randn(SIZE, dtype=torch.float64, requires_grad=True)

    def results(choose):
        def f(x, y):
            return choose(x.detach() > 0, x.square() * y, 3 * y)

        def loss(x, y):
            return (f(x, y) * torch.arange(SIZE)).sum()

        yield from torch.func.grad(loss, (0, 1))(x, y)
        yield from torch.func.jvp(f, (x, y), (y, x))
        second = torch.func.grad(lambda x, y: torch.func.grad(loss)(x, y).square().sum(), (0, 1))
        yield from second(x, y)
        stacked = torch.stack((x, 2 * x, -x))
        yield torch.func.vmap(f, (0, None))(stacked, y)
        yield from torch.func.vmap(torch.func.grad(loss, (0, 1)), (0, None))(stacked, y)
        both = torch.eye(3, SIZE, dtype=torch.float64)
        yield from torch.autograd.grad(f(x, y), (x, y), both, is_grads_batched=True)

    torch.testing.assert_close([*results(where)], [*results(torch.where)])


def test_levels_are_differentiated_twice():
    f = load(parse(HEAD + "y[i] = where(abs(x[i]) <= t, 0, sin(x[i])*z[i]) + relu(z[i])**3*x[i]"))
    x = torch.tensor([0.1, -0.7, 0.9, -0.2], dtype=torch.float64, requires_grad=True)
    z = torch.tensor([1.0, 2.0, -0.5, 0.3], dtype=torch.float64, requires_grad=True)
    options = {"check_batched_grad": True}
    assert gradcheck(f, (x, z), check_forward_ad=True, **options)
    assert gradgradcheck(f, (x, z), check_fwd_over_rev=True, **options)


@pytest.mark.long
def test_compiled_code_has_a_choice_that_is_fused():
    f = load(parse(HEAD + "y[i] = where(x[i] > t, x[i], z[i])"))
    x, z = torch.randn(SIZE, requires_grad=True), torch.randn(SIZE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, z), f(x, z))

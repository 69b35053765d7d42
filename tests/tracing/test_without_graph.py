"""Views and writes under torch.no_grad(): other values, and the gradient of what was there."""

import pytest
import torch
from kit.reads import assert_read

import derive
from derive import DeriveError


def element(x, m):
    y = x * 2
    with torch.no_grad():
        y[:, 1] = m
    return y * y


def scaled(x, m):
    y = x * 2
    with torch.no_grad():
        y[:, 1:].mul_(3.0)
    return y**2 * m[:, None]


def halves(x, m):
    y = x * m[:, None]
    with torch.no_grad():
        a, b = y.chunk(2, -1)
        a.mul_(b)
    return y**2


def later(x, m):
    """A view that was there before has the new values, and its gradient."""
    y = x * 2
    flat, column = y.view(-1), y[:, 0]
    with torch.no_grad():
        y[:, 0].add_(m)
    return flat * flat + 1, column * m


def moving_average(x, m):
    c = x.tanh()
    c = c.clone()
    with torch.no_grad():
        c[1:].mul_(0.9).add_(x[:-1], alpha=0.1)
    return ((x - c) ** 2).mean() * m


def buffer(x, m):
    held = torch.zeros(x.shape, dtype=x.dtype)
    with torch.no_grad():
        held[:, 1:] = x[:, 1:]
    return x * held * m[:, None]


def shares(x, m):
    """What is made without a graph has no gradient to keep."""
    with torch.no_grad():
        q = torch.exp(x)
        q /= q.sum()
    return (x * q).sum() * m


def view(x, m):
    """A view has no graph, whatever reads it."""
    with torch.no_grad():
        turned, column = x.T, x[:, 0]
    return x @ turned + column * m


@pytest.mark.parametrize(
    "function", [element, scaled, halves, later, moving_average, buffer, shares, view]
)
def test_what_is_made_without_a_graph(function):
    assert_read(function, [(3, 4), (3,)], [(5, 6), (5,)] if function is not buffer else ())


def value_of(x):
    inner = 0.8 * x * (1 + 0.045 * x * x)
    return 0.5 * x * (1 + torch.tanh(inner))


def slope_of(g, x):
    t = torch.tanh(0.8 * x * (1 + 0.045 * x * x))
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (0.8 + 0.108 * x * x))


class Gate(torch.autograd.Function):
    """Both directions are functions of several steps."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return value_of(x)

    @staticmethod
    def backward(ctx, g):
        return slope_of(g, *ctx.saved_tensors)


class Doubled(Gate):
    @staticmethod
    def backward(ctx, g):
        return slope_of(2 * g, *ctx.saved_tensors)


def without_graph(x):
    with torch.no_grad():
        y = Gate.apply(x)
    return x * y


def test_the_forward_of_a_function_is_read_as_differentiable():
    assert "detach" not in str(assert_read(lambda x: Gate.apply(x) * 2, [(3, 4)]))
    assert "detach" in str(assert_read(without_graph, [(3, 4)]))


def test_a_function_whose_gradient_is_another_is_refused():
    with pytest.raises(DeriveError, match="the spec differs from the function: gradient"):
        derive.read_torch(lambda x: Doubled.apply(x), torch.ones(3, 4))


def function_of(forward, backward):
    """A Function of one tensor, applied."""
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Custom", (torch.autograd.Function,), body).apply


def grown(ctx, x):
    ctx.save_for_backward(y := x.exp())
    return y * 2


@pytest.mark.parametrize(
    ("backward", "detached"),
    [
        (lambda ctx, G: G * 2 * ctx.saved_tensors[0], False),
        (lambda ctx, G: None, True),
        (lambda ctx, G: torch.zeros_like(G), True),
    ],
    ids=["gradient", "none", "zeros"],
)
def test_a_function_passes_on_the_gradient_that_its_backward_has(backward, detached):
    custom = function_of(grown, backward)
    read = assert_read(lambda x, w: (custom(x) * w).sum(-1) + x.sum(-1), [(3, 4), (3, 4)], [])
    assert ("detach" in str(read)) == detached


def test_a_gradient_that_no_reading_has_is_refused():
    custom = function_of(grown, lambda ctx, G: G)
    with pytest.raises(derive.DeriveError, match="gradient of input 1"):
        derive.read_torch(lambda x, w: custom(x) * w, torch.rand(3, 4), torch.rand(3, 4))


def slopes(x, w):
    return torch.func.grad(lambda x: (2 * torch.tanh(x @ w)).sum() / x.numel())(x)


def moved(x, v):
    return torch.func.jvp(lambda x: (0.5 * x).sin(), (x,), (v,))[1]


def force(x, w):
    x = x.clone().requires_grad_()
    y = torch.tanh(x @ w)
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def held_point(x, w):
    x = x.detach().requires_grad_()
    y = torch.nn.functional.silu(x @ w)
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def penalized(x, w):
    slope, value = torch.func.grad_and_value(lambda x: ((x @ w).sigmoid() ** 2).sum())(x)
    return value + (slope * slope).sum()


def beside_a_constant(x, w):
    return torch.func.grad(lambda x: (x.tanh() * (x @ w @ w.mT).detach()).sum())(x)


@pytest.mark.parametrize("function", [slopes, force, held_point, penalized, beside_a_constant])
def test_a_gradient_inside_is_read(function):
    """What autograd keeps for it is no constant, and what the function detaches is one."""
    op = str(assert_read(function, [(3, 4), (4, 5)]))
    assert ("detach" in op) is (function in (held_point, beside_a_constant))


def test_a_tangent_inside_is_read():
    assert_read(moved, [(3, 4), (3, 4)])

"""Views and writes under torch.no_grad(): other values, and the gradient of what was there."""

import pytest
import torch
from kit.reads import assert_read


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


def view(x, m):
    """A view has no graph, whatever reads it."""
    with torch.no_grad():
        turned, column = x.T, x[:, 0]
    return x @ turned + column * m


@pytest.mark.parametrize("function", [element, scaled, halves, later, moving_average, buffer, view])
def test_what_is_made_without_a_graph(function):
    assert_read(function, [(3, 4), (3,)], [(5, 6), (5,)] if function is not buffer else ())

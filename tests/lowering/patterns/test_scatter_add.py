"""Sums by place are added into what stands beside them, and what is no place is left out."""

import numpy as np
import pytest
import torch
from kit.lines import defined
from kit.lowered import assert_right
from kit.recognised import named

from derive import load, parse, source
from derive.check.checks import load_source

ROWS = "op f(x[v,d], y[k,d], s[k]: int; alpha=1) -> z\n"
ONE = f"{ROWS}z[v,d] = x[v,d] + alpha*sum[k | s[k] == v](y[k,d])"
EACH = "op f(x[n,v], y[n,k], s[n,k]: int) -> z\nz[n,v] = x[n,v]**2 - 3*sum[k | s[n,k] == v](y[n,k])"


def test_a_factor_that_widens_multiplies_what_is_added():
    """Else a tensor of all axes would be added at the places."""
    text = "op f(x[v,d], w[d], s[k]: int) -> y\ny[k] = sum[d](x[s[k],d]*w[d])"
    backward = source(parse(text)).partition("def backward")[2]
    assert "grad_x = w * G.new_zeros((ctx.x_shape[0],)).index_add(0, s, G)" in backward, backward
    assert_right(text, s=np.array([2, 0, 1, 2]))


@pytest.mark.parametrize("outside", [[], [-1], [5], [-3, 9]], ids=str)
@pytest.mark.parametrize("text", [ONE, EACH], ids=named)
@pytest.mark.parametrize("style", ["production", "plain"])
def test_what_is_no_place_is_left_out(text, outside, style):
    op = parse(text)
    f = load_source(op, source(op, style=style))
    s = torch.tensor([4, 0, 0, *outside])
    x, y = torch.rand(5, 2, dtype=torch.float64), torch.rand(len(s), 2, dtype=torch.float64)
    if text is EACH:
        x, y, s = x.mT.contiguous(), y.mT.contiguous(), s.expand(2, -1)

    def ours(x, y):
        return f(x, y, s)

    def plain(x, y):
        return defined(op)(x, y, s)

    given = [t.requires_grad_() for t in (x, y)]
    both = ((g(*given), *torch.autograd.grad(g(*given).exp().sum(), given)) for g in (ours, plain))
    torch.testing.assert_close(*both)
    torch.autograd.gradgradcheck(ours, given)
    several = torch.stack([s, s.flip(-1)])
    mapped = torch.vmap(lambda s: f(*given, s))(several)
    torch.testing.assert_close(mapped[0], plain(*given))


def test_an_axis_without_places_takes_nothing():
    f = load(parse(ONE))
    x, y = (torch.rand(n, 3, requires_grad=True) for n in (0, 2))
    z = f(x, y, torch.tensor([0, -1]))
    assert z.shape == (0, 3)
    assert torch.autograd.grad(z.sum(), y)[0].tolist() == torch.zeros(2, 3).tolist()

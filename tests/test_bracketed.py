"""A bracket is left out beside a name that is 0 where it does not hold."""

from __future__ import annotations

import pytest
import torch

from derive import derivation, load, parse

INNER = "[i >= 1]*[i + 1 < size(i)]"


def gradient(text, name="u"):
    """The right side of a gradient."""
    return str(derivation(parse(text)).gradients[name]).partition(" = ")[2]


def test_the_adjoint_of_a_stencil_is_the_stencil():
    text = f"op f(u[i]; h=0.5) -> L\nr[i] = {INNER}*(u[i+1] - 2*u[i] + u[i-1])/h**2\n"
    text += "L = sum[i](r[i]**2)/2"
    expected = "G·([1 + i < size(i)]·r[1 + i] + [i ≥ 1]·r[i − 1] − 2·r[i])/h²"
    assert gradient(text) == expected
    for n in (1, 2, 3, 6):
        u = torch.linspace(-1, 2, n, dtype=torch.float64).square().requires_grad_()
        r = (u[2:] - 2 * u[1:-1] + u[:-2]) / 0.25
        (wanted,) = torch.autograd.grad((r**2).sum() / 2 + 0 * u.sum(), u)
        (found,) = torch.autograd.grad(load(parse(text))(u), u)
        assert torch.allclose(found, wanted)


LEFT_OUT = {
    "a name": "r[i] = [i >= 1]*u[i]**2; y[i] = r[i]**2/2",
    "through a name": "r[i] = [i >= 1]*u[i]; s[i] = u[i]*r[i]; y[i] = s[i]**2",
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_it_is_left_out(case):
    assert "[" not in gradient(f"op f(u[i]) -> y\n{LEFT_OUT[case]}").replace("[i]", "")


KEPT = {
    "nothing beside it": "r[i] = [i >= 1]*u[i]**2; y[i] = 3*r[i]",
    "a name with another bracket": (
        "r[i] = [i >= 2]*u[i]; y[i] = [i >= 1]*r[i]*u[i] + [i >= 1]*u[i]"
    ),
    "what may be infinite": "r[i] = [i >= 1]*u[i]; y[i] = [i >= 1]*r[i]*log(u[i])",
    "a bracket of a summed index": ("r[i] = sum[j]([j >= 1]*u[j])*u[i]; y[i] = [i >= 1]*r[i]*u[i]"),
}


@pytest.mark.parametrize("case", KEPT)
def test_it_is_kept(case):
    assert "i ≥ 1]" in gradient(f"op f(u[i]) -> y\n{KEPT[case]}")

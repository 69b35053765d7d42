"""A number times a function is told from its definition, and the number from what may be 0."""

from __future__ import annotations

import pytest
import torch

from derive import load, parse
from derive.calculus.build_lets import flatten_operation
from derive.calculus.lets import scaled_call

BODIES = {
    "tanh(x[n])": "tanh",
    "3*tanh(x[n])": "tanh",
    "pi*size(n)*exp(x[n])": "exp",
    "c*tanh(x[n]/c)": "tanh",
    "tanh(x[n]/c)/c": "tanh",
    "tanh(x[n])/size(m)": "tanh",
    # c and the size of another axis may be 0, z is a tensor, the others are no such product.
    "c*tanh(x[n])": None,
    "size(m)*tanh(x[n])": None,
    "z[n]*tanh(x[n])": None,
    "tanh(x[n]) + 1": None,
    "tanh(x[n])*sin(x[n])": None,
    "sum[n](tanh(x[n]))*z[n]": None,
}


@pytest.mark.parametrize("body", BODIES)
def test_the_function_of_a_multiple(body):
    parameters = "; c=2.0" if "c" in body.replace("exp", "") else ""
    op = parse(f"op f(x[n], z[n], w[m]{parameters}) -> y\ny[n] = {body} + 0*z[n]*x[n]*sum[m](w[m])")
    found = scaled_call(flatten_operation(op)["y"].body)
    assert (None if found is None else found[0].function) == BODIES[body]


def test_a_multiple_of_no_elements_has_a_gradient_of_zeros():
    f = load(parse("op f(x[n], w[m]) -> y, z\ny[n] = size(m)*tanh(x[n]); z = sum[m](w[m])"))
    for count in (0, 2):
        x = torch.tensor([0.3, -1.2, 2.0], requires_grad=True)
        w = torch.ones(count, requires_grad=True)
        y, _ = f(x, w)
        (ours,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(ours, count * (1 - x.detach().tanh().square()))

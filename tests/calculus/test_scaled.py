"""A number times a function is told from its definition, and the number from what may be 0."""

from __future__ import annotations

import pytest

from derive import parse
from derive.calculus.equations import flatten_operation
from derive.calculus.scaled import scaled_call

BODIES = {
    "tanh(x[n])": "tanh",
    "3*tanh(x[n])": "tanh",
    "pi*size(n)*exp(x[n])": "exp",
    "c*tanh(x[n]/c)": "tanh",
    "tanh(x[n]/c)/c": "tanh",
    # c may be 0, z is a tensor, and the others are no product of one function.
    "c*tanh(x[n])": None,
    "z[n]*tanh(x[n])": None,
    "tanh(x[n]) + 1": None,
    "tanh(x[n])*sin(x[n])": None,
    "sum[n](tanh(x[n]))*z[n]": None,
}


@pytest.mark.parametrize("body", BODIES)
def test_the_function_of_a_multiple(body):
    parameters = "; c=2.0" if "c" in body.replace("exp", "") else ""
    op = parse(f"op f(x[n], z[n]{parameters}) -> y\ny[n] = {body} + 0*z[n]*x[n]")
    found = scaled_call(flatten_operation(op)["y"].body)
    assert (None if found is None else found[0].function) == BODIES[body]

"""Code followed with shapes in place of tensors: the shape of every name is the tensor's."""

import pytest

from derive import derivation, parse
from derive.cost.costs import costs_of
from derive.pipeline import program_of

KEPT = {
    "op f(x[n,k], w[k,m]) -> y\ny[n,m] = tanh(sum[k](x[n,k]*w[k,m]))": {"x": 6, "w": 10, "y": 15},
    "op f(x[n,u], w[k]) -> y\ny[n,t] = sum[k](x[n,t+k]*w[k])": {"x": 21, "w": 2},
    "op f(x[n,(t d)]; size(t)=4) -> y\ny[n,t] = sum[d](x[n,(t d)]**2)": {"x": 24},
}
SIZES = {"n": 3, "k": 2, "m": 5, "u": 7, "d": 2, "t": 6}


@pytest.mark.parametrize("text", KEPT)
def test_what_is_kept_has_the_bytes_of_the_tensors(text):
    op = parse(text)
    cost = costs_of(op, program_of(op, None))
    assert {name: int(amount.at(SIZES)) for name, amount in cost.saved} == {
        name: 4 * elements for name, elements in KEPT[text].items()
    }


def test_a_line_that_is_a_view_takes_no_step():
    op = parse("op f(x[i,j]) -> y\ny[j,i] = x[i,j]")
    assert costs_of(op, program_of(op, None)).forward.passes == 0


COSTS = {
    "op f(x[i,j]) -> y\ny[i,j] = exp(x[i,j])": ("i·j", "i·j"),
    "op f(x[i,k], w[k,j]) -> y\ny[i,j] = sum[k](x[i,k]*w[k,j])": ("2·i·j·k", "4·i·j·k"),
    "op f(x[i,j]) -> y\ny[j,i] = x[i,j]": ("0", "0"),
    "op f(x[a,b]; k=size(u), l=size(v)) -> y\ny[i,j] = mean[u,v](x[i+u,j+v])": (
        "i·j·u·v",
        "i·j·u·v + i·j",
    ),
    "op f(x[i,j]) -> y\ny[i] = sum[j](x[i,j])": ("i·j", "0"),
}


@pytest.mark.parametrize("text", COSTS)
def test_flops(text):
    cost = derivation(parse(text)).cost
    assert (str(cost.forward.flops), str(cost.backward.flops)) == COSTS[text]


def test_a_view_is_no_pass():
    cost = derivation(parse("op f(x[i,j]) -> y\ny[j,i] = 2*x[i,j]")).cost
    assert cost.forward.passes == 1

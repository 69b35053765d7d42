"""Calls that torch computes slowly, or not at all, are replaced: the table, and what it is for."""

import os
import subprocess
import sys
import warnings

import pytest
import torch
from kit.each import each_row
from kit.torch_code import torch_code

from derive import load, parse
from derive.program.legalize import RULES
from derive.program.torch_ir import text

EXAMPLES = [(rule, before, after) for rule in RULES for before, after in rule.examples.items()]


@each_row("rule, before, after", EXAMPLES)
def test_the_examples_of_a_rule(rule, before, after):
    given = torch_code(before)
    assert text(given) == before
    made = rule(given)
    assert text(made) == after
    assert before != after or made is given


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
def test_any_axes_of_the_group(shape):
    f = load(parse("op f(x[n,c,*q], w[*q]) -> y\n"
                   "F[n,c,*q] = log_softmax[c](x[n,c,*q])\n"
                   "y = sum[n,c,*q](w[*q]*F[n,c,*q]*exp(2*F[n,c,*q]))"))  # fmt: skip
    x = torch.randn(3, 4, *shape, dtype=torch.float64, requires_grad=True)
    w = torch.randn(shape, dtype=torch.float64)
    plain = torch.log_softmax(x, 1)
    wanted = (w * plain * (2 * plain).exp()).sum()
    torch.testing.assert_close(f(x, w), wanted)
    pairs = zip(torch.autograd.grad(f(x, w), x), torch.autograd.grad(wanted, x), strict=True)
    for found, right in pairs:
        torch.testing.assert_close(found, right)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, w), wanted)


DISTRIBUTED = """
import os, torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh
from derive import load, parse
store = dist.HashStore()
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
f = load(parse("op f(x[i,j]) -> y\\ny[i] = sum[j | j <= i](x[i,j]*j)"))
x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
d = distribute_tensor(x.detach(), mesh, [Replicate()]).requires_grad_()
(found,) = torch.autograd.grad(f(d).sum(), d)
(wanted,) = torch.autograd.grad(f(x).sum(), x)
torch.testing.assert_close(found.full_tensor(), wanted)
print("right")
dist.destroy_process_group()
"""


def test_tensors_that_are_distributed_meet_no_plain_ones():
    command = [sys.executable, "-W", "ignore", "-c", DISTRIBUTED]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.stdout == "right\n", done.stderr[-2000:]


SPECS = (
    "op f(x[n,(t d)], W[d,e]; size(d)=3) -> y\ny[n,(t e)] = sum[d](x[n,(t d)]*W[d,e])",
    "op f(x[(a b),c]; size(b)=3) -> y\ny[a,(b c)] = x[(a b),c]**2",
)


@pytest.mark.parametrize("spec", SPECS)
def test_a_batch_of_cotangents(spec):
    f = load(parse(spec))
    inputs = [torch.randn(4, 6, dtype=torch.float64, requires_grad=True)]
    inputs = [inputs[0].reshape(6, 4).detach().requires_grad_()] if "(a b)" in spec else inputs
    if "W" in spec:
        inputs.append(torch.randn(3, 2, dtype=torch.float64, requires_grad=True))
    y = f(*inputs)
    many = torch.randn(5, *y.shape, dtype=torch.float64)
    found = torch.autograd.grad(y, inputs, many, is_grads_batched=True, retain_graph=True)
    for n, G in enumerate(many):
        for one, each in zip(
            torch.autograd.grad(y, inputs, G, retain_graph=True), found, strict=True
        ):
            torch.testing.assert_close(each[n], one)


def test_an_empty_axis_is_merged():
    f = load(parse("op f(x[(a b),c]; size(b)=3) -> y\ny[a,(b c)] = x[(a b),c]**2"))
    x = torch.randn(0, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(f(x).sum(), x)
    assert gradient.shape == (0, 4)

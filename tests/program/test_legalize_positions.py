"""Positions that are made of a tensor, where one is at hand."""

from __future__ import annotations

import os
import subprocess
import sys

from derive.program.legalize_positions import legalize_arange
from derive.program.torch_ir import Attribute, Binary, FunctionCall, Keyword, Name, literal, text

x = Name("x")
PLAIN = FunctionCall("torch.arange", (literal(3), Keyword("device", Attribute(x, "device"))))


def test_positions_are_of_the_kind_of_a_tensor():
    assert text(legalize_arange(Binary("<", PLAIN, x))) == "_positions(3, x) < x"
    other = FunctionCall("torch.arange", (literal(3),))
    assert legalize_arange(other) is other


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

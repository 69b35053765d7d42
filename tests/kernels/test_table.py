"""Each kernel against loops over its equation: a row is proved here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from derive.check import oracle
from derive.kernels.table import BACKWARD, FORWARD, KERNELS
from derive.program.code import Literal, Name, text
from derive.program.torch_ops import torch_op

EDGES = (-40.0, -6.0, -3.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 3.0, 6.0, 40.0)


def given(row, seed=0):
    """Tensors for the equation, of edge values and random ones, and its parameters."""
    op = row.operation
    random = np.random.default_rng(seed)
    sizes = {}
    tensors = {}
    for t in op.inputs:
        shape = tuple(sizes.setdefault(i.extent, 5 + 2 * len(sizes)) for i in t.axes)
        tensors[t.name] = random.normal(size=shape)
    return tensors, {p.name: p.default for p in op.parameters}


def called(row, tensors, parameters):
    """What the call of the row computes."""
    arguments = {name: Name(name) for name in tensors}
    arguments |= {name: Literal(repr(float(v))) for name, v in parameters.items()}
    arguments |= {i.name: Literal(str(n)) for n, i in enumerate(row.along)} if row.along else {}
    code = text(row.code(arguments))
    return eval(code, {"torch": torch, **{n: torch.as_tensor(t) for n, t in tensors.items()}})


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_is_the_equation(name):
    row = KERNELS[name]
    for seed in range(3):
        tensors, parameters = given(row, seed)
        (wanted,) = oracle.outputs(row.operation, tensors, parameters).values()
        found = called(row, tensors, parameters)
        torch.testing.assert_close(found, torch.as_tensor(wanted), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", [r.name for r in KERNELS.values() if not r.along])
def test_an_elementwise_kernel_is_the_equation_at_edges(name):
    row = KERNELS[name]
    _, parameters = given(row)
    for x in EDGES:
        tensors = {t.name: np.array(x) for t in row.operation.inputs}
        if row.cotangent:
            tensors[row.cotangent] = np.array(1.5)
        (wanted,) = oracle.outputs(row.operation, tensors, parameters).values()
        found = called(row, tensors, parameters)
        torch.testing.assert_close(found, torch.as_tensor(wanted), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", [r.name for r in BACKWARD if not r.along])
def test_a_cotangent_spreads_over_the_axes_of_the_others(name):
    row = KERNELS[name]
    _, parameters = given(row)
    tensors = {t.name: np.linspace(-2, 2, 15).reshape(3, 5) for t in row.operation.inputs}
    tensors[row.cotangent] = np.linspace(1, 2, 5)
    whole = tensors | {row.cotangent: np.broadcast_to(tensors[row.cotangent], (3, 5)).copy()}
    found, wanted = called(row, tensors, parameters), called(row, whole, parameters)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_what_a_row_calls_is_known_by_its_name():
    names = [row.name for row in (*FORWARD, *BACKWARD)]
    assert len(names) == len(set(names)) == len(KERNELS)
    for row in KERNELS.values():
        assert torch_op(row.code({})).flops is not None

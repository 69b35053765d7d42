"""The lines of a generated module, and a call of it."""

import ast
import warnings
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import torch
from kit.plain import plain_tree
from kit.slopes import along

from derive import load, parse
from derive.check import oracle, reference


def named(text):
    return text.partition("\n")[2].replace("\n", "; ")


def made(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse(text)


def defined(op, **parameters):
    """The equations as they stand: a function of the inputs that torch differentiates."""

    def f(*tensors):
        names = (t.name for t in op.inputs)
        made = reference.values(op, dict(zip(names, tensors, strict=True)), parameters)
        outputs = tuple(made[name] for name in op.outputs)
        return outputs if len(outputs) > 1 else outputs[0]

    return f


def lines(text, function):
    defined = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
    found = plain_tree(next(n for n in defined if n.name == function))
    returned = [f"y = {ast.unparse(s.value)}" for s in found.body if isinstance(s, ast.Return)]
    return [ast.unparse(s) for s in found.body] + returned


def run(text, tensors, fuses=False, **parameters):
    """Values and gradients of the code, and those of the loops."""
    op = made(text)
    f = load(op)
    with ExitStack() as stack:
        if fuses:
            shared, own = f.__globals__["rt"], lambda q, k, v, mask: q.shape[-1] == v.shape[-1]
            stack.enter_context(patch.object(shared, "_fuses", own))
        _run(op, f, tensors, parameters)


def _run(op, f, tensors, parameters):
    given = {n: torch.tensor(t, requires_grad=t.dtype == np.float64) for n, t in tensors.items()}
    y = f(*given.values(), **parameters)
    expected = oracle.outputs(op, tensors, parameters)
    G = {n: np.arange(1.0, v.size + 1).reshape(v.shape) for n, v in expected.items()}
    wanted = {n: t for n, t in given.items() if t.requires_grad}
    (name,) = G
    found = torch.autograd.grad(y, list(wanted.values()), torch.tensor(G[name]))
    np.testing.assert_allclose(y.detach().numpy(), expected[name], rtol=1e-12)
    for n, g in zip(wanted, found, strict=True):
        way, slope = along(op, tensors, G, parameters, n)
        size = max(1.0, float(np.abs(g.numpy()).sum()))
        assert g.shape == way.shape
        np.testing.assert_allclose((g.numpy() * way).sum(), slope, rtol=1e-6, atol=1e-8 * size)

"""Axes that flags keep: their places, whatever the order of an output's axes is."""

from itertools import product

import pytest
import torch

from derive.api import load
from derive.check import oracle
from derive.notation.operation import KeepDim
from derive.notation.specification import parse

CASES = {
    "in the input's order": ("op f(A[*p,k,*q]; dim=axis(k,1), a=keep(k)) -> y\n"
                             "y[*p,*q] = sum[k](A[*p,k,*q]**2)", (2, 3, 4)),
    "behind all that precedes it": ("op f(A[i,j,k]; a=keep(k)) -> y\n"
                                    "y[j,i] = sum[k](A[i,j,k]**2)", (2, 3, 4)),
    "behind a group that precedes it": ("op f(A[*p,i,k]; a=keep(k)) -> y\n"
                                        "y[i,*p] = sum[k](A[*p,i,k]**2)", (2, 3, 4, 5)),
    "before what follows it": ("op f(A[k,i,j]; a=keep(k)) -> y\n"
                               "y[j,i] = sum[k](A[k,i,j]**2)", (2, 3, 4)),
    "an output that another reads": (
        "op f(A[k,i]; a=keep(k)) -> y, z\ny[i] = sum[k](A[k,i]**2)\n"
        "z[i] = where(y[1] > 0, A[0,i]*y[1], y[i])", (2, 3)),
    "a part of a composite axis is not lost": (
        "op f(A[i,j]; a=keep(j)) -> y, z\ny[(i j)] = A[i,j]**2\nz[i] = sum[j](A[i,j])", (2, 3)),
    "two before a group": ("op f(A[i,k,*q]; a=keep(i), b=keep(k)) -> y\n"
                           "y[*q] = sum[i,k](A[i,k,*q]**2)", (2, 3, 4, 5)),
    "two behind a group": ("op f(A[*p,i,k]; a=keep(k), b=keep(i)) -> y\n"
                           "y[*p] = sum[i,k](A[*p,i,k]**2)", (2, 3, 4, 5)),
    "one on either side": ("op f(A[i,l,k]; a=keep(i), b=keep(k)) -> y\n"
                           "y[l] = sum[i,k](A[i,l,k]**2)", (2, 3, 4)),
    "two in one place of a composite": (
        "op f(A[i,(g d),k]; groups=size(g,2), a=keep(i), b=keep(k)) -> y\n"
        "y[g] = sum[i,k,d](A[i,(g d),k]**2)", (2, 6, 4)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_axis_is_kept_in_its_place(case):
    text, shape = CASES[case]
    op = parse(text)
    f = load(op)
    flags = [p.name for p in op.parameters if isinstance(p, KeepDim)]
    for values in product((False, True), repeat=len(flags)):
        given = dict(zip(flags, values, strict=True))
        A = torch.rand(shape, dtype=torch.float64, requires_grad=True)
        made = f(A, **given)
        made = made if isinstance(made, tuple) else (made,)
        expected = oracle.outputs(op, {"A": A.detach().numpy()}, given).values()
        for y, e in zip(made, expected, strict=True):
            torch.testing.assert_close(y.detach(), torch.from_numpy(e))
        assert torch.autograd.gradcheck(lambda A, given=given: f(A, **given), A)

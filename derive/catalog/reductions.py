"""Reductions over one axis, ``dim``, which ``keepdim`` keeps with size 1."""

from __future__ import annotations

from sympy import Eq, IndexedBase, Product, Sum, symbols

from derive.spec.heads import (
    ArgMax,
    ArgMin,
    LogSumExp,
    Mean,
    ReduceAmax,
    ReduceAmin,
    ReduceMax,
    ReduceMin,
    axis,
    group,
    keep,
)
from derive.spec.operation import Operation

p, q = group("p"), group("q")
k = symbols("k", integer=True)
A, F, values, indices = map(IndexedBase, ("A", "F", "values", "indices"))
PARAMETERS = {"dim": axis(k), "keepdim": keep(k)}

OPERATIONS = (
    Operation("sum", Eq(F[p, q], Sum(A[p, k, q], k)), parameters=PARAMETERS),
    Operation("mean", Eq(F[p, q], Mean(A[p, k, q], k)), parameters=PARAMETERS),
    Operation("prod", Eq(F[p, q], Product(A[p, k, q], k)), parameters=PARAMETERS),
    # The gradient goes to the first of equal values, as torch.max.
    Operation(
        "max",
        Eq(values[p, q], ReduceMax(A[p, k, q], k)),
        Eq(indices[p, q], ArgMax(A[p, k, q], k)),
        parameters=PARAMETERS,
        outputs=(values, indices),
    ),
    Operation(
        "min",
        Eq(values[p, q], ReduceMin(A[p, k, q], k)),
        Eq(indices[p, q], ArgMin(A[p, k, q], k)),
        parameters=PARAMETERS,
        outputs=(values, indices),
    ),
    # Equal values share the gradient evenly, as torch.amax.
    Operation("amax", Eq(F[p, q], ReduceAmax(A[p, k, q], k)), parameters=PARAMETERS),
    Operation("amin", Eq(F[p, q], ReduceAmin(A[p, k, q], k)), parameters=PARAMETERS),
    Operation("logsumexp", Eq(F[p, q], LogSumExp(A[p, k, q], k)), parameters=PARAMETERS),
)

"""Reductions over one axis, ``dim``, which ``keepdim`` keeps with size 1.

The cumulative ones reduce all that comes before, and keep the axis.
"""

from __future__ import annotations

from sympy import Abs, IndexedBase, Piecewise, Product, Sum, sqrt, symbols

from derive.notation.heads import (
    ArgMax,
    ArgMin,
    Eq,
    LogSumExp,
    Mean,
    ReduceAmax,
    ReduceAmin,
    ReduceMax,
    ReduceMin,
    axis,
    group,
    keep,
    size,
)
from derive.notation.specification import Operation

p, q = group("p"), group("q")
k, l = symbols("k l", integer=True)  # noqa: E741
correction, ord = symbols("correction ord")
A, F, values, indices = map(IndexedBase, ("A", "F", "values", "indices"))
mu, variance, deviation, total = map(IndexedBase, ("mu", "variance", "deviation", "total"))
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
    # Divided by the number of values less the correction.
    Operation(
        "var",
        Eq(mu[p, q], Mean(A[p, k, q], k)),
        Eq(variance[p, q], Sum((A[p, k, q] - mu[p, q]) ** 2, k) / (size(k) - correction)),
        parameters={"dim": axis(k), correction: 1, "keepdim": keep(k)},
    ),
    # Of equal values the gradient is 0, as torch.std.
    Operation(
        "std",
        Eq(mu[p, q], Mean(A[p, k, q], k)),
        Eq(variance[p, q], Sum((A[p, k, q] - mu[p, q]) ** 2, k) / (size(k) - correction)),
        Eq(deviation[p, q], Piecewise((0, Eq(variance[p, q], 0)), (sqrt(variance[p, q]), True))),
        parameters={"dim": axis(k), correction: 1, "keepdim": keep(k)},
    ),
    Operation(
        "var_mean",
        Eq(mu[p, q], Mean(A[p, k, q], k)),
        Eq(variance[p, q], Sum((A[p, k, q] - mu[p, q]) ** 2, k) / (size(k) - correction)),
        parameters={"dim": axis(k), correction: 1, "keepdim": keep(k)},
        outputs=(variance, mu),
    ),
    Operation("l1_norm", Eq(F[p, q], Sum(Abs(A[p, k, q]), k)), parameters=PARAMETERS),
    # Of 0 the gradient is 0, as torch.linalg.vector_norm.
    Operation(
        "l2_norm",
        Eq(total[p, q], Sum(A[p, k, q] ** 2, k)),
        Eq(F[p, q], Piecewise((0, Eq(total[p, q], 0)), (sqrt(total[p, q]), True))),
        parameters=PARAMETERS,
    ),
    # The norm of a finite order greater than 0, as torch.linalg.vector_norm.
    Operation(
        "vector_norm",
        Eq(total[p, q], Sum(Abs(A[p, k, q]) ** ord, k)),
        Eq(F[p, q], Piecewise((0, Eq(total[p, q], 0)), (total[p, q] ** (1 / ord), True))),
        parameters={ord: 2, "dim": axis(k), "keepdim": keep(k)},
    ),
    Operation(
        "cumsum",
        Eq(F[p, k, q], Sum(A[p, l, q], (l, 0, k))),
        inputs=(A[p, k, q],),
        parameters={"dim": axis(k)},
    ),
    Operation(
        "cumprod",
        Eq(F[p, k, q], Product(A[p, l, q], (l, 0, k))),
        inputs=(A[p, k, q],),
        parameters={"dim": axis(k)},
    ),
    Operation(
        "logcumsumexp",
        Eq(F[p, k, q], LogSumExp(A[p, l, q], l, where=l <= k)),
        inputs=(A[p, k, q],),
        parameters={"dim": axis(k)},
    ),
)

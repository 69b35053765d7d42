"""Shares of one along an axis, ``dim``."""

from __future__ import annotations

from sympy import IndexedBase, Sum, exp, symbols

from derive.notation.heads import Eq, LogSumExp, axis, group
from derive.notation.specification import Operation

p, q = group("p"), group("q")
k = symbols("k", integer=True)
A, F, S = map(IndexedBase, "AFS")

OPERATIONS = (
    Operation(
        "softmax",
        Eq(S[p, k, q], exp(A[p, k, q]) / Sum(exp(A[p, k, q]), k)),
        parameters={"dim": axis(k)},
    ),
    Operation(
        "log_softmax",
        Eq(F[p, k, q], A[p, k, q] - LogSumExp(A[p, k, q], k)),
        parameters={"dim": axis(k)},
    ),
    Operation(
        "softmin",
        Eq(S[p, k, q], exp(-A[p, k, q]) / Sum(exp(-A[p, k, q]), k)),
        parameters={"dim": axis(k)},
    ),
)

"""Transpose and product of the matrices in the last two axes, batched over the others."""

from __future__ import annotations

from sympy import Eq, IndexedBase, Sum, symbols

from derive.spec.heads import group
from derive.spec.operation import Operation

b = group("b")
i, j, k = symbols("i j k", integer=True)
A, B, C = IndexedBase("A"), IndexedBase("B"), IndexedBase("C")

OPERATIONS = (
    Operation("transpose", Eq(C[b, j, i], A[b, i, j])),
    Operation("matmul", Eq(C[b, i, j], Sum(A[b, i, k] * B[b, k, j], k))),
)

"""Transpose and product of the matrices in the last two axes, batched over the others.

``linear`` maps the last axis, with torch's names: ``torch.nn.functional.linear``.
"""

from __future__ import annotations

from sympy import Eq, IndexedBase, Sum, symbols

from derive.spec.heads import group, optional
from derive.spec.operation import Operation

b = group("b")
i, j, k = symbols("i j k", integer=True)
A, B, C = IndexedBase("A"), IndexedBase("B"), IndexedBase("C")
input, weight, bias, output = map(IndexedBase, ("input", "weight", "bias", "output"))

OPERATIONS = (
    Operation("transpose", Eq(C[b, j, i], A[b, i, j])),
    Operation("matmul", Eq(C[b, i, j], Sum(A[b, i, k] * B[b, k, j], k))),
    Operation(
        "linear",
        Eq(output[b, j], Sum(input[b, k] * weight[j, k], k) + bias[j]),
        inputs=(input[b, k], weight[j, k], optional(bias[j], 0)),
    ),
)

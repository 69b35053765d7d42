"""Elements taken by position, and axes joined: in memory order, as torch does."""

from __future__ import annotations

from sympy import Eq, IndexedBase, symbols

from derive.spec.heads import Composite, Concat, axis, group, integer, size
from derive.spec.operation import Operation

p, q = group("p"), group("q")
d, k, l, m, t, v = symbols("d k l m t v", integer=True)  # noqa: E741
A, B, C = map(IndexedBase, "ABC")
input, weight, output = map(IndexedBase, ("input", "weight", "output"))

OPERATIONS = (
    # As torch.nn.functional.embedding; rows that are looked up often add up their gradients.
    Operation(
        "embedding",
        Eq(output[p, d], weight[input[p], d]),
        inputs=(integer(input[p]), weight[v, d]),
    ),
    # The last two axes as one, as torch.flatten(input, -2).
    Operation(
        "flatten",
        Eq(output[p, Composite(t, d)], input[p, t, d]),
        inputs=(input[p, t, d],),
    ),
    # The last axis as two, of which the second has the given size: the inverse of flatten.
    Operation(
        "unflatten",
        Eq(output[p, t, d], input[p, Composite(t, d)]),
        inputs=(input[p, Composite(t, d)],),
        parameters={"inner": size(d)},
    ),
    # One after the other along dim, as torch.concat((A, B), dim).
    Operation(
        "concat",
        Eq(C[p, m, q], Concat(m, A[p, m, q], B[p, m, q])),
        inputs=(A[p, k, q], B[p, l, q]),
        parameters={"dim": axis(k, 0)},
    ),
)

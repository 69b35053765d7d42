"""Products of vectors, matrices and tensors, and parts of matrices.

Matrices stand in the last two axes, batched over the others. ``linear``, ``bilinear``, ``addmm``
and ``baddbmm`` have torch's names.
"""

from __future__ import annotations

from sympy import IndexedBase, KroneckerDelta, Piecewise, Sum, symbols

from derive.notation.heads import Composite, Eq, group, optional
from derive.notation.specification import Operation

b = group("b")
i, j, k, l, m, r = symbols("i j k l m r", integer=True)  # noqa: E741
alpha, beta, diagonal, y = symbols("alpha beta diagonal y")
A, B, C, D = map(IndexedBase, "ABCD")
U, V, W, X = map(IndexedBase, "UVWX")
input, weight, bias, output = map(IndexedBase, ("input", "weight", "bias", "output"))
input1, input2, mat, vec = map(IndexedBase, ("input1", "input2", "mat", "vec"))
mat1, mat2, batch1, batch2 = map(IndexedBase, ("mat1", "mat2", "batch1", "batch2"))
vec2, core, x = map(IndexedBase, ("vec2", "core", "x"))

OPERATIONS = (
    Operation("transpose", Eq(C[b, j, i], A[b, i, j])),
    Operation("matmul", Eq(C[b, i, j], Sum(A[b, i, k] * B[b, k, j], k))),
    Operation(
        "linear",
        Eq(output[b, j], Sum(input[b, k] * weight[j, k], k) + bias[j]),
        inputs=(input[b, k], weight[j, k], optional(bias[j], 0)),
    ),
    Operation(
        "bilinear",
        Eq(output[b, k], Sum(input1[b, i] * weight[k, i, j] * input2[b, j], i, j) + bias[k]),
        inputs=(input1[b, i], input2[b, j], weight[k, i, j], optional(bias[k], 0)),
    ),
    Operation("dot", Eq(y, Sum(A[i] * B[i], i))),
    Operation("mv", Eq(output[i], Sum(input[i, k] * vec[k], k))),
    Operation("outer", Eq(output[i, j], input[i] * vec2[j])),
    Operation(
        "addmm",
        Eq(output[i, j], beta * input[i, j] + alpha * Sum(mat1[i, k] * mat2[k, j], k)),
        inputs=(input[i, j], mat1[i, k], mat2[k, j]),
        parameters={beta: 1, alpha: 1},
    ),
    Operation(
        "baddbmm",
        Eq(
            output[m, i, j],
            beta * input[m, i, j] + alpha * Sum(batch1[m, i, k] * batch2[m, k, j], k),
        ),
        inputs=(input[m, i, j], batch1[m, i, k], batch2[m, k, j]),
        parameters={beta: 1, alpha: 1},
    ),
    Operation("trace", Eq(y, Sum(A[i, i], i))),
    Operation("diagonal", Eq(output[b, i], A[b, i, i])),
    # A matrix with these values on its diagonal, and 0 elsewhere.
    Operation("diag_embed", Eq(output[b, i, j], input[b, i] * KroneckerDelta(i, j))),
    # Diagonal 0 is the main one, 1 the one above it.
    Operation(
        "tril",
        Eq(output[b, i, j], Piecewise((input[b, i, j], j - i <= diagonal), (0, True))),
        parameters={diagonal: 0},
    ),
    Operation(
        "triu",
        Eq(output[b, i, j], Piecewise((input[b, i, j], j - i >= diagonal), (0, True))),
        parameters={diagonal: 0},
    ),
    Operation(
        "quadratic_form",
        Eq(output[b], Sum(x[b, i] * A[i, j] * x[b, j], i, j)),
        inputs=(x[b, i], A[i, j]),
    ),
    # The scalar products of all rows.
    Operation("gram", Eq(C[b, i, j], Sum(A[b, i, k] * A[b, j, k], k))),
    Operation("kron", Eq(C[Composite(i, k), Composite(j, l)], A[i, j] * B[k, l])),
    # The Kronecker product of each column with its like.
    Operation("khatri_rao", Eq(C[Composite(i, j), k], A[i, k] * B[j, k])),
    Operation("multi_dot", Eq(D[i, l], Sum(A[i, j] * B[j, k] * C[k, l], j, k))),
    # A tensor of three axes from a small one and a matrix for each axis.
    Operation(
        "tucker",
        Eq(X[i, j, k], Sum(core[l, m, r] * U[i, l] * V[j, m] * W[k, r], l, m, r)),
        inputs=(core[l, m, r], U[i, l], V[j, m], W[k, r]),
    ),
    # A tensor of three axes as a sum of outer products.
    Operation("parafac", Eq(X[i, j, k], Sum(U[i, r] * V[j, r] * W[k, r], r))),
)

"""Distances and kernels: of vectors side by side, or of each row i of x1 and each row j of x2."""

from __future__ import annotations

from sympy import Abs, IndexedBase, Piecewise, Rational, Sum, exp, oo, sqrt, symbols, tanh

from derive.notation.heads import Eq, Mean, axis, clamp, group, keep
from derive.notation.specification import Operation

b, p, q = group("b"), group("p"), group("q")
i, j, k, l, m = symbols("i j k l m", integer=True)  # noqa: E741
eps, gamma, coef0, degree, alpha, distance = symbols("eps gamma coef0 degree alpha distance")
x1, x2, X, Y, u, v, VI = map(IndexedBase, ("x1", "x2", "X", "Y", "u", "v", "VI"))
D, K, Kxx, Kyy, Kxy = map(IndexedBase, ("D", "K", "Kxx", "Kyy", "Kxy"))
squared, delta, output = map(IndexedBase, ("squared", "delta", "output"))
norm1, norm2 = map(IndexedBase, ("norm1", "norm2"))

OPERATIONS = (
    Operation("cdist_squared", Eq(D[b, i, j], Sum((x1[b, i, k] - x2[b, j, k]) ** 2, k))),
    # The Euclidean distance, torch.cdist; equal rows have no gradient.
    Operation(
        "cdist",
        Eq(squared[b, i, j], Sum((x1[b, i, k] - x2[b, j, k]) ** 2, k)),
        Eq(D[b, i, j], Piecewise((sqrt(squared[b, i, j]), squared[b, i, j] > 0), (0, True))),
    ),
    # The sum of absolute differences, torch.cdist with p=1.
    Operation(
        "cdist_manhattan", Eq(D[b, i, j], Sum(Abs(x1[b, i, k] - x2[b, j, k]), k)), stable=True
    ),
    # The kernels have the names and parameters of sklearn.metrics.pairwise.
    Operation(
        "rbf_kernel",
        Eq(K[b, i, j], exp(-gamma * Sum((x1[b, i, k] - x2[b, j, k]) ** 2, k))),
        parameters={gamma: 1},
    ),
    Operation(
        "laplacian_kernel",
        Eq(K[b, i, j], exp(-gamma * Sum(Abs(x1[b, i, k] - x2[b, j, k]), k))),
        parameters={gamma: 1},
        stable=True,
    ),
    Operation(
        "cauchy_kernel",
        Eq(K[b, i, j], 1 / (1 + gamma * Sum((x1[b, i, k] - x2[b, j, k]) ** 2, k))),
        parameters={gamma: 1},
    ),
    Operation(
        "rational_quadratic_kernel",
        Eq(D[b, i, j], Sum((x1[b, i, k] - x2[b, j, k]) ** 2, k)),
        Eq(K[b, i, j], (1 + gamma * D[b, i, j] / alpha) ** -alpha),
        parameters={gamma: 1, alpha: 1},
    ),
    Operation(
        "polynomial_kernel",
        Eq(K[b, i, j], (gamma * Sum(x1[b, i, k] * x2[b, j, k], k) + coef0) ** degree),
        parameters={gamma: 1, coef0: 1, degree: 3},
    ),
    Operation(
        "sigmoid_kernel",
        Eq(K[b, i, j], tanh(gamma * Sum(x1[b, i, k] * x2[b, j, k], k) + coef0)),
        parameters={gamma: 1, coef0: 1},
    ),
    # torch adds eps to each difference.
    Operation(
        "pairwise_distance",
        Eq(delta[p, k], x1[p, k] - x2[p, k] + eps),
        Eq(squared[p], Sum(delta[p, k] ** 2, k)),
        Eq(output[p], Piecewise((0, Eq(squared[p], 0)), (sqrt(squared[p]), True))),
        inputs=(x1[p, k], x2[p, k]),
        parameters={eps: Rational(1, 10**6), "keepdim": keep(k)},
    ),
    Operation(
        "cosine_similarity",
        Eq(norm1[p, q], sqrt(Sum(x1[p, k, q] ** 2, k))),
        Eq(norm2[p, q], sqrt(Sum(x2[p, k, q] ** 2, k))),
        Eq(
            output[p, q],
            Sum(x1[p, k, q] * x2[p, k, q], k)
            / (clamp(norm1[p, q], eps, oo) * clamp(norm2[p, q], eps, oo)),
        ),
        inputs=(x1[p, k, q], x2[p, k, q]),
        parameters={"dim": axis(k, 1), eps: Rational(1, 10**8)},
        requires=[eps >= 0],
    ),
    # VI is the inverse of the covariance.
    Operation(
        "mahalanobis",
        Eq(delta[b, k], u[b, k] - v[b, k]),
        Eq(D[b], sqrt(Sum(delta[b, k] * VI[k, l] * delta[b, l], k, l))),
        inputs=(u[b, k], v[b, k], VI[k, l]),
    ),
    # The squared maximum mean discrepancy of the samples X and Y, with the kernel rbf_kernel.
    Operation(
        "mmd",
        Eq(Kxx[i, j], exp(-gamma * Sum((X[i, k] - X[j, k]) ** 2, k))),
        Eq(Kyy[l, m], exp(-gamma * Sum((Y[l, k] - Y[m, k]) ** 2, k))),
        Eq(Kxy[i, l], exp(-gamma * Sum((X[i, k] - Y[l, k]) ** 2, k))),
        Eq(distance, Mean(Kxx[i, j], i, j) + Mean(Kyy[l, m], l, m) - 2 * Mean(Kxy[i, l], i, l)),
        inputs=(X[i, k], Y[l, k]),
        parameters={gamma: 1},
    ),
)

"""Values brought to one scale: along one axis ``dim``, over a batch, or within each element.

The names and defaults are those of torch.nn.functional.
"""

from __future__ import annotations

from sympy import Eq, IndexedBase, Rational, Sum, exp, sqrt, symbols

from derive.spec.heads import LogSumExp, Mean, axis, group, optional, size
from derive.spec.operation import Operation

p, q, s = group("p"), group("q"), group("s")
c, k, n = symbols("c k n", integer=True)
eps, correction = symbols("eps correction")
A, F, S = map(IndexedBase, "AFS")
input, weight, bias, output = map(IndexedBase, ("input", "weight", "bias", "output"))
running_mean, running_var = map(IndexedBase, ("running_mean", "running_var"))
mu, var, rstd, xhat = map(IndexedBase, ("mu", "var", "rstd", "xhat"))

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
    # As in training: every channel by the mean and variance of the batch. The variance divides
    # by their number, or by one less with correction=1, as in torch.var.
    Operation(
        "batch_norm",
        Eq(mu[c], Mean(input[n, c, q], n, q)),
        Eq(var[c], Sum((input[n, c, q] - mu[c]) ** 2, n, q) / (size(n) * size(q) - correction)),
        Eq(xhat[n, c, q], (input[n, c, q] - mu[c]) / sqrt(var[c] + eps)),
        Eq(output[n, c, q], weight[c] * xhat[n, c, q] + bias[c]),
        inputs=(input[n, c, q], optional(weight[c], 1), optional(bias[c], 0)),
        parameters={eps: 1e-5, correction: 0},
    ),
    # As in inference: by a mean and a variance that are given.
    Operation(
        "batch_norm_inference",
        Eq(xhat[n, c, q], (input[n, c, q] - running_mean[c]) / sqrt(running_var[c] + eps)),
        Eq(output[n, c, q], weight[c] * xhat[n, c, q] + bias[c]),
        inputs=(
            input[n, c, q],
            running_mean[c],
            running_var[c],
            optional(weight[c], 1),
            optional(bias[c], 0),
        ),
        parameters={eps: 1e-5},
    ),
    # The axes of weight are those that are normalized, torch's normalized_shape.
    Operation(
        "layer_norm",
        Eq(mu[p], Mean(input[p, s], s)),
        Eq(var[p], Mean((input[p, s] - mu[p]) ** 2, s)),
        Eq(xhat[p, s], (input[p, s] - mu[p]) / sqrt(var[p] + eps)),
        Eq(output[p, s], weight[s] * xhat[p, s] + bias[s]),
        inputs=(input[p, s], weight[s], optional(bias[s], 0)),
        parameters={eps: 1e-5},
    ),
    # eps is torch's for float32.
    Operation(
        "rms_norm",
        Eq(rstd[p], 1 / sqrt(Mean(input[p, s] ** 2, s) + eps)),
        Eq(output[p, s], weight[s] * rstd[p] * input[p, s]),
        inputs=(input[p, s], weight[s]),
        parameters={eps: Rational(1, 2**23)},
    ),
)

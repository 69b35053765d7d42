"""Values brought to one scale: over a batch, or within each element.

The names and defaults are those of torch.nn.functional.
"""

from __future__ import annotations

from sympy import And, IndexedBase, Rational, Sum, oo, sqrt, symbols

from derive.notation.heads import Composite, Eq, Mean, Total, axis, clamp, group, optional, size
from derive.notation.specification import Operation

p, q, s = group("p"), group("q"), group("s")
c, d, g, k, n, w = symbols("c d g k n w", integer=True)
eps, correction, alpha, beta, offset = symbols("eps correction alpha beta k")
A, F, S = map(IndexedBase, "AFS")
input, weight, bias, output = map(IndexedBase, ("input", "weight", "bias", "output"))
running_mean, running_var = map(IndexedBase, ("running_mean", "running_var"))
mu, var, rstd, xhat, norm = map(IndexedBase, ("mu", "var", "rstd", "xhat", "norm"))
v, gain, divisor = map(IndexedBase, ("v", "g", "divisor"))

OPERATIONS = (
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
        requires=[eps > 0],
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
    # Every channel of every element by its own mean and variance.
    Operation(
        "instance_norm",
        Eq(mu[n, c], Mean(input[n, c, q], q)),
        Eq(var[n, c], Mean((input[n, c, q] - mu[n, c]) ** 2, q)),
        Eq(xhat[n, c, q], (input[n, c, q] - mu[n, c]) / sqrt(var[n, c] + eps)),
        Eq(output[n, c, q], weight[c] * xhat[n, c, q] + bias[c]),
        inputs=(input[n, c, q], optional(weight[c], 1), optional(bias[c], 0)),
        parameters={eps: 1e-5},
    ),
    # The channels are g groups of c; weight and bias are those of a channel.
    Operation(
        "group_norm",
        Eq(mu[n, g], Mean(input[n, Composite(g, c), q], c, q)),
        Eq(var[n, g], Mean((input[n, Composite(g, c), q] - mu[n, g]) ** 2, c, q)),
        Eq(
            xhat[n, Composite(g, c), q],
            (input[n, Composite(g, c), q] - mu[n, g]) / sqrt(var[n, g] + eps),
        ),
        Eq(output[n, d, q], weight[d] * xhat[n, d, q] + bias[d]),
        inputs=(input[n, Composite(g, c), q], optional(weight[d], 1), optional(bias[d], 0)),
        parameters={"num_groups": size(g), eps: 1e-5},
    ),
    # Vectors along dim of Euclidean norm 1; eps is the least that they are divided by.
    Operation(
        "normalize",
        Eq(norm[p, q], sqrt(Sum(input[p, k, q] ** 2, k))),
        Eq(output[p, k, q], input[p, k, q] / clamp(norm[p, q], eps, oo)),
        inputs=(input[p, k, q],),
        parameters={"dim": axis(k, 1), eps: Rational(1, 10**12)},
    ),
    # A direction v and a length g for each position of the axis dim, which keeps its own norm.
    Operation(
        "weight_norm",
        Eq(norm[k], sqrt(Sum(v[p, k, q] ** 2, p, q))),
        Eq(output[p, k, q], gain[k] * v[p, k, q] / norm[k]),
        inputs=(v[p, k, q], gain[k]),
        parameters={"dim": axis(k, 0)},
    ),
    # Each channel by the mean square of the ``window`` channels around it, torch's size; channels
    # outside count as 0.
    Operation(
        "local_response_norm",
        Eq(
            divisor[n, c, q],
            offset
            + alpha
            / size(w)
            * Total(
                input[n, d, q] ** 2, d, where=And(c - size(w) / 2 <= d, d <= c + (size(w) - 1) / 2)
            ),
        ),
        Eq(output[n, c, q], input[n, c, q] / divisor[n, c, q] ** beta),
        inputs=(input[n, c, q],),
        parameters={"window": size(w), alpha: 1e-4, beta: 0.75, offset: 1},
        stable=True,
    ),
)

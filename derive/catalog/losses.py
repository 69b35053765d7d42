"""Losses of class indices, with torch's names and conventions.

An ignored target counts for nothing, and ``mean`` divides by the weight of those that count.
"""

from __future__ import annotations

from sympy import Eq, IndexedBase, Ne, Piecewise, Sum, symbols

from derive.spec.heads import LogSumExp, Mean, Total, choice, integer, optional
from derive.spec.operation import Operation

c, d, k, n = symbols("c d k n", integer=True)
ignore_index, label_smoothing, total, average = symbols(
    "ignore_index label_smoothing total average"
)
input, target, weight, loss = map(IndexedBase, ("input", "target", "weight", "loss"))
linear_weight, linear_bias, X, F = map(IndexedBase, ("linear_weight", "linear_bias", "X", "F"))
counts = Ne(target[n], ignore_index)

OPERATIONS = (
    Operation(
        "nll_loss",
        Eq(loss[n], Piecewise((-weight[target[n]] * input[n, target[n]], counts), (0, True))),
        Eq(total, Sum(loss[n], n)),
        Eq(average, total / Total(weight[target[n]], n, where=counts)),
        inputs=(input[n, c], integer(target[n]), optional(weight[c], 1)),
        parameters={ignore_index: -100, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # The target is (1 - label_smoothing) of the class and the rest spread over all classes.
    Operation(
        "linear_cross_entropy",
        Eq(X[n, c], Sum(input[n, d] * linear_weight[c, d], d) + linear_bias[c]),
        Eq(F[n, c], X[n, c] - LogSumExp(X[n, c], c)),
        Eq(
            loss[n],
            Piecewise(
                (
                    -(1 - label_smoothing) * weight[target[n]] * F[n, target[n]]
                    - label_smoothing * Mean(weight[c] * F[n, c], c),
                    counts,
                ),
                (0, True),
            ),
        ),
        Eq(total, Sum(loss[n], n)),
        Eq(average, total / Total(weight[target[n]], n, where=counts)),
        inputs=(
            input[n, d],
            linear_weight[c, d],
            integer(target[n]),
            optional(linear_bias[c], 0),
            optional(weight[c], 1),
        ),
        parameters={
            ignore_index: -100,
            label_smoothing: 0.0,
            "reduction": choice("mean", "sum", "none"),
        },
        outputs={"mean": average, "sum": total, "none": loss},
    ),
)

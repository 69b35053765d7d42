"""Losses of classes and of sets, with torch's names and conventions.

An ignored target counts for nothing, and ``mean`` divides by the weight of those that count.
"""

from __future__ import annotations

from sympy import IndexedBase, Ne, Piecewise, Sum, sqrt, symbols

from derive.notation.heads import (
    Eq,
    LogSoftmax,
    LogSumExp,
    Mean,
    Total,
    choice,
    expm1,
    group,
    integer,
    optional,
    sigmoid,
    size,
)
from derive.notation.specification import Operation

c, d, m, n = symbols("c d m n", integer=True)
q = group("q")
ignore_index, label_smoothing, total, count, average, cost = symbols(
    "ignore_index label_smoothing total count average cost"
)
input, target, weight, loss = map(IndexedBase, ("input", "target", "weight", "loss"))
linear_weight, linear_bias, X, F = map(IndexedBase, ("linear_weight", "linear_bias", "X", "F"))
features, targets, bias, logits = map(IndexedBase, ("features", "targets", "bias", "logits"))
gamma, temperature, smooth, alpha, beta = symbols("gamma temperature smooth alpha beta")
query, positive_key, queries, keys = map(IndexedBase, ("query", "positive_key", "queries", "keys"))
similarity, probability, right = map(IndexedBase, ("similarity", "probability", "right"))
found, both, wrong = map(IndexedBase, ("found", "both", "wrong"))
missed, whole = map(IndexedBase, ("missed", "whole"))
counts = Ne(target[n], ignore_index)
counted = Ne(target[n, q], ignore_index)
smoothed = Ne(label_smoothing, 0)

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
    # The target is (1 - label_smoothing) of the class and the rest uniform over all classes; where
    # nothing is left for these, one of them may be impossible, an input of -inf.
    Operation(
        "cross_entropy",
        Eq(F[n, c, q], LogSoftmax(input[n, c, q], c)),
        Eq(
            loss[n, q],
            Piecewise(
                (
                    -(
                        (1 - label_smoothing) * weight[target[n, q]] * F[n, target[n, q], q]
                        + Piecewise(
                            (label_smoothing * Mean(weight[c] * F[n, c, q], c), smoothed), (0, True)
                        )
                    ),
                    counted,
                ),
                (0, True),
            ),
        ),
        Eq(total, Sum(loss[n, q], n, q)),
        Eq(count, Total(weight[target[n, q]], n, q, where=counted)),
        Eq(average, total / count),
        inputs=(input[n, c, q], integer(target[n, q]), optional(weight[c], 1)),
        parameters={
            ignore_index: -100,
            "reduction": choice("mean", "sum", "none"),
            label_smoothing: 0.0,
        },
        outputs={"mean": average, "sum": total, "none": loss},
        requires=[label_smoothing >= 0, label_smoothing <= 1],
    ),
    # The target is a probability of each class; mean divides by the number of targets.
    Operation(
        "cross_entropy_probabilities",
        Eq(F[n, c, q], LogSoftmax(input[n, c, q], c)),
        Eq(
            loss[n, q],
            -Sum(
                weight[c]
                * ((1 - label_smoothing) * target[n, c, q] + label_smoothing / size(c))
                * F[n, c, q],
                c,
            ),
        ),
        Eq(total, Sum(loss[n, q], n, q)),
        Eq(average, Mean(loss[n, q], n, q)),
        inputs=(input[n, c, q], target[n, c, q], optional(weight[c], 1)),
        parameters={"reduction": choice("mean", "sum", "none"), label_smoothing: 0.0},
        outputs={"mean": average, "sum": total, "none": loss},
        requires=[label_smoothing >= 0, label_smoothing <= 1],
    ),
    Operation(
        "linear_cross_entropy",
        Eq(X[n, c], Sum(input[n, d] * linear_weight[c, d], d) + linear_bias[c]),
        Eq(F[n, c], X[n, c] - LogSumExp(X[n, c], c)),
        Eq(
            loss[n],
            Piecewise(
                (
                    -(1 - label_smoothing) * weight[target[n]] * F[n, target[n]]
                    - Piecewise(
                        (label_smoothing * Mean(weight[c] * F[n, c], c), smoothed), (0, True)
                    ),
                    counts,
                ),
                (0, True),
            ),
        ),
        Eq(total, Sum(loss[n], n)),
        Eq(count, Total(weight[target[n]], n, where=counts)),
        Eq(average, total / count),
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
        requires=[label_smoothing >= 0, label_smoothing <= 1],
    ),
    # A linear classifier and its loss; the logits say which class it would choose.
    Operation(
        "softmax_regression",
        Eq(logits[n, c], Sum(features[n, d] * weight[c, d], d) + bias[c]),
        Eq(F[n, c], LogSoftmax(logits[n, c], c)),
        Eq(cost, -Mean(F[n, targets[n]], n)),
        inputs=(features[n, d], weight[c, d], bias[c], integer(targets[n])),
        outputs=(cost, logits),
    ),
    # Cross-entropy of which what is right already counts less.
    Operation(
        "focal_loss",
        Eq(F[n, c, q], LogSoftmax(input[n, c, q], c)),
        Eq(right[n, q], F[n, target[n, q], q]),
        Eq(loss[n, q], -weight[target[n, q]] * (-expm1(right[n, q])) ** gamma * right[n, q]),
        Eq(total, Sum(loss[n, q], n, q)),
        Eq(average, Mean(loss[n, q], n, q)),
        inputs=(input[n, c, q], integer(target[n, q]), optional(weight[c], 1)),
        parameters={gamma: 2, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # Each query is to find its own key among those of all, by the cosine of their angle.
    Operation(
        "info_nce",
        Eq(queries[n, d], query[n, d] / sqrt(Sum(query[n, d] ** 2, d))),
        Eq(keys[n, d], positive_key[n, d] / sqrt(Sum(positive_key[n, d] ** 2, d))),
        Eq(similarity[n, m], Sum(queries[n, d] * keys[m, d], d) / temperature),
        Eq(loss[n], LogSumExp(similarity[n, m], m) - similarity[n, n]),
        Eq(total, Sum(loss[n], n)),
        Eq(average, Mean(loss[n], n)),
        inputs=(query[n, d], positive_key[n, d]),
        parameters={temperature: 0.1, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # 1 less what both have over the mean of the two, for each n.
    Operation(
        "dice_loss",
        Eq(probability[n, q], sigmoid(input[n, q])),
        Eq(found[n], Sum(probability[n, q] * target[n, q], q)),
        Eq(both[n], Sum(probability[n, q] + target[n, q], q)),
        Eq(loss[n], 1 - (2 * found[n] + smooth) / (both[n] + smooth)),
        Eq(total, Sum(loss[n], n)),
        Eq(average, Mean(loss[n], n)),
        inputs=(input[n, q], target[n, q]),
        parameters={smooth: 1.0, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # alpha is the price of what is found and wrong, beta of what is missed.
    Operation(
        "tversky_loss",
        Eq(probability[n, q], sigmoid(input[n, q])),
        Eq(found[n], Sum(probability[n, q] * target[n, q], q)),
        Eq(wrong[n], Sum(probability[n, q] * (1 - target[n, q]), q)),
        Eq(missed[n], Sum((1 - probability[n, q]) * target[n, q], q)),
        Eq(whole[n], found[n] + alpha * wrong[n] + beta * missed[n] + smooth),
        Eq(loss[n], 1 - (found[n] + smooth) / whole[n]),
        Eq(total, Sum(loss[n], n)),
        Eq(average, Mean(loss[n], n)),
        inputs=(input[n, q], target[n, q]),
        parameters={alpha: 0.5, beta: 0.5, smooth: 1.0, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
)

"""Losses of each element, a number beside the number that it should be.

The names and conventions are those of torch.nn.functional.
"""

from __future__ import annotations

from sympy import Abs, IndexedBase, Piecewise, Rational, Sum, exp, log, oo, symbols

from derive.notation.heads import (
    Eq,
    Mean,
    choice,
    clamp,
    group,
    logsigmoid,
    optional,
    sigmoid,
    size,
)
from derive.notation.specification import Operation

p, q = group("p"), group("q")
c, n = symbols("c n", integer=True)
beta, delta, eps, alpha, gamma = symbols("beta delta eps alpha gamma")
average, total, batchmean = symbols("average total batchmean")
input, target, weight, pos_weight = map(IndexedBase, ("input", "target", "weight", "pos_weight"))
var, variance = map(IndexedBase, ("var", "variance"))
e, loss, probability = map(IndexedBase, ("e", "loss", "probability"))
wrong, balance, entropy = map(IndexedBase, ("wrong", "balance", "entropy"))

OPERATIONS = (
    Operation(
        "mse_loss",
        Eq(loss[p], (input[p] - target[p]) ** 2),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        parameters={"reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    Operation(
        "l1_loss",
        Eq(loss[p], Abs(input[p] - target[p])),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        parameters={"reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # Quadratic below beta, linear above, and of slope 1 there; with beta 0 linear everywhere.
    Operation(
        "smooth_l1_loss",
        Eq(e[p], input[p] - target[p]),
        Eq(
            loss[p],
            Piecewise(
                (e[p] ** 2 / (2 * Piecewise((beta, beta > 0), (1, True))), Abs(e[p]) < beta),
                (Abs(e[p]) - beta / 2, True),
            ),
        ),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input[p], target[p]),
        parameters={"reduction": choice("mean", "sum", "none"), beta: 1.0},
        outputs={"mean": average, "sum": total, "none": loss},
        requires=[beta >= 0],
    ),
    # Quadratic up to delta, linear above, and of slope delta there.
    Operation(
        "huber_loss",
        Eq(e[p], input[p] - target[p]),
        Eq(
            loss[p],
            Piecewise((e[p] ** 2 / 2, Abs(e[p]) <= delta), (delta * (Abs(e[p]) - delta / 2), True)),
        ),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input[p], target[p]),
        parameters={"reduction": choice("mean", "sum", "none"), delta: 1.0},
        outputs={"mean": average, "sum": total, "none": loss},
        requires=[delta > 0],
    ),
    # Of probabilities; a logarithm is at least -100.
    Operation(
        "binary_cross_entropy",
        Eq(
            loss[p],
            -weight[p]
            * (
                target[p] * clamp(log(input[p]), -100, oo)
                + (1 - target[p]) * clamp(log(1 - input[p]), -100, oo)
            ),
        ),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input[p], target[p], optional(weight[p], 1)),
        parameters={"reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # pos_weight is that of the positive targets of each class, in the last axis.
    Operation(
        "binary_cross_entropy_with_logits",
        Eq(
            loss[p, c],
            -weight[p, c]
            * (
                pos_weight[c] * target[p, c] * logsigmoid(input[p, c])
                + (1 - target[p, c]) * logsigmoid(-input[p, c])
            ),
        ),
        Eq(average, Mean(loss[p, c], p, c)),
        Eq(total, Sum(loss[p, c], p, c)),
        inputs=(input[p, c], target[p, c], optional(weight[p, c], 1), optional(pos_weight[c], 1)),
        parameters={"reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # As torchvision.ops.sigmoid_focal_loss: what is right already counts less.
    Operation(
        "sigmoid_focal_loss",
        Eq(probability[p], sigmoid(input[p])),
        Eq(wrong[p], probability[p] * (1 - target[p]) + (1 - probability[p]) * target[p]),
        Eq(balance[p], alpha * target[p] + (1 - alpha) * (1 - target[p])),
        Eq(entropy[p], -target[p] * logsigmoid(input[p]) - (1 - target[p]) * logsigmoid(-input[p])),
        Eq(loss[p], balance[p] * wrong[p] ** gamma * entropy[p]),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input[p], target[p]),
        parameters={alpha: Rational(1, 4), gamma: 2, "reduction": choice("none", "mean", "sum")},
        outputs={"none": loss, "mean": average, "sum": total},
    ),
    # input has logarithms, target probabilities; batchmean divides by the size of the first axis.
    Operation(
        "kl_div",
        Eq(
            loss[n, q],
            Piecewise((target[n, q] * log(target[n, q]), target[n, q] > 0), (0, True))
            - target[n, q] * input[n, q],
        ),
        Eq(average, Mean(loss[n, q], n, q)),
        Eq(total, Sum(loss[n, q], n, q)),
        Eq(batchmean, Sum(loss[n, q], n, q) / size(n)),
        inputs=(input[n, q], target[n, q]),
        parameters={"reduction": choice("mean", "sum", "none", "batchmean")},
        outputs={"mean": average, "sum": total, "none": loss, "batchmean": batchmean},
    ),
    # kl_div with log_target=True: both have logarithms.
    Operation(
        "kl_div_log_target",
        Eq(loss[n, q], exp(target[n, q]) * (target[n, q] - input[n, q])),
        Eq(average, Mean(loss[n, q], n, q)),
        Eq(total, Sum(loss[n, q], n, q)),
        Eq(batchmean, Sum(loss[n, q], n, q) / size(n)),
        inputs=(input[n, q], target[n, q]),
        parameters={"reduction": choice("mean", "sum", "none", "batchmean")},
        outputs={"mean": average, "sum": total, "none": loss, "batchmean": batchmean},
    ),
    # input is the logarithm of the rate, as with torch's log_input=True.
    Operation(
        "poisson_nll_loss",
        Eq(loss[p], exp(input[p]) - target[p] * input[p]),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input[p], target[p]),
        parameters={"reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # A variance below eps counts as eps and has no gradient; in torch it has that of eps.
    Operation(
        "gaussian_nll_loss",
        Eq(variance[p], clamp(var[p], eps, oo)),
        Eq(loss[p], (log(variance[p]) + (input[p] - target[p]) ** 2 / variance[p]) / 2),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input[p], target[p], var[p]),
        parameters={eps: 1e-6, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # target is 1 or -1.
    Operation(
        "soft_margin_loss",
        Eq(loss[p], -logsigmoid(target[p] * input[p])),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input[p], target[p]),
        parameters={"reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
)

"""Losses of what is nearer than a margin: of classes, of pairs and of triples.

The names and conventions are those of torch.nn.functional; a target of two is 1 or -1. Where torch
passes the gradient on the margin itself, ``clamp`` does so too.
"""

from __future__ import annotations

from sympy import Abs, Float, IndexedBase, Ne, Piecewise, Sum, oo, sqrt, symbols

from derive.notation.heads import (
    Eq,
    Mean,
    Total,
    choice,
    clamp,
    group,
    integer,
    optional,
    relu,
    size,
)
from derive.notation.specification import Operation

p = group("p")
c, d, n = symbols("c d n", integer=True)
margin, ord, eps = symbols("margin p eps")
average, total = symbols("average total")
input, target, weight, loss = map(IndexedBase, ("input", "target", "weight", "loss"))
input1, input2, cosine = map(IndexedBase, ("input1", "input2", "cosine"))
excess = IndexedBase("excess")
anchor, positive, negative = map(IndexedBase, ("anchor", "positive", "negative"))
towards, away, near, far = map(IndexedBase, ("towards", "away", "near", "far"))
powers_near, powers_far = map(IndexedBase, ("powers_near", "powers_far"))
square1, square2 = map(IndexedBase, ("square1", "square2"))

OPERATIONS = (
    Operation(
        "hinge_loss",
        Eq(loss[p], relu(1 - target[p] * input[p])),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input[p], target[p]),
        parameters={"reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    Operation(
        "hinge_embedding_loss",
        Eq(
            loss[p],
            Piecewise((input[p], Eq(target[p], 1)), (clamp(margin - input[p], 0, oo), True)),
        ),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input[p], target[p]),
        parameters={margin: 1.0, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # input1 is to be the larger one where target is 1.
    Operation(
        "margin_ranking_loss",
        Eq(loss[p], clamp(margin - target[p] * (input1[p] - input2[p]), 0, oo)),
        Eq(average, Mean(loss[p], p)),
        Eq(total, Sum(loss[p], p)),
        inputs=(input1[p], input2[p], target[p]),
        parameters={margin: 0.0, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # p is 1 or 2, the power of each difference.
    Operation(
        "multi_margin_loss",
        Eq(excess[n, c], margin - input[n, target[n]] + input[n, c]),
        Eq(
            loss[n],
            weight[target[n]]
            * Total(relu(excess[n, c]) ** ord, c, where=Ne(c, target[n]))
            / size(c),
        ),
        Eq(average, Mean(loss[n], n)),
        Eq(total, Sum(loss[n], n)),
        inputs=(input[n, c], integer(target[n]), optional(weight[c], 1)),
        parameters={ord: 1, margin: 1.0, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
    # p is the order of the norm, eps is added to each difference.
    Operation(
        "triplet_margin_loss",
        Eq(towards[n, d], anchor[n, d] - positive[n, d] + eps),
        Eq(away[n, d], anchor[n, d] - negative[n, d] + eps),
        Eq(powers_near[n], Sum(Abs(towards[n, d]) ** ord, d)),
        Eq(powers_far[n], Sum(Abs(away[n, d]) ** ord, d)),
        Eq(near[n], powers_near[n] ** (1 / ord)),
        Eq(far[n], powers_far[n] ** (1 / ord)),
        Eq(loss[n], clamp(near[n] - far[n] + margin, 0, oo)),
        Eq(average, Mean(loss[n], n)),
        Eq(total, Sum(loss[n], n)),
        inputs=(anchor[n, d], positive[n, d], negative[n, d]),
        parameters={margin: 1.0, ord: 2, eps: 1e-6, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
        requires=[margin > 0],
    ),
    Operation(
        "cosine_embedding_loss",
        Eq(square1[n], Sum(input1[n, d] ** 2, d) + Float("1e-12")),
        Eq(square2[n], Sum(input2[n, d] ** 2, d) + Float("1e-12")),
        Eq(cosine[n], Sum(input1[n, d] * input2[n, d], d) / sqrt(square1[n] * square2[n])),
        Eq(
            loss[n],
            Piecewise((1 - cosine[n], Eq(target[n], 1)), (clamp(cosine[n] - margin, 0, oo), True)),
        ),
        Eq(average, Mean(loss[n], n)),
        Eq(total, Sum(loss[n], n)),
        inputs=(input1[n, d], input2[n, d], target[n]),
        parameters={margin: 0.0, "reduction": choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    ),
)

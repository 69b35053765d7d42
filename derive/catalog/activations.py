"""Activations of each element, with torch's names, defaults and slopes at kinks.

Where torch's function is one of several forms, ``approximate`` chooses it. A gated unit has one
half of its values, or another tensor, as the gate.
"""

from __future__ import annotations

from sympy import Abs, Float, IndexedBase, Ne, Piecewise, erf, pi, sign, sqrt, symbols, tanh

from derive.notation.heads import (
    Composite,
    Eq,
    axis,
    choice,
    expm1,
    group,
    relu,
    sigmoid,
    size,
    softplus,
)
from derive.notation.specification import Operation

p, q = group("p"), group("q")
c, k, m, n, t = symbols("c k m n t", integer=True)
alpha, negative_slope, min_val, max_val = symbols("alpha negative_slope min_val max_val")
lambd, level, value = symbols("lambd level value")
input, weight, gate, output = map(IndexedBase, ("input", "weight", "gate", "output"))
halves = IndexedBase("halves")
exact, inner, approximation = map(IndexedBase, ("exact", "inner", "approximation"))

OPERATIONS = (
    # x times the normal distribution function, or a form of it with tanh.
    Operation(
        "gelu",
        Eq(exact[p], input[p] * (1 + erf(input[p] / sqrt(2))) / 2),
        Eq(inner[p], sqrt(2 / pi) * (input[p] + Float("0.044715") * input[p] ** 3)),
        Eq(approximation[p], input[p] * (1 + tanh(inner[p])) / 2),
        parameters={"approximate": choice("none", "tanh")},
        outputs={"none": exact, "tanh": approximation},
    ),
    Operation("silu", Eq(output[p], input[p] * sigmoid(input[p]))),
    Operation("mish", Eq(output[p], input[p] * tanh(softplus(input[p])))),
    Operation(
        "elu",
        Eq(output[p], Piecewise((input[p], input[p] > 0), (alpha * expm1(input[p]), True))),
        parameters={alpha: 1.0},
    ),
    # The two numbers keep mean 0 and variance 1 from layer to layer.
    Operation(
        "selu",
        Eq(
            output[p],
            Float("1.0507009873554805")
            * Piecewise(
                (input[p], input[p] > 0), (Float("1.6732632423543772") * expm1(input[p]), True)
            ),
        ),
    ),
    Operation(
        "celu",
        Eq(output[p], Piecewise((input[p], input[p] > 0), (alpha * expm1(input[p] / alpha), True))),
        parameters={alpha: 1.0},
        requires=[Ne(alpha, 0)],
    ),
    Operation(
        "leaky_relu",
        Eq(output[p], Piecewise((input[p], input[p] > 0), (negative_slope * input[p], True))),
        parameters={negative_slope: 0.01},
    ),
    # A slope for each channel.
    Operation(
        "prelu",
        Eq(
            output[n, c, q],
            Piecewise((input[n, c, q], input[n, c, q] > 0), (weight[c] * input[n, c, q], True)),
        ),
        inputs=(input[n, c, q], weight[c]),
    ),
    Operation("relu_squared", Eq(output[p], relu(input[p]) ** 2)),
    # Between its bounds the slope is 1, on them it is 0.
    Operation(
        "hardtanh",
        Eq(
            output[p],
            Piecewise(
                (min_val, input[p] <= min_val), (max_val, input[p] >= max_val), (input[p], True)
            ),
        ),
        parameters={min_val: -1.0, max_val: 1.0},
    ),
    Operation(
        "relu6", Eq(output[p], Piecewise((0, input[p] <= 0), (6, input[p] >= 6), (input[p], True)))
    ),
    Operation(
        "hardsigmoid",
        Eq(
            output[p],
            Piecewise((0, input[p] <= -3), (1, input[p] >= 3), ((input[p] + 3) / 6, True)),
        ),
    ),
    Operation(
        "hardswish",
        Eq(
            output[p],
            Piecewise(
                (0, input[p] <= -3),
                (input[p], input[p] >= 3),
                (input[p] * (input[p] + 3) / 6, True),
            ),
        ),
    ),
    Operation("softsign", Eq(output[p], input[p] / (1 + Abs(input[p])))),
    Operation("tanhshrink", Eq(output[p], input[p] - tanh(input[p]))),
    Operation(
        "softshrink",
        Eq(
            output[p],
            Piecewise((0, Abs(input[p]) <= lambd), (input[p] - lambd * sign(input[p]), True)),
        ),
        parameters={lambd: 0.5},
        requires=[lambd >= 0],
    ),
    Operation(
        "hardshrink",
        Eq(output[p], Piecewise((0, Abs(input[p]) <= lambd), (input[p], True))),
        parameters={lambd: 0.5},
    ),
    # torch calls the level threshold too.
    Operation(
        "threshold",
        Eq(output[p], Piecewise((value, input[p] <= level), (input[p], True))),
        parameters={level: None, value: None},
    ),
    # The second half along dim is the gate of the first.
    Operation(
        "glu",
        Eq(halves[p, t, k, q], input[p, Composite(t, k), q]),
        Eq(output[p, k, q], halves[p, 0, k, q] * sigmoid(halves[p, 1, k, q])),
        inputs=(input[p, m, q],),
        parameters={"dim": axis(m, -1), size(t): 2},
    ),
    Operation(
        "swiglu", Eq(output[p], input[p] * gate[p] * sigmoid(gate[p])), inputs=(input[p], gate[p])
    ),
    Operation(
        "geglu",
        Eq(output[p], input[p] * gate[p] * (1 + erf(gate[p] / sqrt(2))) / 2),
        inputs=(input[p], gate[p]),
    ),
)

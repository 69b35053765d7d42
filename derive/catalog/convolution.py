"""Convolutions and pooling, of torch.nn.functional where it has them, pooling without padding.

``stride``, ``padding`` and ``dilation`` are those of every axis, ``weight`` and ``bias`` as in
torch. Around a padded input is 0.
"""

from __future__ import annotations

from sympy import And, IndexedBase, Sum, floor, symbols

from derive.notation.heads import Composite, Eq, Mean, ReduceMax, Total, group, optional, size
from derive.notation.specification import Operation

q = group("q")
c, g, h, i, j, k, n, o, t, u, w, x, y = symbols("c g h i j k n o t u w x y", integer=True)
stride, dilation, padding, output_padding = symbols(
    "stride dilation padding output_padding", integer=True
)
norm_type = symbols("norm_type")
input, weight, bias, output = map(IndexedBase, ("input", "weight", "bias", "output"))

# What position of the input the kernel meets; around the input is 0.
along = stride * u + dilation * k - padding
down = stride * x + dilation * i - padding
right = stride * y + dilation * j - padding
inside = And(along >= 0, along < size(t))
inside_image = And(down >= 0, down < size(h), right >= 0, right < size(w))

steps = {size(u): floor((size(t) + 2 * padding - dilation * (size(k) - 1) - 1) / stride) + 1}
rows = {size(x): floor((size(h) + 2 * padding - dilation * (size(i) - 1) - 1) / stride) + 1}
columns = {size(y): floor((size(w) + 2 * padding - dilation * (size(j) - 1) - 1) / stride) + 1}
settings = {stride: 1, padding: 0, dilation: 1}

OPERATIONS = (
    Operation(
        "conv1d",
        Eq(
            output[n, o, u],
            Total(input[n, c, along] * weight[o, c, k], c, k, where=inside) + bias[o],
        ),
        inputs=(input[n, c, t], weight[o, c, k], optional(bias[o], 0)),
        parameters=settings | steps,
    ),
    Operation(
        "conv2d",
        Eq(
            output[n, o, x, y],
            Total(input[n, c, down, right] * weight[o, c, i, j], c, i, j, where=inside_image)
            + bias[o],
        ),
        inputs=(input[n, c, h, w], weight[o, c, i, j], optional(bias[o], 0)),
        parameters=settings | rows | columns,
    ),
    # torch's conv1d with groups: those of the channels in make those of the channels out.
    Operation(
        "grouped_conv1d",
        Eq(
            output[n, Composite(g, o), u],
            Total(
                input[n, Composite(g, c), along] * weight[Composite(g, o), c, k], c, k, where=inside
            )
            + bias[Composite(g, o)],
        ),
        inputs=(
            input[n, Composite(g, c), t],
            weight[Composite(g, o), c, k],
            optional(bias[Composite(g, o)], 0),
        ),
        parameters=settings | steps | {"groups": size(g, 1)},
    ),
    # Each channel by a kernel of its own.
    Operation(
        "depthwise_conv1d",
        Eq(output[n, c, u], Total(input[n, c, along] * weight[c, k], k, where=inside) + bias[c]),
        inputs=(input[n, c, t], weight[c, k], optional(bias[c], 0)),
        parameters=settings | steps,
    ),
    Operation(
        "depthwise_conv2d",
        Eq(
            output[n, c, x, y],
            Total(input[n, c, down, right] * weight[c, i, j], i, j, where=inside_image) + bias[c],
        ),
        inputs=(input[n, c, h, w], weight[c, i, j], optional(bias[c], 0)),
        parameters=settings | rows | columns,
    ),
    # As long as the input, which is 0 outside: ``padding`` values before it, as many as are
    # needed after it. padding=(size(k) - 1)//2 is torch's padding="same".
    Operation(
        "same_conv1d",
        Eq(
            output[n, o, t],
            Total(
                input[n, c, t + k - padding] * weight[o, c, k],
                c,
                k,
                where=(t + k - padding >= 0) & (t + k - padding < size(t)),
            )
            + bias[o],
        ),
        inputs=(input[n, c, t], weight[o, c, k], optional(bias[o], 0)),
        parameters={padding: None},
    ),
    # The k-th value of the kernel meets the input of dilation*k steps before.
    Operation(
        "causal_conv1d",
        Eq(
            output[n, o, t],
            Total(
                input[n, c, t - dilation * k] * weight[o, c, k], c, k, where=t - dilation * k >= 0
            )
            + bias[o],
        ),
        inputs=(input[n, c, t], weight[o, c, k], optional(bias[o], 0)),
        parameters={dilation: 1},
    ),
    Operation(
        "conv_transpose1d",
        Eq(
            output[n, o, u],
            Total(
                input[n, c, t] * weight[c, o, k],
                c,
                t,
                k,
                where=Eq(u, stride * t + dilation * k - padding),
            )
            + bias[o],
        ),
        inputs=(input[n, c, t], weight[c, o, k], optional(bias[o], 0)),
        parameters={
            stride: 1,
            padding: 0,
            output_padding: 0,
            dilation: 1,
            size(u): (size(t) - 1) * stride
            + dilation * (size(k) - 1)
            + 1
            - 2 * padding
            + output_padding,
        },
    ),
    Operation(
        "avg_pool1d",
        Eq(output[n, c, u], Mean(input[n, c, stride * u + k], k)),
        inputs=(input[n, c, t],),
        parameters={"kernel_size": size(k), stride: None},
    ),
    Operation(
        "avg_pool2d",
        Eq(output[n, c, x, y], Mean(input[n, c, stride * x + i, stride * y + j], i, j)),
        inputs=(input[n, c, h, w],),
        parameters={"kernel_height": size(i), "kernel_width": size(j), stride: None},
    ),
    # The gradient goes to the first of equal values, as in torch.
    Operation(
        "max_pool1d",
        Eq(output[n, c, u], ReduceMax(input[n, c, stride * u + k], k)),
        inputs=(input[n, c, t],),
        parameters={"kernel_size": size(k), stride: None},
    ),
    Operation(
        "max_pool2d",
        Eq(output[n, c, x, y], ReduceMax(input[n, c, stride * x + i, stride * y + j], i, j)),
        inputs=(input[n, c, h, w],),
        parameters={"kernel_height": size(i), "kernel_width": size(j), stride: None},
    ),
    Operation(
        "lp_pool1d",
        Eq(output[n, c, u], Sum(input[n, c, stride * u + k] ** norm_type, k) ** (1 / norm_type)),
        inputs=(input[n, c, t],),
        parameters={norm_type: None, "kernel_size": size(k), stride: None},
    ),
    # Over all positions: adaptive_avg_pool and adaptive_max_pool to size 1, without these axes.
    Operation("global_avg_pool", Eq(output[n, c], Mean(input[n, c, q], q))),
    Operation("global_max_pool", Eq(output[n, c], ReduceMax(input[n, c, q], q))),
)

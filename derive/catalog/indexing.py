"""Elements taken by position, axes joined, split, repeated and shifted: as torch does.

Composite axes are in memory order.
"""

from __future__ import annotations

from sympy import And, Idx, IndexedBase, Max, Piecewise, Sum, exp, floor, symbols

from derive.notation.heads import (
    Composite,
    Concat,
    Eq,
    Holds,
    Mean,
    ReduceAmax,
    ReduceMax,
    Total,
    axis,
    boolean,
    choice,
    group,
    integer,
    size,
)
from derive.notation.specification import Operation

p, q = group("p"), group("q")
c, d, g, h, i, j, k, l, m = symbols("c d g h i j k l m", integer=True)  # noqa: E741
n, r, t, u, v, w, x, y = symbols("n r t u v w x y", integer=True)
shifts, step, stride, dilation, position, left, right = symbols(
    "shifts step stride dilation position left right", integer=True
)
alpha, value = symbols("alpha value")
A, B, C = map(IndexedBase, "ABC")
input, weight, output = map(IndexedBase, ("input", "weight", "output"))
index, indices, source, src = map(IndexedBase, ("index", "indices", "source", "src"))
data, segment_ids = map(IndexedBase, ("data", "segment_ids"))
total, average, largest = map(IndexedBase, ("total", "average", "largest"))
condition, other, mask = map(IndexedBase, ("condition", "other", "mask"))
at = IndexedBase("at")

OPERATIONS = (
    # As torch.nn.functional.embedding; rows that are looked up often add up their gradients.
    Operation(
        "embedding", Eq(output[p, d], weight[input[p], d]), inputs=(integer(input[p]), weight[v, d])
    ),
    # The last two axes as one, as torch.flatten(input, -2).
    Operation("flatten", Eq(output[p, Composite(t, d)], input[p, t, d]), inputs=(input[p, t, d],)),
    # The last axis as two, of which the second has the given size: the inverse of flatten.
    Operation(
        "unflatten",
        Eq(output[p, t, d], input[p, Composite(t, d)]),
        inputs=(input[p, Composite(t, d)],),
        parameters={"inner": size(d)},
    ),
    # One after the other along dim, as torch.concat((A, B), dim).
    Operation(
        "concat",
        Eq(C[p, m, q], Concat(m, A[p, m, q], B[p, m, q])),
        inputs=(A[p, k, q], B[p, l, q]),
        parameters={"dim": axis(k, 0)},
    ),
    # torch.gather, take_along_dim and index_select: positions on the axis dim of the input, which
    # has its own size. Those of take_along_dim and take count from the end where they are negative.
    Operation(
        "gather",
        Eq(output[p, k, q], input[p, index[p, k, q], q]),
        inputs=(input[p, v, q], integer(index[p, k, q])),
        parameters={"dim": axis(v)},
    ),
    Operation(
        "take_along_dim",
        Eq(at[p, k, q], indices[p, k, q] + Piecewise((size(v), indices[p, k, q] < 0), (0, True))),
        Eq(output[p, k, q], input[p, at[p, k, q], q]),
        inputs=(input[p, v, q], integer(indices[p, k, q])),
        parameters={"dim": axis(v)},
    ),
    Operation(
        "index_select",
        Eq(output[p, k, q], input[p, index[k], q]),
        inputs=(input[p, v, q], integer(index[k])),
        parameters={"dim": axis(v)},
    ),
    Operation(
        "take",
        Eq(at[p], index[p] + Piecewise((size(v), index[p] < 0), (0, True))),
        Eq(output[p], input[at[p]]),
        inputs=(input[v], integer(index[p])),
    ),
    # The values at one position of an axis, as torch.select.
    Operation(
        "select",
        Eq(output[p, q], input[p, position, q]),
        inputs=(input[p, t, q],),
        parameters={"dim": axis(t), position: None},
    ),
    # What torch adds in place: sources that have the same index add up.
    Operation(
        "index_add",
        Eq(
            output[p, v, q],
            input[p, v, q] + alpha * Total(source[p, k, q], k, where=Eq(index[k], v)),
        ),
        inputs=(input[p, v, q], integer(index[k]), source[p, k, q]),
        parameters={"dim": axis(v), alpha: 1},
    ),
    Operation(
        "scatter_add",
        Eq(output[p, v, q], input[p, v, q] + Total(src[p, k, q], k, where=Eq(index[p, k, q], v))),
        inputs=(input[p, v, q], integer(index[p, k, q]), src[p, k, q]),
        parameters={"dim": axis(v)},
    ),
    # What each segment holds: its sum, its mean (of nothing: nan) and its maximum (-inf).
    Operation(
        "segment_sum",
        Eq(output[g, q], Total(data[n, q], n, where=Eq(segment_ids[n], g))),
        inputs=(data[n, q], integer(segment_ids[n])),
        parameters={"num_segments": size(g)},
    ),
    Operation(
        "segment_mean",
        Eq(output[g, q], Mean(data[n, q], n, where=Eq(segment_ids[n], g))),
        inputs=(data[n, q], integer(segment_ids[n])),
        parameters={"num_segments": size(g)},
    ),
    Operation(
        "segment_max",
        Eq(output[g, q], ReduceAmax(data[n, q], n, where=Eq(segment_ids[n], g))),
        inputs=(data[n, q], integer(segment_ids[n])),
        parameters={"num_segments": size(g)},
    ),
    # Shares of the segment that a row belongs to; every id is one of a segment.
    Operation(
        "segment_softmax",
        Eq(total[g, q], Total(exp(data[n, q]), n, where=Eq(segment_ids[n], g))),
        Eq(output[n, q], exp(data[n, q]) / total[segment_ids[n], q]),
        inputs=(data[n, q], integer(segment_ids[n])),
        parameters={"num_segments": size(g)},
    ),
    # The rows of each bag, joined; as torch.nn.functional.embedding_bag with two axes.
    Operation(
        "embedding_bag",
        Eq(average[n, d], Mean(weight[input[n, t], d], t)),
        Eq(total[n, d], Sum(weight[input[n, t], d], t)),
        Eq(largest[n, d], ReduceMax(weight[input[n, t], d], t)),
        inputs=(integer(input[n, t]), weight[v, d]),
        parameters={"mode": choice("mean", "sum", "max")},
        outputs={"mean": average, "sum": total, "max": largest},
    ),
    # Embedding as the product of a one-hot row with the weight: a number that is no row gives 0.
    Operation(
        "one_hot_embedding",
        Eq(output[p, d], Total(weight[v, d], v, where=Eq(input[p], v))),
        inputs=(integer(input[p]), weight[v, d]),
    ),
    # Values move by ``shifts`` along dim: what falls off is lost, and 0 comes in.
    Operation(
        "shift",
        Eq(
            output[p, t, q],
            Piecewise((input[p, t - shifts, q], And(t >= shifts, t < size(t) + shifts)), (0, True)),
        ),
        inputs=(input[p, t, q],),
        parameters={shifts: 1, "dim": axis(t, -1)},
    ),
    # What falls off comes in again: by shifts modulo size(t) places, which is the size of r.
    Operation(
        "roll",
        Eq(
            output[p, t, q],
            Piecewise(
                (input[p, t - size(r), q], t >= size(r)), (input[p, t - size(r) + size(t), q], True)
            ),
        ),
        inputs=(input[p, t, q],),
        parameters={
            shifts: 1,
            "dim": axis(t, -1),
            size(r): shifts - Max(size(t), 1) * floor(shifts / Max(size(t), 1)),
        },
    ),
    Operation(
        "flip",
        Eq(output[p, t, q], input[p, size(t) - 1 - t, q]),
        inputs=(input[p, t, q],),
        parameters={"dim": axis(t)},
    ),
    Operation(
        "where",
        Eq(output[p], Piecewise((input[p], Holds(condition[p])), (other[p], True))),
        inputs=(boolean(condition[p]), input[p], other[p]),
    ),
    Operation(
        "masked_fill",
        Eq(output[p], Piecewise((value, Holds(mask[p])), (input[p], True))),
        inputs=(input[p], boolean(mask[p])),
        parameters={value: None},
    ),
    # ``left`` values before the input and ``right`` after it along dim; less than 0 takes away.
    Operation(
        "pad",
        Eq(
            output[p, t, q],
            Piecewise((input[p, t - left, q], And(left <= t, t < left + size(k))), (value, True)),
        ),
        inputs=(input[p, k, q],),
        parameters={
            left: None,
            right: None,
            value: 0,
            "dim": axis(k, -1),
            size(t): left + size(k) + right,
        },
    ),
    # Two tensors as one, along a first axis of size 2.
    Operation(
        "stack",
        Eq(C[k, p], Piecewise((A[p], Eq(k, 0)), (B[p], True))),
        inputs=(A[p], B[p]),
        parameters={size(k): 2},
    ),
    # ``length`` copies along a new first axis.
    Operation(
        "expand", Eq(output[n, p], input[p]), inputs=(input[p],), parameters={"length": size(n)}
    ),
    # Each value ``repeats`` times, and all of them one time after the other.
    Operation(
        "repeat_interleave",
        Eq(output[p, Composite(t, r), q], input[p, t, q]),
        inputs=(input[p, t, q],),
        parameters={"repeats": size(r), "dim": axis(t)},
    ),
    Operation(
        "tile",
        Eq(output[p, Composite(r, t), q], input[p, t, q]),
        inputs=(input[p, t, q],),
        parameters={"repeats": size(r), "dim": axis(t)},
    ),
    # Windows of ``length`` values, every ``step`` of them, as torch.Tensor.unfold.
    Operation(
        "unfold",
        Eq(output[p, u, q, k], input[p, step * u + k, q]),
        inputs=(input[p, t, q],),
        parameters={"dimension": axis(t), "length": size(k), step: None},
    ),
    # The patches of an image as columns, torch.nn.functional.unfold.
    Operation(
        "im2col",
        Eq(
            output[n, Composite(c, i, j), Composite(x, y)],
            input[n, c, stride * x + dilation * i, stride * y + dilation * j],
        ),
        inputs=(input[n, c, h, w],),
        parameters={"kernel_height": size(i), "kernel_width": size(j), dilation: 1, stride: 1},
    ),
    # Depth to space: each channel of the output is upscale_factor**2 channels of the input.
    Operation(
        "pixel_shuffle",
        Eq(
            output[p, c, Composite(h, Idx(i, r)), Composite(w, Idx(j, r))],
            input[p, Composite(c, Idx(i, r), Idx(j, r)), h, w],
        ),
        inputs=(input[p, Composite(c, i, j), h, w],),
        parameters={"upscale_factor": size(i)},
    ),
    Operation(
        "pixel_unshuffle",
        Eq(
            output[p, Composite(c, Idx(i, r), Idx(j, r)), h, w],
            input[p, c, Composite(h, Idx(i, r)), Composite(w, Idx(j, r))],
        ),
        inputs=(input[p, c, Composite(h, i), Composite(w, j)],),
        parameters={"downscale_factor": size(i)},
    ),
    Operation(
        "channel_shuffle",
        Eq(output[n, Composite(c, g), q], input[n, Composite(g, c), q]),
        inputs=(input[n, Composite(g, c), q],),
        parameters={"groups": size(g)},
    ),
    # A matrix that is constant along its diagonals; weight[0] is that of the upper right corner.
    Operation(
        "toeplitz",
        Eq(output[i, j], weight[i - j + size(j) - 1]),
        inputs=(weight[d],),
        parameters={"rows": size(i), "columns": size(j)},
    ),
    # Scores by distance to scores by position: row i of the output begins size(i) - 1 - i later.
    Operation(
        "relative_shift",
        Eq(output[p, i, j], input[p, i, j - i + size(i) - 1]),
        inputs=(input[p, i, r],),
    ),
)

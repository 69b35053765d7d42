"""Attention: S says how much each position i asks for each position j, P its softmax over j.

``b`` are any axes of a batch, ``h`` is the head. Scores are divided by the root of the number of
features, as in torch.nn.functional.scaled_dot_product_attention.
"""

from __future__ import annotations

from sympy import IndexedBase, Piecewise, Sum, cos, exp, sin, sqrt, symbols

from derive.notation.heads import (
    Composite,
    Eq,
    Holds,
    Softmax,
    Total,
    boolean,
    group,
    integer,
    optional,
    size,
)
from derive.notation.specification import Operation

b = group("b")
c, d, e, f, g, h, i, j, k, l, n, r, t, v = symbols("c d e f g h i j k l n r t v", integer=True)  # noqa: E741
window, base, negative_slope = symbols("window base negative_slope")
query, key, value, attn_mask = map(IndexedBase, ("query", "key", "value", "attn_mask"))
x, memory, slopes, bias, buckets = map(IndexedBase, ("x", "memory", "slopes", "bias", "buckets"))
Wq, Wk, Wv, Wo = map(IndexedBase, ("Wq", "Wk", "Wv", "Wo"))
bq, bk, bv, bo = map(IndexedBase, ("bq", "bk", "bv", "bo"))
Q, K, V, S, P, output = map(IndexedBase, ("Q", "K", "V", "S", "P", "output"))
context = IndexedBase("context")
phi, psi, state, total = map(IndexedBase, ("phi", "psi", "state", "total"))
angle, pair = map(IndexedBase, ("angle", "pair"))
a, scores, projected, weight = map(IndexedBase, ("a", "scores", "projected", "weight"))
att_source, att_target = map(IndexedBase, ("att_source", "att_target"))
source, target = map(IndexedBase, ("source", "target"))

OPERATIONS = (
    # attn_mask is added to the scores, as torch does with a mask of numbers.
    Operation(
        "scaled_dot_product_attention",
        Eq(S[b, i, j], Sum(query[b, i, d] * key[b, j, d], d) / sqrt(size(d)) + attn_mask[i, j]),
        Eq(P[b, i, j], Softmax(S[b, i, j], j)),
        Eq(output[b, i, e], Sum(P[b, i, j] * value[b, j, e], j)),
        inputs=(query[b, i, d], key[b, j, d], value[b, j, e], optional(attn_mask[i, j], 0)),
    ),
    # Position i attends where attn_mask holds; where it holds nowhere, the output is 0.
    Operation(
        "masked_attention",
        Eq(S[b, i, j], Sum(query[b, i, d] * key[b, j, d], d) / sqrt(size(d))),
        Eq(P[b, i, j], Softmax(S[b, i, j], j, where=Holds(attn_mask[i, j]))),
        Eq(output[b, i, e], Sum(P[b, i, j] * value[b, j, e], j)),
        inputs=(query[b, i, d], key[b, j, d], value[b, j, e], boolean(attn_mask[i, j])),
    ),
    # Position i attends to itself and to what comes before it, torch's is_causal=True.
    Operation(
        "causal_attention",
        Eq(S[b, i, j], Sum(query[b, i, d] * key[b, j, d], d) / sqrt(size(d))),
        Eq(P[b, i, j], Softmax(S[b, i, j], j, where=j <= i)),
        Eq(output[b, i, e], Sum(P[b, i, j] * value[b, j, e], j)),
        inputs=(query[b, i, d], key[b, j, d], value[b, j, e]),
    ),
    # Causal, to the last ``window`` positions.
    Operation(
        "sliding_window_attention",
        Eq(S[b, i, j], Sum(query[b, i, d] * key[b, j, d], d) / sqrt(size(d))),
        Eq(P[b, i, j], Softmax(S[b, i, j], j, where=(j <= i) & (i - j < window))),
        Eq(output[b, i, e], Sum(P[b, i, j] * value[b, j, e], j)),
        inputs=(query[b, i, d], key[b, j, d], value[b, j, e]),
        parameters={window: None},
    ),
    # Causal; a score falls linearly with the distance, with a slope for each head (ALiBi).
    Operation(
        "alibi_attention",
        Eq(
            S[b, h, i, j],
            Sum(query[b, h, i, d] * key[b, h, j, d], d) / sqrt(size(d)) + slopes[h] * (j - i),
        ),
        Eq(P[b, h, i, j], Softmax(S[b, h, i, j], j, where=j <= i)),
        Eq(output[b, h, i, e], Sum(P[b, h, i, j] * value[b, h, j, e], j)),
        inputs=(query[b, h, i, d], key[b, h, j, d], value[b, h, j, e], slopes[h]),
    ),
    # A bias for each bucket of relative positions and each head, and scores as they are (T5).
    Operation(
        "relative_attention",
        Eq(S[b, h, i, j], Sum(query[b, h, i, d] * key[b, h, j, d], d) + bias[buckets[i, j], h]),
        Eq(P[b, h, i, j], Softmax(S[b, h, i, j], j)),
        Eq(output[b, h, i, e], Sum(P[b, h, i, j] * value[b, h, j, e], j)),
        inputs=(
            query[b, h, i, d],
            key[b, h, j, d],
            value[b, h, j, e],
            bias[v, h],
            integer(buckets[i, j]),
        ),
    ),
    # r heads of the query share each head g of key and value, torch's enable_gqa=True.
    Operation(
        "grouped_query_attention",
        Eq(
            S[b, g, r, i, j],
            Sum(query[b, Composite(g, r), i, d] * key[b, g, j, d], d) / sqrt(size(d)),
        ),
        Eq(P[b, g, r, i, j], Softmax(S[b, g, r, i, j], j)),
        Eq(output[b, Composite(g, r), i, e], Sum(P[b, g, r, i, j] * value[b, g, j, e], j)),
        inputs=(query[b, Composite(g, r), i, d], key[b, g, j, d], value[b, g, j, e]),
    ),
    # torch.nn.MultiheadAttention with batch_first=True: W and b of each projection, in, in, in
    # and out, as torch.nn.functional.linear has them; head h has its own features d.
    Operation(
        "multi_head_attention",
        Eq(Q[n, h, i, d], Sum(query[n, i, k] * Wq[Composite(h, d), k], k) + bq[Composite(h, d)]),
        Eq(K[n, h, j, d], Sum(key[n, j, k] * Wk[Composite(h, d), k], k) + bk[Composite(h, d)]),
        Eq(V[n, h, j, d], Sum(value[n, j, k] * Wv[Composite(h, d), k], k) + bv[Composite(h, d)]),
        Eq(S[n, h, i, j], Sum(Q[n, h, i, d] * K[n, h, j, d], d) / sqrt(size(d))),
        Eq(P[n, h, i, j], Softmax(S[n, h, i, j], j)),
        Eq(context[n, i, Composite(h, d)], Sum(P[n, h, i, j] * V[n, h, j, d], j)),
        Eq(output[n, i, c], Sum(context[n, i, e] * Wo[c, e], e) + bo[c]),
        inputs=(
            query[n, i, k],
            key[n, j, k],
            value[n, j, k],
            Wq[Composite(h, d), k],
            Wk[Composite(h, d), k],
            Wv[Composite(h, d), k],
            Wo[c, e],
            optional(bq[Composite(h, d)], 0),
            optional(bk[Composite(h, d)], 0),
            optional(bv[Composite(h, d)], 0),
            optional(bo[c], 0),
        ),
        parameters={"num_heads": size(h)},
    ),
    # One head, in which each position of x attends to itself and to what comes before it.
    Operation(
        "causal_self_attention",
        Eq(Q[n, i, d], Sum(x[n, i, k] * Wq[d, k], k)),
        Eq(K[n, j, d], Sum(x[n, j, k] * Wk[d, k], k)),
        Eq(V[n, j, e], Sum(x[n, j, k] * Wv[e, k], k)),
        Eq(S[n, i, j], Sum(Q[n, i, d] * K[n, j, d], d) / sqrt(size(d))),
        Eq(P[n, i, j], Softmax(S[n, i, j], j, where=j <= i)),
        Eq(output[n, i, e], Sum(P[n, i, j] * V[n, j, e], j)),
        inputs=(x[n, i, k], Wq[d, k], Wk[d, k], Wv[e, k]),
    ),
    # One head, in which each position of x attends to those of memory.
    Operation(
        "cross_attention",
        Eq(Q[b, i, d], Sum(x[b, i, k] * Wq[d, k], k)),
        Eq(K[b, j, d], Sum(memory[b, j, l] * Wk[d, l], l)),
        Eq(V[b, j, e], Sum(memory[b, j, l] * Wv[e, l], l)),
        Eq(S[b, i, j], Sum(Q[b, i, d] * K[b, j, d], d) / sqrt(size(d))),
        Eq(P[b, i, j], Softmax(S[b, i, j], j)),
        Eq(context[b, i, e], Sum(P[b, i, j] * V[b, j, e], j)),
        Eq(output[b, i, c], Sum(context[b, i, e] * Wo[c, e], e)),
        inputs=(x[b, i, k], memory[b, j, l], Wq[d, k], Wk[d, l], Wv[e, l], Wo[c, e]),
    ),
    # phi and psi are elu + 1, which is positive; no score of a pair of positions is computed.
    Operation(
        "linear_attention",
        Eq(
            phi[b, i, d],
            Piecewise((query[b, i, d] + 1, query[b, i, d] > 0), (exp(query[b, i, d]), True)),
        ),
        Eq(
            psi[b, j, d], Piecewise((key[b, j, d] + 1, key[b, j, d] > 0), (exp(key[b, j, d]), True))
        ),
        Eq(state[b, d, e], Sum(psi[b, j, d] * value[b, j, e], j)),
        Eq(total[b, i], Sum(phi[b, i, d] * Sum(psi[b, j, d], j), d)),
        Eq(output[b, i, e], Sum(phi[b, i, d] * state[b, d, e], d) / total[b, i]),
        inputs=(query[b, i, d], key[b, j, d], value[b, j, e]),
    ),
    # The same, each position attending to itself and to what comes before it.
    Operation(
        "causal_linear_attention",
        Eq(
            phi[b, i, d],
            Piecewise((query[b, i, d] + 1, query[b, i, d] > 0), (exp(query[b, i, d]), True)),
        ),
        Eq(
            psi[b, j, d], Piecewise((key[b, j, d] + 1, key[b, j, d] > 0), (exp(key[b, j, d]), True))
        ),
        Eq(S[b, i, j], Piecewise((Sum(phi[b, i, d] * psi[b, j, d], d), j <= i), (0, True))),
        Eq(total[b, i], Sum(S[b, i, j], j)),
        Eq(output[b, i, e], Sum(S[b, i, j] * value[b, j, e], j) / total[b, i]),
        inputs=(query[b, i, d], key[b, j, d], value[b, j, e]),
    ),
    # Node n attends to the nodes from which an edge leads to it (Velickovic and others, 2018): a is
    # what edge k asks for in head h, and a node without such edges gets 0.
    Operation(
        "graph_attention",
        Eq(projected[n, h, d], Sum(x[n, f] * weight[Composite(h, d), f], f)),
        Eq(
            scores[k, h],
            Sum(att_source[h, d] * projected[source[k], h, d], d)
            + Sum(att_target[h, d] * projected[target[k], h, d], d),
        ),
        Eq(
            a[k, h],
            Piecewise((scores[k, h], scores[k, h] > 0), (negative_slope * scores[k, h], True)),
        ),
        Eq(total[n, h], Total(exp(a[k, h]), k, where=Eq(target[k], n))),
        Eq(
            output[n, Composite(h, d)],
            Total(
                exp(a[k, h]) / total[n, h] * projected[source[k], h, d], k, where=Eq(target[k], n)
            ),
        ),
        inputs=(
            x[n, f],
            weight[Composite(h, d), f],
            att_source[h, d],
            att_target[h, d],
            integer(source[k]),
            integer(target[k]),
        ),
        parameters={negative_slope: 0.2},
    ),
    # Turns each pair of features (x[d], x[d + size(d)]) by an angle that grows with t.
    Operation(
        "rotary_embedding",
        Eq(angle[t, d], t * base ** (-d / size(d))),
        Eq(pair[b, t, r, d], x[b, t, Composite(r, d)]),
        Eq(
            output[b, t, Composite(r, d)],
            pair[b, t, r, d] * cos(angle[t, d])
            + (2 * r - 1) * pair[b, t, 1 - r, d] * sin(angle[t, d]),
        ),
        inputs=(x[b, t, Composite(r, d)],),
        parameters={base: 10000, size(r): 2},
    ),
)

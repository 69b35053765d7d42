"""Whole networks, each as one operation whose equations name every intermediate tensor."""

from __future__ import annotations

from sympy import IndexedBase, Rational, Sum, exp, log, symbols, tanh

from derive.notation.heads import Composite, Eq, Mean, ReduceMax, integer, size
from derive.notation.specification import Operation

n, t, v, d, k, j, c, o = symbols("n t v d k j c o", integer=True)
eps, loss = symbols("eps loss")
C, W1, b1, W2, b2 = map(IndexedBase, ("C", "W1", "b1", "W2", "b2"))
bngain, bnbias, Xb, Yb = map(IndexedBase, ("bngain", "bnbias", "Xb", "Yb"))
emb, embcat, hprebn = map(IndexedBase, ("emb", "embcat", "hprebn"))
bnmeani, bndiff, bndiff2 = map(IndexedBase, ("bnmeani", "bndiff", "bndiff2"))
bnvar, bnvar_inv, bnraw = map(IndexedBase, ("bnvar", "bnvar_inv", "bnraw"))
hpreact, h, logits = map(IndexedBase, ("hpreact", "h", "logits"))
logit_maxes, norm_logits = map(IndexedBase, ("logit_maxes", "norm_logits"))
counts, counts_sum, counts_sum_inv = map(IndexedBase, ("counts", "counts_sum", "counts_sum_inv"))
probs, logprobs = map(IndexedBase, ("probs", "logprobs"))

OPERATIONS = (
    # Predicts character Yb[n] from the t characters Xb[n,t] before it: embedding, linear layer,
    # batch norm, tanh, linear layer, and the cross-entropy written out in full.
    Operation(
        "character_model",
        Eq(emb[n, t, d], C[Xb[n, t], d]),
        Eq(embcat[n, Composite(t, d)], emb[n, t, d]),
        Eq(hprebn[n, j], Sum(embcat[n, k] * W1[k, j], k) + b1[j]),
        Eq(bnmeani[0, j], Sum(hprebn[n, j], n) / size(n)),
        Eq(bndiff[n, j], hprebn[n, j] - bnmeani[0, j]),
        Eq(bndiff2[n, j], bndiff[n, j] ** 2),
        Eq(bnvar[0, j], Sum(bndiff2[n, j], n) / (size(n) - 1)),
        Eq(bnvar_inv[0, j], (bnvar[0, j] + eps) ** Rational(-1, 2)),
        Eq(bnraw[n, j], bndiff[n, j] * bnvar_inv[0, j]),
        Eq(hpreact[n, j], bngain[0, j] * bnraw[n, j] + bnbias[0, j]),
        Eq(h[n, j], tanh(hpreact[n, j])),
        Eq(logits[n, c], Sum(h[n, j] * W2[j, c], j) + b2[c]),
        Eq(logit_maxes[n, 0], ReduceMax(logits[n, c], c)),
        Eq(norm_logits[n, c], logits[n, c] - logit_maxes[n, 0]),
        Eq(counts[n, c], exp(norm_logits[n, c])),
        Eq(counts_sum[n, 0], Sum(counts[n, c], c)),
        Eq(counts_sum_inv[n, 0], counts_sum[n, 0] ** -1),
        Eq(probs[n, c], counts[n, c] * counts_sum_inv[n, 0]),
        Eq(logprobs[n, c], log(probs[n, c])),
        Eq(loss, -Mean(logprobs[n, Yb[n]], n)),
        inputs=(
            C[v, d],
            W1[k, j],
            b1[j],
            W2[j, c],
            b2[c],
            bngain[o, j],
            bnbias[o, j],
            integer(Xb[n, t]),
            integer(Yb[n]),
        ),
        parameters={eps: 1e-5, size(o): 1},
    ),
)

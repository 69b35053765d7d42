"""The network of seed 004, written out in torch."""

import torch

from derive import catalog

OP = catalog.find("character_model")
INPUTS = ("C", "W1", "b1", "W2", "b2", "bngain", "bnbias")
EQUATIONS = tuple(e.name for e in OP.equations)
SEED_SIZES = {"n": 32, "t": 3, "v": 27, "d": 10, "j": 64, "c": 27}
SMALL_SIZES = {"n": 4, "t": 2, "v": 6, "d": 3, "j": 5, "c": 7}


def arguments(sizes, dtype):
    """Parameters as the seed draws them, then the contexts and the targets of a minibatch."""
    n, t, v, d, j, c = (sizes[letter] for letter in "ntvdjc")
    g = torch.Generator().manual_seed(2147483647)

    def normal(*shape):
        return torch.randn(shape, generator=g).to(dtype)

    return (
        normal(v, d),
        normal(t * d, j) * (5 / 3) / (t * d) ** 0.5,
        normal(j) * 0.1,
        normal(j, c) * 0.1,
        normal(c) * 0.1,
        normal(1, j) * 0.1 + 1.0,
        normal(1, j) * 0.1,
        torch.randint(0, v, (n, t), generator=g),
        torch.randint(0, c, (n,), generator=g),
    )


def forward(C, W1, b1, W2, b2, bngain, bnbias, Xb, Yb):
    """The seed's forward pass, step by step: all of its names."""
    n = Xb.shape[0]
    emb = C[Xb]
    embcat = emb.view(emb.shape[0], -1)
    hprebn = embcat @ W1 + b1
    bnmeani = 1 / n * hprebn.sum(0, keepdim=True)
    bndiff = hprebn - bnmeani
    bndiff2 = bndiff**2
    bnvar = 1 / (n - 1) * (bndiff2).sum(0, keepdim=True)
    bnvar_inv = (bnvar + 1e-5) ** -0.5
    bnraw = bndiff * bnvar_inv
    hpreact = bngain * bnraw + bnbias
    h = torch.tanh(hpreact)
    logits = h @ W2 + b2
    logit_maxes = logits.max(1, keepdim=True).values
    norm_logits = logits - logit_maxes
    counts = norm_logits.exp()
    counts_sum = counts.sum(1, keepdims=True)
    counts_sum_inv = counts_sum**-1
    probs = counts * counts_sum_inv
    logprobs = probs.log()
    loss = -logprobs[range(n), Yb].mean()
    found = locals()
    return {name: found[name] for name in EQUATIONS}

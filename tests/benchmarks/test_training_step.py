"""One training step of the network of seed 004: the generated function against loss.backward().

python -m pytest tests/benchmarks --benchmark-enable -s

Both step the same parameters on the same minibatch at the seed's sizes, interleaved in one
process with a pause between; the figure is the ratio of the minima, which depends on the machine:
it is reported, and what is asserted is that all take the same steps.
"""

import time

import pytest
import torch
import torch.nn.functional as F
from kit.network import INPUTS, OP, arguments, forward

import derive

SIZES = {"n": 32, "t": 3, "v": 27, "d": 10, "j": 200, "c": 27}
RATE = 0.1


def concise(C, W1, b1, W2, b2, bngain, bnbias, Xb, Yb):
    """The forward of the seed's training loop."""
    emb = C[Xb]
    embcat = emb.view(emb.shape[0], -1)
    hprebn = embcat @ W1 + b1
    bnmean = hprebn.mean(0, keepdim=True)
    bnvar = hprebn.var(0, keepdim=True, unbiased=True)
    bnvar_inv = (bnvar + 1e-5) ** -0.5
    bnraw = (hprebn - bnmean) * bnvar_inv
    hpreact = bngain * bnraw + bnbias
    h = torch.tanh(hpreact)
    logits = h @ W2 + b2
    return F.cross_entropy(logits, Yb)


def by_autograd(network):
    """A step through loss.backward()."""
    *parameters, X, Y = (a.clone() for a in arguments(SIZES, torch.float32))
    for p in parameters:
        p.requires_grad_()

    def step():
        for p in parameters:
            p.grad = None
        loss = network(*parameters, X, Y)
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= RATE * p.grad
        return loss.detach()

    return step


def generated():
    """A step of the function that is generated from the operation."""
    function = derive.value_and_grad(OP)
    *parameters, X, Y = (a.clone() for a in arguments(SIZES, torch.float32))

    @torch.no_grad()
    def step():
        loss, gradients = function(*parameters, X, Y)
        for name, p in zip(INPUTS, parameters, strict=True):
            p -= RATE * gradients[name]
        return loss.detach()

    return step


@pytest.mark.parametrize("threads", [1, 2])
def test_training_step(threads, benchmark):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    steps = {
        "generated": generated(),
        "spelled out": by_autograd(lambda *args: forward(*args)["loss"]),
        "concise": by_autograd(concise),
    }
    best = dict.fromkeys(steps, float("inf"))
    try:
        first = {name: float(step()) for name, step in steps.items()}
        rounds = 200 if benchmark.enabled else 1
        for _ in range(rounds):
            for name, step in steps.items():
                time.sleep(0.002 if benchmark.enabled else 0)
                start = time.perf_counter()
                for _ in range(5):
                    step()
                best[name] = min(best[name], (time.perf_counter() - start) / 5)
        last = {name: float(step()) for name, step in steps.items()}
    finally:
        torch.set_num_threads(before)
    for losses in (first, last):
        assert losses == pytest.approx(dict.fromkeys(losses, losses["concise"]), rel=1e-3)
    ratios = {name: best["generated"] / best[name] for name in steps if name != "generated"}
    for name, ratio in ratios.items():
        print(f"\n{threads} threads: {ratio:.2f} of the step {name}, ", end="")
        print(f"{best['generated'] * 1e6:.0f} against {best[name] * 1e6:.0f} µs", end="")
        benchmark.extra_info[f"ratio to {name}"] = ratio
    benchmark.pedantic(steps["generated"], rounds=3)

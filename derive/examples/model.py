"""The character model: its first parameters, its training, and what it predicts.

Forward and backward are generated: those of a training step from the catalog's character_model,
what a trained model needs from ``character_model.derive``. Nothing here records a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import derive
from derive import catalog
from derive.examples.data import BLOCK_SIZE
from derive.examples.program import extra

with extra():
    import torch
    from torch import Tensor

    from derive.generated.cross_entropy import cross_entropy
    from derive.generated.softmax import softmax

__all__ = ["Parameters", "calibrate", "initial_parameters", "loss", "sample", "train"]

Parameters = dict[str, Tensor]
"""The tensors of the model by name, in the order of its inputs."""

N_EMBD = 10
N_HIDDEN = 200
BATCH_SIZE = 32
NORM_SEED = 42
LONGEST = 100

calibration, prediction = map(
    derive.load, derive.read(Path(__file__).with_name("character_model.derive"))
)


def initial_parameters(characters: int, generator: torch.Generator) -> Parameters:
    """Random parameters for an alphabet of this size.

    ``generator`` draws those of the linear layers and of the embedding. Gain and bias of the
    batch norm come from a generator of their own with seed 42, so that a run can be repeated.
    """
    fan_in = N_EMBD * BLOCK_SIZE
    own = torch.Generator().manual_seed(NORM_SEED)
    return {
        "C": torch.randn((characters, N_EMBD), generator=generator),
        "W1": torch.randn((fan_in, N_HIDDEN), generator=generator) * (5 / 3) / fan_in**0.5,
        "b1": torch.randn(N_HIDDEN, generator=generator) * 0.1,
        "W2": torch.randn((N_HIDDEN, characters), generator=generator) * 0.1,
        "b2": torch.randn(characters, generator=generator) * 0.1,
        "bngain": torch.randn((1, N_HIDDEN), generator=own) * 0.1 + 1.0,
        "bnbias": torch.randn((1, N_HIDDEN), generator=own) * 0.1,
    }


@torch.no_grad()
def train(
    parameters: Parameters,
    X: Tensor,
    Y: Tensor,
    *,
    steps: int,
    generator: torch.Generator,
    rate: float = 0.1,
) -> Iterator[float]:
    """Gradient descent in place, on a random batch a step; the loss of each step as it comes.

    The learning rate is a tenth in the second half of the steps.
    """
    model = catalog.find("character_model")
    assert model is not None
    step = derive.value_and_grad(model)
    for number in range(steps):
        batch = torch.randint(0, X.shape[0], (BATCH_SIZE,), generator=generator).to(X.device)
        value, gradients = step(*parameters.values(), X[batch], Y[batch])
        now = rate if number < steps // 2 else rate / 10
        for name, parameter in parameters.items():
            parameter.sub_(gradients[name], alpha=now)
        yield value.item()


@torch.no_grad()
def calibrate(parameters: Parameters, X: Tensor) -> Parameters:
    """The parameters with the mean and variance that batch norm meets over all of X."""
    C, W1, b1 = (parameters[name] for name in ("C", "W1", "b1"))
    bnmean, bnvar = calibration(C, W1, b1, X)
    return {**parameters, "bnmean": bnmean, "bnvar": bnvar}


@torch.no_grad()
def loss(calibrated: Parameters, X: Tensor, Y: Tensor) -> float:
    """The mean cross-entropy over all of X."""
    logits = prediction(*calibrated.values(), X)
    return float(cross_entropy(logits, Y))


@torch.no_grad()
def sample(calibrated: Parameters, generator: torch.Generator) -> list[int]:
    """The characters of a random name, character by character until the end mark comes.

    A name of 100 characters ends there: a model may have learned never to end one.
    """
    device = calibrated["C"].device
    context = [0] * BLOCK_SIZE
    characters: list[int] = []
    while len(characters) < LONGEST:
        X = torch.tensor([context], device=device)
        logits = prediction(*calibrated.values(), X)
        probs = softmax(logits, dim=1)
        drawn = int(torch.multinomial(probs.cpu(), num_samples=1, generator=generator))
        context = [*context[1:], drawn]
        characters.append(drawn)
        if drawn == 0:
            break
    return characters

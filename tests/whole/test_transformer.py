"""A small transformer of generated functions trains as one of torch's own modules does.

Ten steps here; in the long campaign, ``python -m pytest -m long``, 200, and two processes.
"""

import os
import socket
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, HIDDEN, WORDS, LENGTH, BATCH, LAYERS = 32, 4, 48, 40, 12, 8, 2


def generated(name: str) -> Callable[..., Any]:
    """The generated function, of a module that torch.compile may import."""
    function: Callable[..., Any] = getattr(import_module(f"generated.{name}"), name)
    return function


def own(name: str) -> Callable[..., Any]:
    """Torch's own function."""
    plain: dict[str, Callable[..., Any]] = {
        "embedding": lambda index, weight: functional.embedding(index, weight),
        "rms_norm": lambda x, weight: functional.rms_norm(x, weight.shape, weight),
        "linear": functional.linear,
        "causal_attention": lambda q, k, v: functional.scaled_dot_product_attention(
            q, k, v, is_causal=True
        ),
        "swiglu": lambda x, gate: x * functional.silu(gate),
        "linear_cross_entropy": lambda x, weight, target: functional.cross_entropy(
            functional.linear(x, weight), target
        ),
    }
    return plain[name]


class Transformer(nn.Module):
    """Embedding, layers of attention and swiglu with residuals in place, and the loss."""

    def __init__(self, function: Callable[[str], Callable[..., Any]]) -> None:
        super().__init__()
        names = "embedding rms_norm linear causal_attention swiglu linear_cross_entropy".split()
        self.f = {name: function(name) for name in names}
        generator = torch.Generator().manual_seed(0)

        def made(*shape: int) -> nn.Parameter:
            values = torch.randn(shape, generator=generator) / shape[-1] ** 0.5
            return nn.Parameter(values)

        self.words = made(WORDS, WIDTH)
        self.layers = nn.ParameterList()
        for _ in range(LAYERS):
            self.layers.extend([nn.Parameter(torch.ones(WIDTH)), made(3 * WIDTH, WIDTH)])
            self.layers.extend([made(WIDTH, WIDTH), nn.Parameter(torch.ones(WIDTH))])
            self.layers.extend([made(2 * HIDDEN, WIDTH), made(WIDTH, HIDDEN)])
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.head = made(WORDS, WIDTH)

    def forward(self, index: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        f = self.f
        x = f["embedding"](index, self.words)
        layers = list(self.layers)
        for n in range(0, len(layers), 6):
            norm1, qkv, out, norm2, up, down = layers[n : n + 6]
            y = f["linear"](f["rms_norm"](x, norm1), qkv)
            q, k, v = y.unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            y = f["causal_attention"](q, k, v).transpose(1, 2).flatten(2)
            y = f["linear"](y, out)
            y += x
            x = y
            a, b = f["linear"](f["rms_norm"](x, norm2), up).chunk(2, -1)
            y = f["linear"](f["swiglu"](a, b), down)
            y += x
            x = y
        x = f["rms_norm"](x, self.norm)
        return f["linear_cross_entropy"](x.flatten(0, 1), self.head, target.flatten())


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences that count on from a word, some by two."""
    generator = torch.Generator().manual_seed(step)
    first = torch.randint(WORDS, (BATCH, 1), generator=generator)
    by = torch.randint(1, 3, (BATCH, 1), generator=generator)
    words = (first + by * torch.arange(LENGTH + 1)) % WORDS
    return words[:, :-1], words[:, 1:]


def losses(
    function: Callable[[str], Callable[..., Any]], steps: int, kind: str, wrapped: Any = None
) -> list[float]:
    model: Any = Transformer(function)
    run = model if wrapped is None else wrapped(model)
    if kind == "compiled":
        run = torch.compile(model, backend="aot_eager", fullgraph=True)
    half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=half is torch.float16, init_scale=2.0**10)
    found = []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", half) if half else nullcontext():
            loss = run(*batch(step))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append(loss.item())
    return found


KINDS = {"float32": 1e-5, "bfloat16": 0.02, "float16": 0.006, "compiled": 1e-5}
"""How far the losses may lie apart: by the rounding of 200 steps."""


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("bfloat16", 10),
        ("compiled", 10),
        *(pytest.param(kind, 200, marks=pytest.mark.long) for kind in KINDS),
    ],
)
def test_losses_are_those_of_torchs_own_modules(kind, steps):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (losses(function, steps, kind) for function in (generated, own))
    away = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    print(f"{kind}: {theirs[0]:.3f} to {theirs[-1]:.3f}, apart {away:.1e}")
    assert away <= KINDS[kind]
    assert steps < 50 or ours[-1] < 0.5 * ours[0]


def _process(rank: int, port: int, results: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    wrapped = nn.parallel.DistributedDataParallel
    both = [losses(function, 20, "float32", wrapped) for function in (generated, own)]
    if rank == 0:
        results.put(both)
    torch.distributed.destroy_process_group()


@pytest.mark.long
def test_two_processes():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    spawned = torch.multiprocessing.spawn(_process, (port, results), nprocs=2, join=False)
    ours, theirs = results.get()
    while not spawned.join():
        pass
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) <= 1e-5

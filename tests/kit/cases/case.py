"""A call of a generated function beside torch's own, and tensors to call them on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

GENERATED = Path(__file__).parents[3] / "generated"
SHAPES = ((5,), (3, 4), (2, 3, 5), (2, 3, 1, 4))


@cache
def generated(name: str) -> Callable[..., Any]:
    path = GENERATED / f"{name}.py"
    assert path.is_file(), f"{path} is missing: run derive generate"
    return getattr(import_module(f"derive.generated.{name}"), name)


@dataclass(frozen=True)
class Case:
    """A call f(*tensors, **parameters), and torch's own function of the same arguments."""

    name: str
    label: str
    given: list[torch.Tensor | None]
    parameters: dict[str, Any] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    """That of the name unless given."""
    opaque: frozenset[int] = field(default_factory=frozenset)
    """The inputs of which torch's own function gives no gradient."""

    def call(self, *tensors: torch.Tensor | None) -> torch.Tensor:
        return first(generated(self.name)(*tensors, **self.parameters))

    def own(self, *tensors: torch.Tensor | None) -> torch.Tensor:
        assert self.reference is not None
        return first(self.reference(*tensors, **self.parameters))

    def tensors(self) -> list[torch.Tensor | None]:
        """New ones at each call."""
        return [None if x is None else x.clone() for x in self.given]

    def floating(self) -> list[int]:
        return [n for n, x in enumerate(self.given) if x is not None and x.is_floating_point()]


def first(result: Any) -> torch.Tensor:
    """The output that has a gradient; the others are indices."""
    return result if isinstance(result, torch.Tensor) else result[0]


def uniform(shape: tuple[int, ...], low: float, high: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def distinct(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Values at least 0.1 apart and off the integers, of both signs, none 0."""
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return (0.1 * (order.double() - count // 2) + 0.053).reshape(shape)


def labels_of(given: dict[str, bool]) -> str:
    return "".join(f" {name}={is_given}" for name, is_given in given.items())


def positions(*shape: int, below: int, seed: int = 3) -> torch.Tensor:
    """Some of them more than once."""
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(seed))

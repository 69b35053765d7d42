"""A row of the race: an operation, tensors to run it on, and the ways to compute it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from kit.cases import own
from kit.cases.case import generated
from torch import Tensor

Function = Callable[..., Any]
Make = Callable[..., list[Tensor | None]]

OURS, TORCH, COMPOSITE = "ours", "torch", "composite"

MORE = 16


class Draw:
    """Random tensors on a device, the same at each run, no two of one draw alike."""

    def __init__(self, seed: int = 0, device: str = "cpu") -> None:
        self.place: dict[str, Any] = {
            "generator": torch.Generator(device).manual_seed(seed),
            "device": device,
        }

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, **self.place)

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(shape, **self.place)

    def below(self, bound: int, *shape: int) -> Tensor:
        return torch.randint(bound, shape, **self.place)

    def coin(self, *shape: int) -> Tensor:
        return torch.rand(shape, **self.place) < 0.5

    def sign(self, *shape: int) -> Tensor:
        return 2 * self.coin(*shape).float() - 1


def of(shapes: str) -> Make:
    """Tensors of shapes of letters, which are the sizes in the order in which they are met."""

    def make(draw: Draw, *sizes: int) -> list[Tensor | None]:
        size = dict(zip(dict.fromkeys(shapes.replace(" ", "")), sizes, strict=True))
        return [draw.normal(*(size[letter] for letter in shape)) for shape in shapes.split()]

    return make


@dataclass(frozen=True)
class Row:
    """An operation of the race.

    ``make(draw, *sizes)`` gives the tensors, None where an optional one is left out. ``own``, which
    is torch's, and ``composite``, which a person would write, are called with them, ours also with
    the parameters ``given``; all have one value and one gradient, of all tensors of floating point
    but those at the positions ``fixed``.
    ``ours`` is the generated function of the row's name unless it is given: a function that a
    decorator made, say.
    """

    name: str
    make: Make
    own: Function | None = None
    composite: Function | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    small: tuple[int, ...] = ()
    """All 8 unless given."""
    large: tuple[int, ...] = (1024, 1024)
    fixed: tuple[int, ...] = ()
    ours: Function | None = None
    huge: tuple[int, ...] = ()
    """What fills a GPU; the large size with ``MORE`` times the first extent unless given."""
    label: str = ""
    """The size of a row that has one alone, ``large``; otherwise it has three."""

    def sizes(self) -> dict[str, tuple[int, ...]]:
        if self.label:
            return {self.label: self.large}
        first, *others = self.large
        huge = self.huge or (MORE * first, *others)
        small = self.small or (8,) * len(self.large)
        return {"small": small, "large": self.large, "huge": huge}

    def ways(self) -> dict[str, Function]:
        """Ours, torch's own and the composite, those that there are, as functions of tensors."""
        ours = generated(self.name) if self.ours is None else self.ours
        given = dict(self.given)
        found = {OURS: (lambda *tensors: ours(*tensors, **given)) if given else ours}
        for name, function in ((TORCH, self.own), (COMPOSITE, self.composite)):
            if function is not None:
                found[name] = function
        return found

    def tensors(
        self, size: str, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> list[Tensor | None]:
        """New ones, which want a gradient where the row has one."""
        made = self.make(Draw(device=device), *self.sizes()[size])
        return [
            x
            if x is None or not x.is_floating_point()
            else x.to(dtype).requires_grad_(n not in self.fixed)
            for n, x in enumerate(made)
        ]


def of_torch(
    name: str,
    make: Make,
    composite: Function | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Row:
    """A row of which torch's own function is that of the cases, with the parameters of ours."""
    function = partial(own(name), **given) if given else own(name)
    return Row(name, make, function, composite, given, **more)

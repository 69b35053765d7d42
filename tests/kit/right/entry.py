"""A right Function with example calls and an oracle."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.autograd import Function


@dataclass(frozen=True)
class Entry:
    """A hand-written Function.

    `example` makes the arguments of one call. `oracle_examples` make those of other valid calls.
    `reference` is the function whose gradient is meant, where the forward has another one.
    `plain` computes the same values, where gradcheck cannot judge the forward.
    `constants` names the float arguments that have no gradient.
    `structured` maps arguments to valid ones, so that gradcheck keeps their structure.
    """

    name: str
    function: type[Function]
    example: Callable[[], tuple[Any, ...]]
    oracle_examples: tuple[Callable[[], tuple[Any, ...]], ...]
    reference: Callable[..., Any] | None = None
    plain: Callable[..., Any] | None = None
    constants: tuple[str, ...] = ()
    structured: Callable[..., tuple[Any, ...]] | None = None
    in_place: bool = False
    tolerance: float = 1e-8


def entry(
    function: type[Function],
    make: Callable[..., tuple[Any, ...]],
    *sizes: tuple[Any, ...],
    **more: Any,
) -> Entry:
    """An entry whose examples are `make` of each of the sizes, the first one first."""
    first, *others = (partial(make, *each) for each in sizes)
    return Entry(function.__name__, function, first, tuple(others), **more)

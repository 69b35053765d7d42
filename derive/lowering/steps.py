"""Operations on tensors of known shapes, one after another: which they read, which they write.

Sizes are formulas. A view is no step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from derive.algebra.amount import degree, floor_divided
from derive.algebra.poly import ONE, ZERO, Poly, add, constant, mul, scale

__all__ = [
    "Shaped",
    "Step",
    "Steps",
    "broadcast",
    "cut",
    "elements",
    "kind_of",
    "position",
]


@dataclass(frozen=True)
class Shaped:
    """A tensor of which the shape and the kind are known, and the number of the step it is of."""

    shape: tuple[Poly, ...]
    kind: str = "float"
    made: int | None = None


@dataclass(frozen=True)
class Step:
    """One operation other than a view: what it reads, what it writes, what it computes."""

    name: str
    line: str
    reads: tuple[Shaped, ...]
    result: Shaped
    flops: Poly
    contracts: bool = False


def elements(shape: Iterable[Poly]) -> Poly:
    """The number of elements."""
    return mul(ONE, *shape)


@dataclass
class Steps:
    """The steps so far. ``letters``: a formula -> the size that it is."""

    letters: Mapping[Poly, Poly] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    line: str = ""

    def did(
        self,
        name: str,
        reads: Sequence[Any],
        shape: Sequence[Poly],
        flops: Poly,
        kind: str = "float",
        contracts: bool = False,
    ) -> Shaped:
        """Note a step; its result."""
        tensors = tuple(x for x in flat(reads) if isinstance(x, Shaped))
        sizes = tuple(self.letters.get(n, n) for n in shape)
        result = Shaped(sizes, kind, len(self.steps))
        self.steps.append(Step(name, self.line, tensors, result, flops, contracts))
        return result

    def elementwise(self, name: str, args: Sequence[Any], kind: str, flops: bool = True) -> Shaped:
        """A step whose result has the shape that the tensors broadcast to."""
        shape = broadcast([x for x in flat(args) if isinstance(x, Shaped)])
        return self.did(name, args, shape, elements(shape) if flops else ZERO, kind)

    def matmul(self, a: Shaped, b: Shaped) -> Shaped:
        left = a.shape if len(a.shape) > 1 else (ONE, *a.shape)
        right = b.shape if len(b.shape) > 1 else (*b.shape, ONE)
        batch = broadcast([Shaped(left[:-2]), Shaped(right[:-2])])
        flops = scale(elements((*batch, *left[-2:], right[-1])), 2)
        ends = (*left[-2:-1], *right[-1:])
        kept = [n for n, x in zip(ends, (a, b), strict=True) if len(x.shape) > 1]
        return self.did("@", (a, b), (*batch, *kept), flops, contracts=True)


def flat(values: Iterable[Any]) -> Iterable[Any]:
    for x in values:
        if isinstance(x, tuple):
            yield from flat(x)
        else:
            yield x


def position(x: Any) -> int:
    """A position, which no size decides."""
    return int(x.terms[0].coef) if isinstance(x, Poly) and x.terms else 0


def kind_of(args: Iterable[Any]) -> str:
    kinds = {x.kind for x in args if isinstance(x, Shaped)}
    return next((kind for kind in ("float", "int", "bool") if kind in kinds), "float")


def broadcast(tensors: Sequence[Shaped]) -> tuple[Poly, ...]:
    longest = max((len(x.shape) for x in tensors), default=0)
    columns = zip(*((ONE,) * (longest - len(x.shape)) + x.shape for x in tensors), strict=True)
    return tuple(next((n for n in column if n is not ONE), ONE) for column in columns)


def cut(n: Poly, part: slice) -> Poly:
    """How many positions of n a slice has: from a number to a number, or every so many."""
    start = ZERO if part.start is None else part.start
    stop = n if part.stop is None else part.stop
    if not degree(stop) and position(stop) < 0:
        stop = add(n, stop)
    length = add(stop, scale(start, -1))
    if part.step is None:
        return length
    return add(floor_divided(add(length, constant(-1)), part.step), ONE)

"""All ways of a row are held to one value and one gradient before any is timed."""

from collections.abc import Mapping, Sequence

import torch
from kit.race.row import OURS, Function, Row
from kit.race.step import Step
from torch import Tensor

BOUND = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 0.2}
"""The greatest difference, of the greatest value. The first finds what is another operation, the
others what is wrong in the precision that is timed. In bfloat16 it is the mean difference of the
mean magnitude: its few numbers often are a kink or a tie exactly, where each way has its own
slope."""


class DifferError(Exception):
    """A way of a row computes something else."""


def hold(
    row: Row, size: str, ways: Mapping[str, Function], dtype: torch.dtype, device: str = "cpu"
) -> None:
    """DifferError where a way differs from ours in value or gradient."""
    step = Step.of(row, size, dtype, device)

    def values(name: str) -> Sequence[Tensor]:
        return [y.detach() for y in step.forward(ways[name])]

    def gradients(name: str) -> Sequence[Tensor]:
        return step.whole(ways[name])

    for what, compute in (("output", values), ("gradient", gradients)):
        ours = compute(OURS)
        for name in ways:
            for n, (one, other) in enumerate(zip(ours, compute(name), strict=True)):
                wrong = difference(one, other, BOUND[dtype])
                if wrong:
                    raise DifferError(f"{row.name}, {size}, {dtype}: {what} {n} of {name} {wrong}")


def difference(ours: Tensor, theirs: Tensor, bound: float) -> str:
    """What is wrong with a tensor beside ours, or nothing."""
    if ours.shape != theirs.shape:
        return f"has shape {list(theirs.shape)}, ours {list(ours.shape)}"
    most = torch.mean if ours.dtype is torch.bfloat16 else torch.max
    greatest = float(most(theirs.double().abs()))
    apart = float(most((ours.double() - theirs.double()).abs()))
    # A nan is no agreement.
    return "" if apart <= bound * greatest else f"is {apart:.2g} from ours, of {greatest:.2g}"

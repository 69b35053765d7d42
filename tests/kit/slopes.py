"""Derivatives of the oracle's loops along a direction: four runs of them, whatever the size is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from derive.check import oracle
from derive.notation.operation import Operation


def along(
    op: Operation,
    tensors: Mapping[str, Any],
    weights: Mapping[str, Any],
    parameters: Mapping[str, Any],
    name: str,
) -> tuple[Any, float]:
    """A direction of an input, and the derivative of the weighted outputs along it."""
    way = np.random.default_rng(5).uniform(0.5, 1.5, np.shape(tensors[name]))

    def slope(step: float) -> float:
        ends = ({**tensors, name: tensors[name] + h * way} for h in (step, -step))
        high, low = (oracle.outputs(op, moved, parameters) for moved in ends)
        # An infinity stays what it is, and has no slope.
        with np.errstate(invalid="ignore"):
            moves = {n: np.where(high[n] == low[n], 0, high[n] - low[n]) for n in weights}
        return sum(float((moves[n] * w).sum()) for n, w in weights.items()) / (2 * step)

    coarse, fine = slope(1e-3), slope(5e-4)
    return way, (4 * fine - coarse) / 3

"""Derivatives of the oracle's loops along a direction: four runs of them, whatever the size is."""

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
    # A quotient near a pole asks for short steps.
    return way, oracle.slopes(op, tensors, weights, parameters, name, [way], 0.1)[0]

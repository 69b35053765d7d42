"""Calls of every generated function, beside torch's own of the same arguments: a file a family.

Each family has ``OWN``, torch's functions where they are not ``torch.<name>``, and generators of
cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cases import elementwise, indexing, losses, matrix, networks, normalizations, reductions
from cases.case import Case

FAMILIES = (networks, elementwise, matrix, reductions, losses, indexing, normalizations)
OWN: dict[str, Callable[..., Any]] = {
    name: function for family in FAMILIES for name, function in family.OWN.items()
}
CASES: tuple[Case, ...] = (
    *networks.networks(),
    *elementwise.elementwise(),
    *matrix.matrix(),
    *matrix.linear(),
    *reductions.along_an_axis(),
    *losses.losses(),
    *losses.cross_entropies(),
    *indexing.indexing(),
    *normalizations.normalizations(),
)


def own(name: str) -> Callable[..., Any]:
    """torch's function of this name."""
    return OWN[name] if name in OWN else getattr(torch, name)

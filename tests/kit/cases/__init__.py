"""Calls of every generated function, beside torch's own of the same arguments: a file a family.

Each family has ``OWN``, torch's functions where they are not ``torch.<name>``, and generators of
cases.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from kit.cases import (
    activations,
    attention,
    convolution,
    distances,
    elementwise,
    indexing,
    losses,
    margin_losses,
    matrix,
    networks,
    normalizations,
    pointwise_losses,
    recurrent,
    reductions,
    sequences,
    sorting,
    trained,
)
from kit.cases.case import Case

FAMILIES = (
    *(networks, elementwise, activations, matrix, reductions, losses, pointwise_losses),
    *(margin_losses, indexing, normalizations, recurrent),
    *(attention, distances, convolution, trained, sequences, sorting),
)
OWN: dict[str, Callable[..., Any]] = {
    name: function for family in FAMILIES for name, function in family.OWN.items()
}
FOUND: tuple[Case, ...] = (
    *networks.networks(),
    *elementwise.elementwise(),
    *matrix.matrix(),
    *matrix.linear(),
    *matrix.contractions(),
    *matrix.of_batches(),
    *activations.activations(),
    *reductions.along_an_axis(),
    *reductions.spreads_and_norms(),
    *reductions.cumulative(),
    *losses.losses(),
    *losses.cross_entropies(),
    *losses.focal_and_contrastive(),
    *losses.of_sets(),
    *pointwise_losses.pointwise_losses(),
    *pointwise_losses.cross_entropies_of_two(),
    *margin_losses.margin_losses(),
    *recurrent.cells(),
    *indexing.indexing(),
    *indexing.by_position(),
    *indexing.moved(),
    *indexing.chosen(),
    *indexing.rearranged(),
    *normalizations.normalizations(),
    *normalizations.of_groups(),
    *normalizations.of_vectors(),
    *attention.attention(),
    *attention.projected_attention(),
    *attention.graphs(),
    *distances.distances(),
    *convolution.convolutions(),
    *convolution.pools(),
    *trained.trained(),
    *trained.of_each_reduction(),
    *sequences.sequences(),
    *sorting.sorting(),
)


def own(name: str) -> Callable[..., Any]:
    """torch's function of this name."""
    return OWN[name] if name in OWN else getattr(torch, name)


CASES = tuple(case if case.reference else replace(case, reference=own(case.name)) for case in FOUND)

"""Tables of patterns: sums, reads and scatters that torch has a call or views for.

Each table is searched from its first row on. An expression that matches no row is lowered like
any other node. A new pattern is a row here with the function that applies it.
"""

from __future__ import annotations

from typing import Any

from derive.lowering.ground import windows
from derive.lowering.ground.pattern import Pattern
from derive.lowering.patterns import (
    branches,
    concatenation,
    convolution_calls,
    cumulative,
    digits,
    equality_masks,
    orders,
    reads,
    recurrences,
    roll,
    scatter_elements,
    scatter_slices,
    segment_products,
    segment_reductions,
    sorting,
    stacks,
    unfold,
)

SUMS = (
    Pattern("known index", equality_masks.sum_at_known_index),
    Pattern("rank", sorting.rank),
    Pattern("one side of a bound", orders.sum_over_side),
    Pattern("means of one side of a bound", orders.mean_over_side),
    Pattern("part of a range", concatenation.sum_over_part),
    Pattern("convolution", convolution_calls.convolution),
    Pattern("convolution within", convolution_calls.convolution_within),
    Pattern("convolution on a ring", roll.convolution_on_ring),
    Pattern("cumulative sum", cumulative.cumulative_sum),
    Pattern("weighted cumulative sum", cumulative.weighted_cumulative_sum),
    Pattern("band", unfold.band_sum),
    Pattern("recurrences of both ends", segment_products.sum_over_ends_of_segments),
    Pattern("recurrence of segments", segment_products.sum_weighted_by_segments),
    Pattern("recurrence of exponentials", recurrences.sum_weighted_by_exponentials),
    Pattern("recurrence of ties", recurrences.sum_of_ties),
    Pattern("lookups", scatter_slices.sum_by_lookups),
    Pattern("lookup", segment_reductions.sum_by_lookup),
    Pattern("sum by places", scatter_slices.sum_by_places),
    Pattern("sum by place", segment_reductions.sum_by_place),
)
"""Sums of a product without deltas."""

MEANS = (Pattern("pooling", convolution_calls.pooled),)
"""Means of a product."""

PLACED = (
    Pattern("condition on numbers", scatter_elements.only_if),
    Pattern("transposed convolution", convolution_calls.transposed_convolution),
)
"""Sums of a product with deltas."""

PLACEMENTS = (
    Pattern("on a diagonal", scatter_elements.on_diagonal),
    Pattern("run", scatter_elements.in_a_run),
    Pattern("run by digits", digits.digits_in_a_run),
    Pattern("digits of places", digits.at_digits),
    Pattern("numbered places", scatter_elements.at_numbers),
    Pattern("places", scatter_elements.at_computed),
    Pattern("places along several axes", scatter_elements.along_each_axis),
    Pattern("places on joined axes", scatter_elements.on_joined_axes),
    Pattern("places on several axes", scatter_elements.on_all_axes),
)
"""Values with their target positions; the last row matches any."""

ADDED_PLACES = (Pattern("numbered cases", stacks.stacked),)
"""Sums of terms, some of which have deltas."""

ADDED = (
    Pattern("ring", roll.added_ring),
    Pattern("number outside", concatenation.number_outside),
    Pattern("into places", scatter_slices.added_by_place),
    Pattern("pieces", concatenation.addends_in_pieces),
    Pattern("bounds", branches.added_clamp),
    Pattern("branches", branches.added_branches),
    Pattern("remainder", roll.added_remainder),
)
"""Sums of terms without deltas; a row returns the addends that it leaves."""

PRODUCTS = (
    Pattern("piece", concatenation.product_in_pieces),
    Pattern("zeros outside", concatenation.zero_outside),
    Pattern("scaled branches", branches.scaled_by_branches),
)
"""Products without deltas."""

REDUCED = (
    Pattern("product of others", cumulative.product_of_others),
    Pattern("logsumexp of one side of a bound", orders.logsumexp_over_side),
    Pattern("cumulative reduction", cumulative.cumulative_reduction),
    Pattern("extremum by place", segment_reductions.extremum_by_place),
    Pattern("any of ties", recurrences.any_of_ties),
    Pattern("any of one side of a bound", orders.any_over_side),
    Pattern("any by place", segment_reductions.any_by_place),
)
"""Reductions other than sums."""

READS = (
    Pattern("number", reads.read_at_number),
    Pattern("diagonal", reads.read_on_diagonal),
    Pattern("window", windows.read_window),
    Pattern("every n-th", unfold.read_strided),
    Pattern("digits", digits.read_digits),
    Pattern("windows", unfold.read_sliding),
    Pattern("guarded window", windows.read_guarded),
    Pattern("ring read", roll.read_ring),
    Pattern("computed position", reads.read_computed),
)
"""Reads at one position; the last row matches any."""

PATTERNS: dict[str, tuple[Pattern[..., Any], ...]] = {
    "sums": SUMS,
    "means": MEANS,
    "placed": PLACED,
    "placements": PLACEMENTS,
    "added places": ADDED_PLACES,
    "added": ADDED,
    "products": PRODUCTS,
    "reduced": REDUCED,
    "reads": READS,
}
"""Every table by the node that it is for."""

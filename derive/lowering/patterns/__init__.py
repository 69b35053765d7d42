"""Tables of patterns: sums, reads and scatters that torch has a call or views for.

Each table is searched from its first row on. An expression that matches no row is lowered like
any other node. A new pattern is a row here with the function that applies it.
"""

from __future__ import annotations

from typing import Any

from derive.lowering.ground.pattern import Pattern
from derive.lowering.ground.windows import read_guarded, read_window
from derive.lowering.patterns.branches import added_branches, added_clamp, scaled_by_branches
from derive.lowering.patterns.concatenation import (
    addends_in_pieces,
    number_outside,
    product_in_pieces,
    sum_over_part,
    zero_outside,
)
from derive.lowering.patterns.convolution_calls import (
    convolution,
    convolution_within,
    pooled,
    transposed_convolution,
)
from derive.lowering.patterns.cumulative import (
    cumulative_reduction,
    cumulative_sum,
    product_of_others,
    weighted_cumulative_sum,
)
from derive.lowering.patterns.digits import at_digits, digits_in_a_run, read_digits
from derive.lowering.patterns.equality_masks import sum_at_known_index
from derive.lowering.patterns.orders import (
    any_over_side,
    logsumexp_over_side,
    mean_over_side,
    sum_over_side,
)
from derive.lowering.patterns.overlap import overlapping_windows
from derive.lowering.patterns.reads import read_at_number, read_computed, read_on_diagonal
from derive.lowering.patterns.recurrences import (
    any_of_ties,
    sum_of_ties,
    sum_weighted_by_exponentials,
)
from derive.lowering.patterns.roll import (
    added_remainder,
    added_ring,
    convolution_on_ring,
    product_on_ring,
    read_ring,
)
from derive.lowering.patterns.scatter_elements import (
    along_each_axis,
    at_computed,
    at_numbers,
    in_a_run,
    on_all_axes,
    on_diagonal,
    on_joined_axes,
    only_if,
)
from derive.lowering.patterns.scatter_slices import added_by_place, sum_by_lookups, sum_by_places
from derive.lowering.patterns.segment_products import (
    sum_over_ends_of_segments,
    sum_weighted_by_segments,
)
from derive.lowering.patterns.segment_reductions import (
    any_by_place,
    extremum_by_place,
    sum_by_lookup,
    sum_by_place,
)
from derive.lowering.patterns.sorting import rank
from derive.lowering.patterns.stacks import stacked
from derive.lowering.patterns.unfold import band_sum, read_sliding, read_strided

SUMS = (
    Pattern("known index", sum_at_known_index),
    Pattern("rank", rank),
    Pattern("one side of a bound", sum_over_side),
    Pattern("means of one side of a bound", mean_over_side),
    Pattern("part of a range", sum_over_part),
    Pattern("convolution", convolution),
    Pattern("convolution within", convolution_within),
    Pattern("convolution on a ring", convolution_on_ring),
    Pattern("cumulative sum", cumulative_sum),
    Pattern("weighted cumulative sum", weighted_cumulative_sum),
    Pattern("band", band_sum),
    Pattern("recurrences of both ends", sum_over_ends_of_segments),
    Pattern("recurrence of segments", sum_weighted_by_segments),
    Pattern("recurrence of exponentials", sum_weighted_by_exponentials),
    Pattern("recurrence of ties", sum_of_ties),
    Pattern("lookups", sum_by_lookups),
    Pattern("lookup", sum_by_lookup),
    Pattern("sum by places", sum_by_places),
    Pattern("sum by place", sum_by_place),
)
"""Sums of a product without deltas."""

MEANS = (Pattern("pooling", pooled),)
"""Means of a product."""

PLACED = (
    Pattern("condition on numbers", only_if),
    Pattern("transposed convolution", transposed_convolution),
    Pattern("overlapping windows", overlapping_windows),
)
"""Sums of a product with deltas."""

PLACEMENTS = (
    Pattern("on a diagonal", on_diagonal),
    Pattern("run", in_a_run),
    Pattern("run by digits", digits_in_a_run),
    Pattern("digits of places", at_digits),
    Pattern("numbered places", at_numbers),
    Pattern("places", at_computed),
    Pattern("places along several axes", along_each_axis),
    Pattern("places on joined axes", on_joined_axes),
    Pattern("places on several axes", on_all_axes),
)
"""Values with their target positions; the last row matches any."""

ADDED_PLACES = (Pattern("numbered cases", stacked),)
"""Sums of terms, some of which have deltas."""

ADDED = (
    Pattern("ring", added_ring),
    Pattern("number outside", number_outside),
    Pattern("into places", added_by_place),
    Pattern("pieces", addends_in_pieces),
    Pattern("bounds", added_clamp),
    Pattern("branches", added_branches),
    Pattern("remainder", added_remainder),
)
"""Sums of terms without deltas; a row returns the addends that it leaves."""

PRODUCTS = (
    Pattern("piece", product_in_pieces),
    Pattern("zeros outside", zero_outside),
    Pattern("product on a ring", product_on_ring),
    Pattern("scaled branches", scaled_by_branches),
)
"""Products without deltas."""

REDUCED = (
    Pattern("product of others", product_of_others),
    Pattern("logsumexp of one side of a bound", logsumexp_over_side),
    Pattern("cumulative reduction", cumulative_reduction),
    Pattern("extremum by place", extremum_by_place),
    Pattern("any of ties", any_of_ties),
    Pattern("any of one side of a bound", any_over_side),
    Pattern("any by place", any_by_place),
)
"""Reductions other than sums."""

READS = (
    Pattern("number", read_at_number),
    Pattern("diagonal", read_on_diagonal),
    Pattern("window", read_window),
    Pattern("every n-th", read_strided),
    Pattern("digits", read_digits),
    Pattern("windows", read_sliding),
    Pattern("guarded window", read_guarded),
    Pattern("ring read", read_ring),
    Pattern("computed position", read_computed),
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

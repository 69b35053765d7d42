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
    Pattern("known index", "Sum_u [u == e] f(u) = f(e)", sum_at_known_index),
    Pattern(
        "rank",
        "Sum_l [a(l) < a(k) or a(l) == a(k) and l < k] = the position of a(k) after a sort",
        rank,
    ),
    Pattern(
        "one side of a bound",
        "Sum_l [a(l) < b(k)] f(l) = cumsum of f in the order of a, at the place of b(k)",
        sum_over_side,
    ),
    Pattern(
        "means of one side of a bound",
        "Sum_l [a(l) < b(k)] f(l) exp(h(l) - F(k)) = a recurrence in the order of a, at the place "
        "of b(k)",
        mean_over_side,
    ),
    Pattern("part of a range", "Sum_i [s <= i < s + size(j)] f(i) = Sum_j f(s + j)", sum_over_part),
    Pattern("convolution", "Sum_{c,k} X[c, s*t + d*k] W[c, k] = conv(X, W)[t]", convolution),
    Pattern(
        "convolution within",
        "Sum_{t,c,k} G[t] X[c, s*t + d*k] W[c, k] = Sum_t G[t] conv(X, W)[t]",
        convolution_within,
    ),
    Pattern(
        "convolution on a ring",
        "Sum_j X[j] Y[(i - j) % n] = circular_convolution(X, Y)[i]",
        convolution_on_ring,
    ),
    Pattern("cumulative sum", "Sum_l [l <= k] f(l) = cumsum(f)[k]", cumulative_sum),
    Pattern(
        "weighted cumulative sum",
        "Sum_{l,d} [l <= k] w(k, d) f(l, d) = Sum_d w(k, d) cumsum(f)[k, d]",
        weighted_cumulative_sum,
    ),
    Pattern("band", "Sum_l [k - a <= l <= k + b] f(l) = windows of f.sum()[k]", band_sum),
    Pattern(
        "recurrences of both ends",
        "Sum_s,k [s <= t <= k] x(s) z(k) Prod_l [s <= l <= k] a(l) = p(t) r(t), "
        "p from the other end",
        sum_over_ends_of_segments,
    ),
    Pattern(
        "recurrence of segments",
        "Sum_k [t <= k] x(k) Prod_l [t < l <= k] a(l) = r(t) = x(t) + a(t + 1) r(t + 1)",
        sum_weighted_by_segments,
    ),
    Pattern(
        "recurrence of exponentials",
        "Sum_l [k <= l] x(l) exp(a(k) - F(l)) = exp(a(k) - F(k)) r(k), "
        "r(k) = x(k) + exp(F(k) - F(k + 1)) r(k + 1)",
        sum_weighted_by_exponentials,
    ),
    Pattern(
        "recurrence of ties",
        "Sum_l [k <= l] [a(k) == m(l)] x(l) = [a(k) == m(k)] r(k), m(l) = max_{j <= l} a(j), "
        "r(k) = x(k) + [m(k) == m(k + 1)] r(k + 1)",
        sum_of_ties,
    ),
    Pattern("lookups", "Sum_g,h [s[n] == g] [t[n] == h] f(g, h) = f(s[n], t[n])", sum_by_lookups),
    Pattern("lookup", "Sum_g [s[n] == g] f(g) = f(s[n])", sum_by_lookup),
    Pattern(
        "sum by places",
        "Sum_n [s[n] == g] [t[n] == h] f(n) = zeros.index_put((s, t), f, accumulate=True)[g, h]",
        sum_by_places,
    ),
    Pattern("sum by place", "Sum_n [s[n] == g] f(n) = zeros.index_add(s, f)[g]", sum_by_place),
)
"""Sums of a product without deltas."""

MEANS = (Pattern("pooling", "mean_k X[s*t + k] = avg_pool(X)[t]", pooled),)
"""Means of a product."""

PLACED = (
    Pattern("condition on numbers", "[c] f = f if c else 0", only_if),
    Pattern(
        "transposed convolution",
        "Sum_{t,k} delta(u, s*t + d*k) Y[t] W[k] = conv_transpose(Y, W)[u]",
        transposed_convolution,
    ),
    Pattern(
        "overlapping windows",
        "Sum_{k,a} delta(i, s*k + a) f(k, a) = windows f(k) added at s*k",
        overlapping_windows,
    ),
)
"""Sums of a product with deltas."""

PLACEMENTS = (
    Pattern("on a diagonal", "delta(i, j) f(j) = diag_embed(f)[j, i]", on_diagonal),
    Pattern("run", "Sum_k delta(i, s + n*k) f(k) = zeros.slice_scatter(f, s, n)[i]", in_a_run),
    Pattern(
        "run by digits",
        "Sum_{m,d} delta(i, s + size(d)*m + d) f(m, d) = zeros.slice_scatter(f.flatten(), s)[i]",
        digits_in_a_run,
    ),
    Pattern(
        "digits of places",
        "Sum_n delta(m, n // size(d)) delta(d, n % size(d)) f(n) = f.unflatten(..)[m, d]",
        at_digits,
    ),
    Pattern("numbered places", "delta(i, m) delta(j, n) f = f with zeros around it", at_numbers),
    Pattern("places", "Sum_k delta(i, e(k)) f(k) = zeros.index_add(e, f)[i]", at_computed),
    Pattern(
        "places along several axes",
        "Sum_{k,l} delta(i, e(k)) delta(j, g(l)) f(k, l) = along i, then along j",
        along_each_axis,
    ),
    Pattern(
        "places on joined axes",
        "Sum_k delta(i, e(k)) delta(j, g(k)) f(k) = Sum_k delta(i j, e(k)*size(j) + g(k)) f(k)",
        on_joined_axes,
    ),
    Pattern(
        "places on several axes",
        "Sum_k delta(i, e(k)) delta(j, g(k)) f(k) = zeros.index_put((e, g), f)[i, j]",
        on_all_axes,
    ),
)
"""Values with their target positions; the last row matches any."""

ADDED_PLACES = (
    Pattern("numbered cases", "delta(t, 0) a + delta(t, 1) b = stack(a, b)[t]", stacked),
)
"""Sums of terms, some of which have deltas."""

ADDED = (
    Pattern("ring", "[m < s] f(m - s + size) + [not m < s] f(m - s) = f.roll(s)[m]", added_ring),
    Pattern("number outside", "[c] X[e if c] + [not c] v = X padded with v, at e", number_outside),
    Pattern(
        "into places",
        "a(g) + c Sum_n [s[n] == g] f(n) = a.index_add(s, f, alpha=c)[g]",
        added_by_place,
    ),
    Pattern("pieces", "[m < s] f(m) + [not m < s] g(m) = cat(f, g)[m]", addends_in_pieces),
    Pattern("bounds", "[|x| <= d] x + [not |x| <= d] d sign(x) = clamp(x, -d, d)", added_clamp),
    Pattern("branches", "[c] a + [not c] b = where(c, a, b)", added_branches),
    Pattern("remainder", "x - n*floor(x/n) = x % n, of integers", added_remainder),
)
"""Sums of terms without deltas; a row returns the addends that it leaves."""

PRODUCTS = (
    Pattern("piece", "[m < s] f(m) = cat(f, 0)[m]", product_in_pieces),
    Pattern("zeros outside", "[0 <= e < size] X[e if 0 <= e < size] = padded X[e]", zero_outside),
    Pattern(
        "product on a ring", "X[(i + s) % n] Y[(i + s) % n] = (X Y).roll(-s)[i]", product_on_ring
    ),
    Pattern("scaled branches", "x ([c] + s [not c]) = where(c, x, s x)", scaled_by_branches),
)
"""Products without deltas."""

REDUCED = (
    Pattern(
        "product of others", "Prod_{j != k} f(j) = Prod_{j<k} f Prod_{j>k} f", product_of_others
    ),
    Pattern(
        "logsumexp of one side of a bound",
        "logsumexp_{l, a(l) < b(k)} f(l) = logcumsumexp of f in the order of a, at the place of "
        "b(k)",
        logsumexp_over_side,
    ),
    Pattern("cumulative reduction", "prod_{l <= k} f(l) = cumprod(f)[k]", cumulative_reduction),
    Pattern(
        "extremum by place", "max_n {f, s[n] == g} = scatter_reduce(s, f)[g]", extremum_by_place
    ),
    Pattern("any of ties", "any_l ([k <= l] [a(k) == m(l)]) = their number > 0", any_of_ties),
    Pattern("any of one side of a bound", "any_l (a(l) < b(k)) = their number > 0", any_over_side),
    Pattern("any by place", "any_n (s[n] == g) = zeros.index_add(s, 1)[g] > 0", any_by_place),
)
"""Reductions other than sums."""

READS = (
    Pattern("number", "X[n] = X.select(n)", read_at_number),
    Pattern("diagonal", "X[i, i] = X.diagonal()[i]", read_on_diagonal),
    Pattern("window", "X[s + i] = X.narrow(s, size(i))[i]", read_window),
    Pattern("every n-th", "X[s + n*i] = X[s::n][i]", read_strided),
    Pattern("digits", "X[s + size(d)*m + d] = X.narrow(s).unflatten(..)[m, d]", read_digits),
    Pattern("windows", "X[s*i + d*k] = X.unfold(size(k), s)[i, k]", read_sliding),
    Pattern("guarded window", "X[e if 0 <= e < size] = padded X[e], e = s + i", read_guarded),
    Pattern("ring read", "X[(i + s) % size] = X.roll(-s)[i]", read_ring),
    Pattern("computed position", "X[e] = X.index_select(e) or X.gather(e)", read_computed),
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

"""The operations of the race: a file a family, each with ``ROWS``."""

from __future__ import annotations

from kit.race.row import Row
from kit.race.rows import elementwise, indexing, losses, normalizations, products, reductions

FAMILIES = (elementwise, reductions, normalizations, losses, products, indexing)
ROWS: tuple[Row, ...] = tuple(row for family in FAMILIES for row in family.ROWS)
EXTRA: tuple[Row, ...] = losses.EXTRA
"""Of a size of their own, and long: run when they are asked for."""

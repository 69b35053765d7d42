"""The operations of the race: a file a family, each with ``ROWS``."""

from kit.race.row import Row
from kit.race.rows import (
    elementwise,
    indexing,
    losses,
    moves,
    normalizations,
    products,
    read,
    reductions,
)

FAMILIES = (elementwise, reductions, normalizations, losses, products, indexing, moves, read)
ROWS: tuple[Row, ...] = tuple(row for family in FAMILIES for row in family.ROWS)
EXTRA: tuple[Row, ...] = losses.EXTRA
"""Of a size of their own, and long: run when they are asked for."""

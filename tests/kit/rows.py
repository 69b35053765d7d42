"""The lowering without some of its patterns: what they take is lowered as any other node is."""

from collections.abc import Iterator
from contextlib import contextmanager

from derive.lowering.patterns import PATTERNS
from derive.pipeline import program_of


@contextmanager
def without(*names: str) -> Iterator[None]:
    """No row of these names has the form of anything."""
    rows = [row for table in PATTERNS.values() for row in table if row.name in names]
    assert {row.name for row in rows} == set(names)
    before = [row.apply for row in rows]
    for row in rows:
        object.__setattr__(row, "apply", lambda scope, *given: None)
    try:
        program_of.cache_clear()
        yield
    finally:
        for row, apply in zip(rows, before, strict=True):
            object.__setattr__(row, "apply", apply)
        program_of.cache_clear()

"""The time from an operation to its source, one benchmark for each of the catalog.

python -m pytest tests/benchmarks --benchmark-enable
"""

from __future__ import annotations

import pytest

from derive import catalog
from derive.pipeline import derive_option, program_of, source


@pytest.mark.parametrize("name", catalog.names())
def test_derivation_time(name, benchmark):
    op = catalog.find(name)

    def derive_anew() -> str:
        derive_option.cache_clear()
        program_of.cache_clear()
        return source(op)

    assert benchmark.pedantic(derive_anew, rounds=3, warmup_rounds=1) == source(op)

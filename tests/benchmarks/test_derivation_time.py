"""The time from an operation to its source, one benchmark for each of the catalog.

python -m pytest tests/benchmarks --benchmark-enable -m ''
"""

import pytest
from kit.each import some_now
from kit.shared import anew, written

from derive import catalog
from derive.api import source


@pytest.mark.parametrize("name", some_now(catalog.names(), 1))
def test_derivation_time(name, benchmark):
    op = catalog.find(name)

    def derive_anew() -> str:
        with anew():
            return source(op, standalone=False)

    # Where nothing is timed nothing is derived again.
    derived = (lambda: source(op, standalone=False)) if benchmark.disabled else derive_anew
    assert benchmark.pedantic(derived, rounds=3, warmup_rounds=1) == written(op)

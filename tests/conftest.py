"""What holds for the whole run of the tests."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Leave what is collected alone: it lives as long as the process, and is much to visit."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)

"""What holds for the whole run of the tests."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

if "DERIVE_CACHE" not in os.environ:
    # Workers of the run have the folder of the process that starts them.
    os.environ["DERIVE_CACHE"] = tempfile.mkdtemp(prefix="derive-")
    atexit.register(shutil.rmtree, os.environ["DERIVE_CACHE"], ignore_errors=True)
# Each worker has a core: on tensors of a few elements more threads only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from kit import shared
from kit.command import ROOT

from derive import catalog
from derive.notation.operation import Operation

shared.install()


@pytest.fixture
def op(request: pytest.FixtureRequest) -> Operation:
    """An operation of the catalog, which is given by name."""
    found = catalog.find(request.param)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Random numbers of a test do not depend on the tests before it."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that tests/slow.txt names, one by one or all of a function."""
    text = Path(__file__).with_name("slow.txt").read_text(encoding="utf-8")
    names = frozenset(text.splitlines())
    for item in items:
        if item.nodeid in names or item.nodeid.partition("[")[0] in names:
            item.add_marker("slow")
    every = {name for item in items for name in (item.nodeid, item.nodeid.partition("[")[0])}
    files = {name.partition("::")[0] for name in every}
    # A file that is there may be left out of this run.
    _stale[:] = [
        name
        for name in sorted(names - every)
        if (file := name.partition("::")[0]) in files or not (ROOT / file).exists()
    ]


_stale: list[str] = []


@pytest.fixture
def stale_names() -> list[str]:
    """The names in tests/slow.txt that no test has."""
    return _stale


def pytest_configure() -> None:
    """Little that is made is in a cycle: to look for it often takes an eighth of the run."""
    gc.set_threshold(2_000_000, 20, 20)


def pytest_collection_finish() -> None:
    """Leave what is collected alone: it lives as long as the process, and is much to visit."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Leave what the tests made alone too: the process ends."""
    gc.freeze()

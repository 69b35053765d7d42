"""Which tests run which functions of the engine: a plugin of pytest that writes it down.

    DERIVE_CALLERS=FOLDER python -m pytest -p kit.callers

Each process writes one file of this folder. Functions are named ``PATH:QUALIFIED_NAME``. What the
tests share on disk is run in the test that comes first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from cProfile import Profile
from dataclasses import dataclass
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[2] / "derive"


@dataclass(frozen=True)
class Ran:
    """A test: how long it took while it was watched, and the functions that it ran."""

    test: str
    seconds: float
    functions: frozenset[str]


def named(profile: Profile) -> list[str]:
    """The functions of the engine that have run."""
    found = []
    for entry in profile.getstats():
        if not isinstance(entry.code, str):
            path = Path(entry.code.co_filename)
            if path.is_relative_to(ENGINE):
                name = path.relative_to(ENGINE.parent).as_posix()
                found.append(f"{name}:{entry.code.co_qualname}")
    return found


class Watch:
    """Runs each test under a profiler, whose counts are thrown away."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        profile = Profile(builtins=False, subcalls=False)
        began = time.perf_counter()
        profile.enable()
        try:
            result = yield
        finally:
            profile.disable()
        row = {
            "test": item.nodeid,
            "seconds": time.perf_counter() - began,
            "functions": named(profile),
        }
        print(json.dumps(row), file=self.file, flush=True)
        return result


def pytest_configure(config: pytest.Config) -> None:
    folder = Path(os.environ["DERIVE_CALLERS"])
    folder.mkdir(parents=True, exist_ok=True)
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    config.pluginmanager.register(Watch(folder / f"{name}.json"))


def read(folder: Path) -> list[Ran]:
    """What was written into a folder."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            rows.append(Ran(row["test"], row["seconds"], frozenset(row["functions"])))
    return rows

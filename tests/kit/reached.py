"""Which lines of the engine each test reaches: a plugin of pytest that writes it down.

    DERIVE_REACHED=FOLDER python -m pytest -p kit.reached

Each process writes one file of this folder. Lines are named ``PATH:NUMBER``. What a test reaches in
a fork counts, in a program that it starts it does not. What tests share in memory or on disk is
reached by the test that comes first.
"""

import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from coverage import Coverage, CoverageData
from coverage.exceptions import CoverageException

ENGINE = Path(__file__).parents[2] / "derive"


@dataclass(frozen=True)
class Reached:
    """A test: how long it took while it was watched, and the lines that it reached."""

    test: str
    seconds: float
    lines: frozenset[str]


class Watch:
    """Has the lines of each test counted, and writes them at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = {}
        self.folder = path.with_suffix("")
        self.folder.mkdir()
        self.coverage = Coverage(
            data_file=self.folder / "of",
            data_suffix=True,  # a fork has a file of its own
            source=[str(ENGINE)],
            config_file=False,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of the engine is imported before
            self.coverage.start()
        self.process, self.leave = os.getpid(), os._exit
        os._exit = self.leave_fork

    def leave_fork(self, code: int) -> NoReturn:
        """Write what a fork has reached, where it would end without."""
        if os.getpid() != self.process:
            self.coverage.stop()
            self.coverage.save()
        self.leave(code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.perf_counter() - began
            self.coverage.switch_context("between tests")

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()
        lines: dict[str, set[str]] = {test: set() for test in self.seconds}
        for path in self.folder.iterdir():
            data = CoverageData(str(path))
            try:
                data.read()
            except CoverageException:  # of a fork that was killed
                continue
            for file in data.measured_files():
                name = Path(file).relative_to(ENGINE.parent).as_posix()
                for line, tests in data.contexts_by_lineno(file).items():
                    for test in filter(lines.__contains__, tests):
                        lines[test].add(f"{name}:{line}")
        with self.path.open("w", encoding="utf-8") as out:
            for test, seconds in self.seconds.items():
                print(json.dumps([test, seconds, sorted(lines[test])]), file=out)
        shutil.rmtree(self.folder)


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None):
        folder = Path(os.environ["DERIVE_REACHED"])
        folder.mkdir(parents=True, exist_ok=True)
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        config.pluginmanager.register(Watch(folder / f"{name}.json"))


def read(folder: Path) -> list[Reached]:
    """What was written into a folder."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            test, seconds, lines = json.loads(line)
            rows.append(Reached(test, seconds, frozenset(lines)))
    return rows

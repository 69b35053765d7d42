"""Killing ``derive generate`` at random moments: what the folder of modules holds afterwards.

    python tests/campaigns kills --count 200

A project has two versions of its specs. Each round generates the other one, in a process that is
killed with all of its might (SIGKILL) at a random moment, every fourth time while it writes,
looks at the folder, and runs the next command. Afterwards the folder must hold the modules of one
version alone, with nothing beside it and no process left.
"""

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from kit.command import derive

OPERATIONS = 26
"""Enough for processes to share the work."""


def project(folder: Path) -> None:
    """An empty project, specs of Python among its own."""
    (folder / "pyproject.toml").write_text('[tool.derive]\nspecs = ["specs"]\nout = "out/made"\n')
    (folder / "specs").mkdir()


def write_specs(folder: Path, version: int) -> None:
    """The same operations with another number; every other version has one more."""
    lines = [
        f"op f{n}(x[i]) -> y\ny[i] = {version + 2}*x[i] + {n}"
        for n in range(OPERATIONS - 1 - version % 2)
    ]
    (folder / "specs/a.derive").write_text("\n".join(lines))
    (folder / "specs/b.py").write_text(
        f"import derive\ng = derive.parse('op g(x[i]) -> y; y[i] = x[i]**{version + 2}')\n"
    )


def held(folder: Path) -> dict[str, bytes]:
    """Every file of the folder of modules."""
    out = folder / "out/made"
    return {p.name: p.read_bytes() for p in out.iterdir()} if out.is_dir() else {}


def beside(folder: Path) -> list[str]:
    """What stands beside the folder of modules."""
    out = folder / "out"
    return sorted(p.name for p in out.iterdir() if p.name != "made") if out.is_dir() else []


def processes_of(session: int) -> list[int]:
    """The processes of a session that are still at work."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, own = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(own) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


def forked(folder: Path, args: list[str]) -> int:
    """``derive args`` in a copy of this process: what is killed is its work, not its start."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    code = 1
    try:
        code = derive(*args, cwd=folder).returncode
    finally:
        os._exit(code)


def started(folder: Path, args: list[str]) -> int:
    """``derive args`` as a process of its own."""
    command = [sys.executable, "-m", "derive", *args]
    silent = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_WRONLY, 0) for n in (1, 2)]
    with chdir(folder):
        return os.posix_spawn(command[0], command, os.environ, file_actions=silent, setsid=True)


def killed(folder: Path, whole: bool, aimed: bool, after: float) -> tuple[int, bool]:
    """Generate and kill; gives the session, and whether it was done before.

    ``aimed`` waits until something is staged first.
    """
    pid = (started if whole else forked)(folder, ["generate", "--no-verify"])
    end = time.monotonic() + 10
    while aimed and len(beside(folder)) < 2 and time.monotonic() < end:
        time.sleep(0.0005)
    time.sleep(after)
    done, _ = os.waitpid(pid, os.WNOHANG)
    if not done:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return pid, bool(done)


def rounds(folder: Path, count: int, seed: int) -> Iterator[str]:
    """What the folder held after each kill; an AssertionError where it does not recover."""
    rng = random.Random(seed)
    project(folder)
    lengths, states = {}, []
    for version, whole in ((0, True), (1, False)):
        write_specs(folder, version)
        began = time.monotonic()
        os.waitpid((started if whole else forked)(folder, ["generate", "--no-verify"]), 0)
        lengths[whole] = time.monotonic() - began
        states.append(held(folder))
        assert not beside(folder)
    assert len(states[1]) == OPERATIONS + 1  # of these one is not there; two files are beside
    version = 1
    for n in range(count):
        whole, aimed = n % 4 == 0, n % 4 == 1
        before, version = version, 1 - version
        write_specs(folder, version)
        after = rng.uniform(0, 0.02 if aimed else lengths[whole])
        session, done = killed(folder, whole, aimed, after)
        found = held(folder)
        left = beside(folder)
        kind = "new" if found == states[version] else "old" if found == states[before] else "mixed"
        kind += " (done before)" if done else ", something beside it" if left else ""
        # What was staged and is not ready is as good as never begun: undo the spec too.
        write_specs(folder, before)
        ready = any(name.endswith("-ready") for name in left)
        checked = derive("check", "-q", cwd=folder)
        whose = version if found == states[version] or ready else before
        assert held(folder) == states[whose], f"round {n}: {kind}: not recovered"
        assert checked.returncode == (0 if whose == before else 1), checked.stdout + checked.stderr
        assert not beside(folder), f"round {n}: {beside(folder)} stands beside the folder"
        end = time.monotonic() + 10
        while processes_of(session):
            assert time.monotonic() < end, f"round {n}: {processes_of(session)} still run"
            time.sleep(0.02)
        version = whose
        yield f"{kind}, aimed at the writing" if aimed else kind


def main() -> None:
    """The campaign, and how often the folder held what."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = Counter(rounds(Path(folder), given.count, given.seed))
    for kind, times in sorted(found.items()):
        print(f"{times:4d} {kind}")
    print(f"{given.count} kills: all recovered")

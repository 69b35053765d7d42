"""Running ``derive`` as its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def derive(*args: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """``python -m derive args``, with its output as text."""
    return run(sys.executable, "-m", "derive", *args, cwd=cwd, **env)


def run(*args: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """A process to its end; it never reads a terminal."""
    return subprocess.run(
        [str(a) for a in args],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )

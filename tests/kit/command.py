"""Running ``derive``: here, or as its own process."""

import gc
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from runpy import run_module
from subprocess import CompletedProcess
from unittest.mock import patch

from derive.command.cli import main

ROOT = Path(__file__).parents[2]


def derive(*args: str | Path, cwd: Path = ROOT) -> CompletedProcess[str]:
    """``derive args`` in this process, as if it were one of its own."""
    return _here(main, "derive", *args, cwd=cwd)


def module(name: str, *args: str | Path, cwd: Path) -> CompletedProcess[str]:
    """``python -m name args`` in this process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*found in sys.modules", category=RuntimeWarning)
        return _here(lambda: run_module(name, run_name="__main__"), name, *args, cwd=cwd)


def _here(program: Callable[[], object], *args: str | Path, cwd: Path) -> CompletedProcess[str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    argv, collected = [*map(str, args)], gc.get_threshold()
    with (
        chdir(cwd),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", argv),
        patch.dict(os.environ),
    ):
        try:
            program()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            gc.set_threshold(*collected)
    texts = (stream.buffer.getvalue().decode() for stream in (out, err))
    return CompletedProcess(argv, code, *texts)


def process(*args: str | Path, cwd: Path = ROOT, **env: str) -> CompletedProcess[str]:
    """``python -m derive args``."""
    return run(sys.executable, "-m", "derive", *args, cwd=cwd, **env)


def run(*args: str | Path, cwd: Path = ROOT, **env: str) -> CompletedProcess[str]:
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

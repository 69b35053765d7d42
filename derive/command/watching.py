"""Run a command again whenever one of its files changes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from derive.command.console import clear, print_note, shown

_PAUSE = 0.2
"""Seconds between two looks at the files."""


def watch(files: Callable[[], Iterable[Path]]) -> None:
    """Run this command without ``--watch`` now and after each change of a file, until Ctrl-C.

    ``files`` returns the files at each look, so that a new file of a folder is seen.
    """
    command = [sys.executable, "-m", "derive", *(a for a in sys.argv[1:] if a != "--watch")]
    seen: dict[Path, tuple[int, int]] = {}
    try:
        while True:
            found = _stamps(files())
            if found != seen:
                changed = [p for p in found if seen and found[p] != seen.get(p)]
                clear()
                if changed:
                    print_note(f"{', '.join(map(shown, changed))} changed")
                subprocess.run(command, check=False)
                print_note(f"watching {', '.join(map(shown, found))}; Ctrl-C ends")
                seen = found
            time.sleep(_PAUSE)
    except KeyboardInterrupt:
        return


def _stamps(files: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return the time and the size of each file; a file that is missing has zeros."""
    found = {}
    for path in files:
        try:
            stat = path.stat()
            found[path] = stat.st_mtime_ns, stat.st_size
        except OSError:
            found[path] = 0, 0
    return found

"""Replace many files: all are on disk before the first of them is replaced."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from derive.command.console import unwritten
from derive.command.ownership import foreign


def replace(out: Path, texts: Mapping[str, bytes], gone: Sequence[str]) -> None:
    """Write and remove files of a folder, except those that derive did not write.

    If a file cannot be written, a DeriveError names it, and nothing has changed. What a run that is
    killed has not replaced, the next one replaces.
    """
    new = [p for p in (out, *out.parents) if not p.exists()]
    staged: dict[Path, Path] = {}
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                _stage(out / name, text, staged)
        except OSError as error:
            reason = f"cannot be written: {error.strerror}; nothing has changed"
            raise unwritten(f"{next(reversed(staged), error.filename or out)} {reason}") from None
        for path, made in staged.items():
            os.replace(made, path)
        for path in (out / name for name in gone):
            if path.exists() and not foreign(path):
                path.unlink()
    except OSError as error:
        where = error.filename2 or error.filename
        raise unwritten(f"{where} cannot be replaced: {error.strerror}; fix that") from None
    finally:
        for made in staged.values():
            made.unlink(missing_ok=True)
        for folder in new:
            with suppress(OSError):  # it has files
                folder.rmdir()


def _stage(path: Path, text: bytes, staged: dict[Path, Path]) -> None:
    """Write a file beside its place to disk, with the permissions of the one that it replaces."""
    staged[path] = path.with_name(f".{path.name}-{os.getpid()}")
    with staged[path].open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        staged[path].chmod(path.stat().st_mode & 0o777)

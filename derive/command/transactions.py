"""Replace many files atomically, even if the process is killed.

All files are first staged in a folder beside ``out``. Renaming that folder commits them. After a
kill before the rename, the old files remain and the next run removes the staged ones. After a kill
after it, the next run moves the files into place. A file lock, released when its process dies,
makes a second generator wait.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from derive.command.console import unwritten
from derive.command.ownership import foreign

_SOON = 0.5
"""Seconds until a waiting generator reports what it waits for."""
_MOMENT = 10
"""Seconds that moving files into place may take."""
_PATIENCE = 600
"""Seconds until a waiting generator gives up."""


@dataclass(frozen=True)
class _StagingPaths:
    """The paths of the lock and the staging folders."""

    lock: Path
    staged: Path
    ready: Path

    @classmethod
    def of(cls, out: Path) -> _StagingPaths:
        """Return paths beside ``out``; inside, if ``out`` is a mount or its parent is read-only."""
        out = out.resolve()
        beside, name = out.parent, f".{out.name}.derive"
        if out.is_dir() and (
            out.stat().st_dev != beside.stat().st_dev or not os.access(beside, os.W_OK)
        ):
            beside, name = out, ".derive"
        return cls(*(beside / f"{name}-{what}" for what in ("lock", "staged", "ready")))

    def any(self) -> bool:
        """True if a run is in progress, or was killed."""
        return any(map(os.path.lexists, (self.lock, self.staged, self.ready)))

    def holder(self) -> str:
        """Name the process that holds the lock, if known."""
        try:
            return f"process {int(self.lock.read_text())}"
        except (OSError, ValueError):
            return "another process"


@contextmanager
def alone(out: Path, waiting: Callable[[str], None]) -> Iterator[None]:
    """Lock ``out`` against other generators, and recover from a killed one.

    ``waiting`` is called with a text if another one holds the lock. Folders created for the lock
    are removed if they stay empty.
    """
    above = [p for p in out.resolve().parents if not p.exists()]
    try:
        places = _prepared(out)
        lock = FileLock(places.lock)
        try:
            lock.acquire(timeout=_SOON)
        except Timeout:
            waiting(f"{places.holder()} is generating {out}; waiting for it")
            try:
                lock.acquire(timeout=_PATIENCE)
            except Timeout:
                text = f"{places.holder()} is still generating {out}; try again later"
                raise unwritten(text) from None
        with _released(lock, places):
            _recover(out, places)
            yield
    finally:
        for folder in above:
            with suppress(OSError):
                folder.rmdir()


def _prepared(out: Path) -> _StagingPaths:
    """Create the parent folder and the lock file; raise a DeriveError if that fails."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        places = _StagingPaths.of(out)
        places.lock.touch()
    except OSError as error:
        reason = f"{error.filename} cannot be written: {error.strerror}"
        raise unwritten(f"{out}: {reason}; nothing has changed") from None
    return places


def settle(out: Path) -> None:
    """Finish what a killed run began; called before ``out`` is read.

    A running generator has either changed nothing yet, or is about to finish.
    """
    if not out.parent.is_dir():
        return
    places = _StagingPaths.of(out)
    if not places.any():
        return
    lock = FileLock(places.lock)
    try:
        lock.acquire(timeout=_MOMENT if places.ready.exists() else 0)
    except Timeout:
        if places.ready.exists():
            raise unwritten(f"{places.holder()} is writing to {out}; try again later") from None
    except OSError:
        if places.ready.exists():
            raise
    else:
        with _released(lock, places):
            _recover(out, places)


@contextmanager
def _released(lock: FileLock, places: _StagingPaths) -> Iterator[None]:
    """Release the lock at the end, and remove its file; a waiter then locks a new file."""
    try:
        with suppress(OSError):
            places.lock.write_text(str(os.getpid()))
        yield
    finally:
        with suppress(OSError):
            places.lock.unlink()
        lock.release()


def replace(out: Path, texts: Mapping[str, bytes], gone: Sequence[str]) -> None:
    """Write and remove files, all or none; the lock must be held.

    If a file cannot be written, a DeriveError names it, and nothing has changed.
    """
    try:
        places = _staged(out, texts, gone)
    except OSError as error:
        reason = error.strerror or str(error)
        where = error.filename or out
        raise unwritten(f"{where} cannot be written: {reason}; nothing has changed") from None
    _flush(places.ready.parent)
    _move(out, places.ready)


def _staged(out: Path, texts: Mapping[str, bytes], gone: Sequence[str]) -> _StagingPaths:
    """Stage all files and rename the folder to ready; remove everything on failure."""
    places = _StagingPaths.of(out)
    made = not out.exists()
    try:
        out.mkdir(exist_ok=True)
        for folder in ("new", "gone", "old"):
            (places.staged / folder).mkdir(parents=True)
        for name, text in texts.items():
            _write(places.staged / "new" / name, text, out / name)
        for name in (*texts, *gone):
            # A hard link keeps the old blocks, so that the replacement need not free them
            # (milliseconds).
            with suppress(OSError):
                os.link(out / name, places.staged / "old" / name)
        for name in gone:
            (places.staged / "gone" / name).touch()
        for folder in ("new", "gone", "old", "."):
            _flush(places.staged / folder)
        os.rename(places.staged, places.ready)
    except BaseException:
        shutil.rmtree(places.staged, ignore_errors=True)
        if made:
            with suppress(OSError):
                out.rmdir()
        raise
    return places


def _write(staged: Path, text: bytes, path: Path) -> None:
    """Write a file to disk, with the permissions of the file that it replaces."""
    try:
        with staged.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            staged.chmod(path.stat().st_mode & 0o777)
    except OSError as error:
        # Name the target file, since the staged one is gone when the message is read.
        raise OSError(error.errno, error.strerror, str(path)) from None


def _flush(folder: Path) -> None:
    """Flush the entries of a folder to disk, if the system supports that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _recover(out: Path, places: _StagingPaths) -> None:
    """Move committed files into place; remove uncommitted ones."""
    if places.ready.exists():
        out.mkdir(exist_ok=True)
        _move(out, places.ready)
    if places.staged.exists():
        shutil.rmtree(places.staged)


def _move(out: Path, ready: Path) -> None:
    """Move all files into place, without interruption.

    Hand-written files created since the staging are kept.
    """
    pairs = [(path, out / path.name) for path in _sorted_entries(ready / "new")]
    moves = [(str(path), str(place)) for path, place in pairs if not foreign(place)]
    gone = [out / path.name for path in _sorted_entries(ready / "gone")]
    removals = [str(place) for place in gone if place.exists() and not foreign(place)]
    try:
        with _uninterrupted():
            for path, place in moves:
                os.replace(path, place)
            for place in removals:
                os.unlink(place)
    except OSError as error:
        raise unwritten(
            f"{error.filename2 or error.filename} cannot be replaced: {error.strerror}; fix that, "
            "and the next run moves the remaining files into place"
        ) from None
    _flush(out)
    shutil.rmtree(ready)


def _sorted_entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Block SIGINT, SIGTERM and SIGHUP until the end."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    )
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""Many files replaced as one: a kill leaves the old ones, the new ones, or what the next run ends.

Everything is written to a folder beside ``out`` first. Renaming that folder is the moment from
which the new files count: before it a kill leaves the old ones, and the next run removes what was
staged; after it the next run, whatever it does with ``out``, moves them into place. A lock that
dies with its process keeps a second generator waiting.
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

from derive.command.ownership import foreign
from derive.errors import DeriveError

_SOON = 0.5
"""Seconds after which a generator says whom it waits for."""
_MOMENT = 10
"""Seconds that moving files into place may take."""
_PATIENCE = 600
"""Seconds after which a generator no longer waits."""


@dataclass(frozen=True)
class _Places:
    """Where things lie while ``out`` is written."""

    lock: Path
    staged: Path
    ready: Path

    @classmethod
    def of(cls, out: Path) -> _Places:
        """Beside ``out``, or in it where that is a file system or a right of its own."""
        out = out.resolve()
        beside, name = out.parent, f".{out.name}.derive"
        if out.is_dir() and (
            out.stat().st_dev != beside.stat().st_dev or not os.access(beside, os.W_OK)
        ):
            beside, name = out, ".derive"
        return cls(*(beside / f"{name}-{what}" for what in ("lock", "staged", "ready")))

    def any(self) -> bool:
        """Whether a run is at work here, or was killed."""
        return any(map(os.path.lexists, (self.lock, self.staged, self.ready)))

    def holder(self) -> str:
        """Who has the lock, as far as it can be told."""
        try:
            return f"process {int(self.lock.read_text())}"
        except (OSError, ValueError):
            return "another process"


@contextmanager
def alone(out: Path, waiting: Callable[[str], None]) -> Iterator[None]:
    """No other generator writes to ``out``; what one that was killed left is settled.

    ``waiting`` is told whom it waits for. Folders made for the lock go if they stay empty.
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
                raise DeriveError(
                    f"{places.holder()} is still generating {out}; try again later"
                ) from None
        with _released(lock, places):
            _recover(out, places)
            yield
    finally:
        for folder in above:
            with suppress(OSError):
                folder.rmdir()


def _prepared(out: Path) -> _Places:
    """The folder above ``out`` and a file to lock; a DeriveError where none can be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        places = _Places.of(out)
        places.lock.touch()
    except OSError as error:
        reason = f"{error.filename} cannot be written: {error.strerror}"
        raise DeriveError(f"{out}: {reason}; nothing has changed") from None
    return places


def settle(out: Path) -> None:
    """End what a killed run began, if there was one; for those who read ``out``.

    A generator that is at work has changed nothing yet, or is about to be done.
    """
    if not out.parent.is_dir():
        return
    places = _Places.of(out)
    if not places.any():
        return
    lock = FileLock(places.lock)
    try:
        lock.acquire(timeout=_MOMENT if places.ready.exists() else 0)
    except Timeout:
        if places.ready.exists():
            raise DeriveError(f"{places.holder()} is writing to {out}; try again later") from None
    except OSError:
        if places.ready.exists():
            raise
    else:
        with _released(lock, places):
            _recover(out, places)


@contextmanager
def _released(lock: FileLock, places: _Places) -> Iterator[None]:
    """The lock is held, and its file goes with it; who waits for a file that is gone asks anew."""
    try:
        with suppress(OSError):
            places.lock.write_text(str(os.getpid()))
        yield
    finally:
        with suppress(OSError):
            places.lock.unlink()
        lock.release()


def replace(out: Path, texts: Mapping[str, bytes], gone: Sequence[str]) -> None:
    """Write these files and remove those, all or none; the lock is held.

    A DeriveError that names the file for one that cannot be written: nothing has changed then.
    """
    try:
        places = _staged(out, texts, gone)
    except OSError as error:
        reason = error.strerror or str(error)
        where = error.filename or out
        raise DeriveError(f"{where} cannot be written: {reason}; nothing has changed") from None
    _flush(places.ready.parent)
    _move(out, places.ready)


def _staged(out: Path, texts: Mapping[str, bytes], gone: Sequence[str]) -> _Places:
    """All is written beside ``out`` and ready to be moved, or nothing is left of it."""
    places = _Places.of(out)
    made = not out.exists()
    try:
        out.mkdir(exist_ok=True)
        for folder in ("new", "gone", "old"):
            (places.staged / folder).mkdir(parents=True)
        for name, text in texts.items():
            _write(places.staged / "new" / name, text, out / name)
        for name in (*texts, *gone):
            # A file with another name is replaced at once: to free its blocks takes milliseconds.
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
    """The file, on the disk, with the rights of the one that it takes the place of."""
    try:
        with staged.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            staged.chmod(path.stat().st_mode & 0o777)
    except OSError as error:
        # Told of the file that is asked for: the staged one is gone when the message is read.
        raise OSError(error.errno, error.strerror, str(path)) from None


def _flush(folder: Path) -> None:
    """The entries of a folder, on the disk, where a system has that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _recover(out: Path, places: _Places) -> None:
    """Move what was ready into place, remove what was not."""
    if places.ready.exists():
        out.mkdir(exist_ok=True)
        _move(out, places.ready)
    if places.staged.exists():
        shutil.rmtree(places.staged)


def _move(out: Path, ready: Path) -> None:
    """Every file into its place, with nothing between one and the next.

    What a person put there since the files were staged stays.
    """
    pairs = [(path, out / path.name) for path in _entries(ready / "new")]
    moves = [(str(path), str(place)) for path, place in pairs if not foreign(place)]
    gone = [out / path.name for path in _entries(ready / "gone")]
    removals = [str(place) for place in gone if place.exists() and not foreign(place)]
    try:
        with _uninterrupted():
            for path, place in moves:
                os.replace(path, place)
            for place in removals:
                os.unlink(place)
    except OSError as error:
        raise DeriveError(
            f"{error.filename2 or error.filename} cannot be replaced: {error.strerror}; fix that, "
            "and the next run moves the remaining files into place"
        ) from None
    _flush(out)
    shutil.rmtree(ready)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C, a closed terminal and a polite end wait until it is over."""
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

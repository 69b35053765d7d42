"""Limits on the derivation of one operation: processor time, memory, and size of code.

Each new node and each match attempt counts as one unit of work, so every loop is covered. Every
`_OFTEN` units the clock is compared with the limits.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import nan
from pathlib import Path

from derive.errors import DeriveError, LimitError

# A browser has one thread for each interpreter, and no clock of threads.
_processor_time = getattr(time, "thread_time", time.process_time)

SECONDS = 30.0
"""Default time limit per spec file on the command line."""

_OFTEN = 512
"""Units of work between two checks of the clock."""

_STATUS = Path("/proc/self/statm")


@dataclass(frozen=True)
class _Limits:
    """Seconds of processor time, bytes of memory, and characters of code; None for no limit."""

    seconds: float | None = 60.0
    memory: float | None = 2e9
    code: float | None = 2e6


_VARIABLES: dict[str, str] = {
    name: f"DERIVE_MAX_{name.upper()}" for name in ("seconds", "memory", "code")
}

_ADVICE = "split it into named equations, or raise the limit"


def _limit_options(name: str) -> str:
    return f"derive --max-{name} N COMMAND, derive.limits({name}=N) or {_VARIABLES[name]}=N"


class _Clock:
    """The time and memory that one operation has used."""

    def __init__(self, name: str, allowed: _Limits) -> None:
        self.name = name
        self.allowed = allowed
        self.left = _OFTEN
        self.place = ""
        self._start = _processor_time()
        self._memory = _resident()

    def look(self) -> None:
        """Raise `LimitError` if a limit is exceeded."""
        self.left = _OFTEN
        seconds, memory = self.allowed.seconds, self.allowed.memory
        if seconds is not None and _processor_time() - self._start > seconds:
            raise self._error(f"takes more than {seconds:g} s of processor time", "seconds")
        if memory is not None and _resident() - self._memory > memory:
            raise self._error(f"takes more than {memory / 1e9:g} GB of memory", "memory")

    def _error(self, what: str, name: str) -> LimitError:
        place = f", at {self.place}" if self.place else ""
        return LimitError(f"{self.name} {what}{place}: {_ADVICE} ({_limit_options(name)})")


_CLOCK: ContextVar[_Clock | None] = ContextVar("clock", default=None)
_LIMITS: ContextVar[_Limits | None] = ContextVar("limits", default=None)


def tick() -> None:
    """Count one unit of work."""
    clock = _CLOCK.get()
    if clock is not None:
        clock.left -= 1
        if clock.left < 0:
            clock.look()


def at(place: str) -> None:
    """Record the current equation for error messages."""
    clock = _CLOCK.get()
    if clock is not None:
        clock.place = place


@contextmanager
def working(name: str) -> Iterator[None]:
    """Measure the block as work on that operation; a nested block counts for the outer one."""
    if _CLOCK.get() is not None:
        yield
        return
    token = _CLOCK.set(_Clock(name, _allowed()))
    try:
        with collected_later():
            yield
    finally:
        _CLOCK.reset(token)


@contextmanager
def collected_later() -> Iterator[None]:
    """Collect cyclic garbage after the block: there is little, and looking for it takes long."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def limits(
    *,
    seconds: float | None = _Limits.seconds,
    memory: float | None = _Limits.memory,
    code: float | None = _Limits.code,
) -> Iterator[None]:
    """Limit what the derivation of one operation may use inside a ``with`` block.

    Args:
        seconds: processor time in seconds, 60 unless given.
        memory: growth of the process in bytes, 2e9 unless given.
        code: length of the generated code in characters, 2e6 unless given.

    None disables a limit. Outside of the block, the environment variables DERIVE_MAX_SECONDS,
    DERIVE_MAX_MEMORY and DERIVE_MAX_CODE set the limits; ``inf`` disables one.

    Raises:
        LimitError: a derivation in the block exceeds a limit.
        DeriveError: a limit is negative or not a number.

    >>> import derive
    >>> op = derive.parse("C[i,j] = sum[k](A[i,k]*B[k,j])")
    >>> with derive.limits(code=100):
    ...     derive.source(op)
    Traceback (most recent call last):
        ...
    derive.errors.LimitError: op has ... characters of code, above the limit of 100; ...
    """
    given = {"seconds": seconds, "memory": memory, "code": code}
    for name, value in given.items():
        if value is not None:
            _parse_limit(f"derive.limits({name}=...)", value)
    token = _LIMITS.set(_Limits(**given))
    try:
        yield
    finally:
        _LIMITS.reset(token)


def allow(**most: float | None) -> None:
    """Set limits for this process and its children; None leaves a limit unchanged."""
    for name, value in most.items():
        if value is not None:
            os.environ[_VARIABLES[name]] = repr(_parse_limit(f"--max-{name}", value))


def _parse_limit(of: str, value: float | str) -> float:
    """Parse a limit, a number of at least 0."""
    try:
        amount = float(value)
    except ValueError:
        amount = nan
    if not amount >= 0:
        raise DeriveError(
            f"{of} must be a number of at least 0, not {value!r}", kind="unknown-option"
        )
    return amount


def _allowed() -> _Limits:
    """Return the limits in force: those of `limits`, else those of the environment."""
    found = _LIMITS.get()
    return found if found is not None else _Limits(**dict(_from_environment()))


def _from_environment() -> Iterator[tuple[str, float]]:
    for name, variable in _VARIABLES.items():
        text = os.environ.get(variable)
        if text:
            yield name, _parse_limit(variable, text)


def check_code(name: str, text: str) -> str:
    """Return the code of an operation; raise `LimitError` if it is too long."""
    clock = _CLOCK.get()
    most = (_allowed() if clock is None else clock.allowed).code
    if most is None or len(text) <= most:
        return text
    longest = _longest(text)
    raise LimitError(
        f"{name} has {len(text):,} characters of code, above the limit of {most:,.0f}; most of "
        f"them compute {longest}: {_ADVICE} ({_limit_options('code')})"
    )


def _longest(text: str) -> str:
    """Return the name whose computation takes the most code; casts and checks are not counted."""
    sizes: dict[str, int] = {}
    name = ""
    for line in map(str.strip, text.splitlines()):
        target, found, code = line.partition(" = ")
        if found and target.isidentifier():
            name = (
                ""
                if re.match(r"True|\w+\.dtype|rt\.(autocast|cast|widened|promoted)", code)
                else target
            )
        elif not line or line.startswith(("def ", "return ")):
            name = ""
        sizes[name] = sizes.get(name, 0) + len(line)
    return max((n for n in sizes if n), key=sizes.__getitem__, default="its checks")


def _resident() -> int:
    """Return the resident memory of this process in bytes, 0 where the system has no count."""
    try:
        return int(_STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0

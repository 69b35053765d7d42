"""The steps that led to a formula, concatenated lazily when they are read.

A formula at the end of a long chain includes the steps of every formula before it; most are never
shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from derive.algebra.rules import Step


@dataclass(frozen=True, eq=False)
class StepLog:
    """Steps after those of two earlier trails: of the formula, and of the one inlined into it."""

    own: tuple[Step, ...] = ()
    before: StepLog | None = None
    taken: StepLog | None = None

    def then(self, own: Sequence[Step], taken: StepLog | None = None) -> StepLog:
        """Append the steps of ``taken`` that are not in this trail, and then ``own``."""
        return StepLog(tuple(own), self, taken)

    def __iter__(self) -> Iterator[Step]:
        """All steps in order, without duplicates from shared trails."""
        found: dict[StepLog, tuple[Step, ...]] = {}
        pending: list[StepLog] = [self]
        while pending:
            trail = pending[-1]
            parts = [p for p in (trail.before, trail.taken) if p is not None]
            missing = [p for p in parts if p not in found]
            if missing:
                pending += missing
                continue
            pending.pop()
            before = () if trail.before is None else found[trail.before]
            taken = () if trail.taken is None else found[trail.taken]
            known = set(before) if taken else set()
            found[trail] = (*(s for s in taken if s not in known), *before, *trail.own)
        yield from found[self]

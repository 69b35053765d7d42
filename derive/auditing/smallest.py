"""A counterexample that can be checked by hand: small sizes, small whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derive.auditing.conditions import runs
from derive.auditing.forward import Subject
from derive.auditing.gradients import cotangents_of, near, outcome
from derive.auditing.points import by_size, classes, is_tensor, resized


def counterexample(
    subject: Subject, args: Sequence[Any], names: Sequence[str], n: int, tolerance: float
) -> str:
    """The smallest call found where the gradient in argument n is wrong; '' for none."""
    known = classes(args, by_size)
    ways = [{c: 1 for c in known}]
    ways += [{c: 2 if c == one else 1 for c in known} for one in known if len(known) > 1]
    ways += [{c: 2 for c in known}, dict(known)]
    for sizes in ways:
        for seed in range(3):
            small = resized(args, by_size, sizes, seed, whole=True)
            if not runs(subject, small):
                break
            cotangents = cotangents_of(subject, small, seed, whole=True)
            made = outcome(subject, small, cotangents, copied=True)
            if made.error or near(made.given.get(n), made.right[n], tolerance):
                continue
            given = [f"{name} = {_text(a)}" for name, a in zip(names, small, strict=True)]
            called = subject.cotangents(len(cotangents))
            given += [
                f"{name} = {_text(g)}"
                for name, g in zip(called, cotangents, strict=False)
                if g is not None
            ]
            return (
                f"{', '.join(given)}: backward gives {_text(made.given.get(n))} for {names[n]}; "
                f"it should be {_text(made.right[n])}"
            )
    return ""


def _text(value: Any) -> str:
    """A tensor as lists of short numbers."""
    if not is_tensor(value):
        return repr(value)

    def short(part: Any) -> str:
        if isinstance(part, list):
            return f"[{', '.join(map(short, part))}]"
        return f"{part:.4g}" if isinstance(part, float) else str(part)

    return short(value.detach().tolist())

"""Group example calls by their flags, choices and integers.

A gradient may be wrong in one group alone; then it is explained there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from derive.auditing.gradients import Outcome
from derive.auditing.points import is_tensor
from derive.auditing.structure import Structure, structure_of

_MOST = 40
"""Values with a longer repr are not printed."""


@dataclass(frozen=True)
class CallGroup:
    """One group of calls: the gradients in ``wrong`` are first wrong here."""

    structure: Structure
    outcomes: tuple[Outcome, ...]
    wrong: tuple[int, ...]
    condition: str
    """The arguments that distinguish this group; '' if every group has a wrong gradient."""

    @property
    def count(self) -> int:
        """The number of arguments of a call."""
        return len(self.outcomes[0].args)


def call_groups(
    structure: Structure,
    examples: Sequence[tuple[Any, ...]],
    names: Sequence[str],
    calls: Sequence[tuple[Outcome, Sequence[int]]],
    wrong: Sequence[int],
) -> Iterator[CallGroup]:
    """Yield the groups with a wrong gradient; ``calls`` has the wrong arguments of each call."""
    kinds = list(dict.fromkeys(_group_key(o.args) for o, _ in calls))
    bad = {_group_key(o.args) for o, ns in calls if ns}
    left = list(wrong)
    for kind in kinds:
        own = [(o, ns) for o, ns in calls if _group_key(o.args) == kind]
        here = [n for n in left if any(n in ns for _, ns in own)]
        if not here and (wrong or kind != kinds[0]):
            continue
        left = [n for n in left if n not in here]
        others = tuple(o for o, _ in calls if _group_key(o.args) != kind)
        mine = [e for e in examples if _group_key(e) == kind]
        is_first = _group_key(structure.args) == kind or not mine
        yield CallGroup(
            structure if is_first else structure_of(mine, structure.kept),
            tuple(o for o, _ in own),
            tuple(here),
            _group_condition(names, own[0][0].args, [o.args for o in others])
            if bad < set(kinds)
            else "",
        )


def _group_key(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the key of a group: the arguments other than tensors and floats."""
    return tuple(_hashable_argument(a) for a in args)


def _hashable_argument(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_hashable_argument, value))
    if value is None or isinstance(value, bool | int | str):
        return type(value).__name__, value
    return "tensor" if is_tensor(value) else type(value).__name__


def _group_condition(
    names: Sequence[str], args: Sequence[Any], others: Sequence[Sequence[Any]]
) -> str:
    """Describe the values that no other group has, as a condition."""
    told = [
        f"{name}={value!r}"
        for n, (name, value) in enumerate(zip(names, args, strict=False))
        if isinstance(value, bool | int | str | None)
        and len(repr(value)) < _MOST
        and all(
            len(o) <= n or _hashable_argument(o[n]) != _hashable_argument(value) for o in others
        )
    ]
    if not told and any(len(o) != len(args) for o in others):
        return f"with {len(args)} arguments"
    return f"where {' and '.join(told)}" if told else ""

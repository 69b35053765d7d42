"""What a person asks for of an operation: one of its options, names that have a gradient."""

from __future__ import annotations

from collections.abc import Sequence

from derive.errors import DeriveError
from derive.notation.operation import Operation
from derive.notation.options import options


def check_operation(op: object) -> None:
    """An error where it is none."""
    if not isinstance(op, Operation):
        raise TypeError(
            f"op must be an Operation, not {type(op).__name__}; derive.parse(text) returns one"
        )


def known_option(op: Operation, option: str | None) -> str | None:
    """The option, the first where none is named."""
    names = [name for name, _ in options(op)]
    if option is None:
        return names[0]
    if option not in names:
        raise DeriveError(f"{op.name} has no option {option!r}")
    return option


def names_with_gradient(op: Operation) -> list[str]:
    """The float equations, last first as a backward goes, and the float inputs."""
    equations = [e.name for e in reversed(op.equations) if e.kind == "float"]
    return equations + [t.name for t in op.inputs if t.kind == "float"]


def known_names(op: Operation, wrt: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names in which a gradient is asked for, once each."""
    if wrt is None:
        return None
    known = names_with_gradient(op)
    for name in wrt:
        if name not in known:
            raise DeriveError(
                f"{op.name} has no gradient of {name}; it has gradients of "
                f"{', '.join(known) or 'nothing'}"
            )
    return tuple(dict.fromkeys(wrt))


SAVES = ("balanced", "least")
"""What a module keeps for its backward: what is worth it, or inputs and outputs alone."""


def saves_least(save: str) -> bool:
    """Whether inputs and outputs alone are to be saved."""
    if save not in SAVES:
        raise DeriveError(f"save={save!r}: must be one of {', '.join(map(repr, SAVES))}")
    return save == "least"


def known_target(op: Operation, of: str | None) -> str:
    """The output that is differentiated: ``of``, the only float one, or the only number."""
    equations = {e.name: e for e in op.equations}
    floats = [name for name in op.outputs if equations[name].kind == "float"]
    numbers = [name for name in floats if not equations[name].axes]
    if of is not None:
        if of in floats:
            return of
        known = ", ".join(floats) or "none"
        raise DeriveError(f"{op.name} has no differentiable output {of!r}; it has {known}")
    for found in (floats, numbers):
        if len(found) == 1:
            return found[0]
    if not floats:
        raise DeriveError(f"{op.name} has no differentiable output, and so no gradients")
    raise DeriveError(f"{op.name} has several outputs; choose one with of=: {', '.join(floats)}")

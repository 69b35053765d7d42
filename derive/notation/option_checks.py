"""Checks of user arguments: options, names with a gradient, and outputs."""

from __future__ import annotations

from collections.abc import Sequence

from derive.errors import DeriveError
from derive.notation.operation import Operation
from derive.notation.options import options


def check_operation(op: object) -> None:
    """Raise TypeError unless op is an Operation."""
    if not isinstance(op, Operation):
        raise TypeError(
            f"op must be an Operation, not {type(op).__name__}; derive.parse(text) returns one"
        )


def known_option(op: Operation, option: str | None) -> str | None:
    """Return the option, by default the first one."""
    names = [name for name, _ in options(op)]
    if option is None:
        return names[0]
    if option not in names:
        raise DeriveError(f"{op.name} has no option {option!r}")
    return option


def names_with_gradient(op: Operation) -> list[str]:
    """Return the float equations, last first as in a backward, then the float inputs."""
    equations = [e.name for e in reversed(op.equations) if e.kind == "float"]
    return equations + [t.name for t in op.inputs if t.kind == "float"]


def known_names(op: Operation, wrt: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names to differentiate with respect to, without duplicates."""
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
""""balanced" saves intermediates that are worth it, "least" only inputs and outputs."""


def saves_least(save: str) -> bool:
    """True if only inputs and outputs are to be saved."""
    if save not in SAVES:
        raise DeriveError(f"save={save!r}: must be one of {', '.join(map(repr, SAVES))}")
    return save == "least"


STYLES = ("production", "plain")
""""production" has kernels and checks, "plain" is the formulas as a Function."""


def is_plain(style: str) -> bool:
    """True if the module is to be read rather than run."""
    if style not in STYLES:
        raise DeriveError(f"style={style!r}: must be one of {', '.join(map(repr, STYLES))}")
    return style == "plain"


def known_target(op: Operation, of: str | None) -> str:
    """Return the output to differentiate: ``of``, the only float one, or the only scalar."""
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

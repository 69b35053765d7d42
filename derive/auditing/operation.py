"""The operation and the torch function of a forward, from ``reference`` or by tracing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from derive.auditing.forward import Subject
from derive.auditing.model import Model
from derive.auditing.points import is_tensor
from derive.check.reference import values
from derive.errors import DeriveError
from derive.notation.operation import Choice, Operation
from derive.notation.specification import parse
from derive.tracing.read import read_torch

Reference = Operation | str | Callable[..., Any] | None


def operation_of(reference: Reference) -> Operation | None:
    """Return the operation if the reference is one, or its text."""
    if isinstance(reference, str):
        return parse(reference)
    return reference if isinstance(reference, Operation) else None


def torch_function(reference: Reference, names: Sequence[str]) -> Callable[..., Any] | None:
    """Return the reference as a torch function of forward's arguments."""
    op = operation_of(reference)
    if op is None:
        return reference if callable(reference) else None

    def run(*args: Any) -> tuple[Any, ...]:
        model = Model(op, tuple(names), (), None, _tensor_argument_numbers(args))
        known = model.inputs(args)
        if len(known) < len(model.places):
            raise DeriveError(
                f"{op.name} has {len(op.inputs)} inputs, but the forward takes "
                f"{len(model.places)} tensors; give the operation of this forward"
            )
        given = {name: args[n] for n, name in known.items()}
        made = values(op, given, model.parameters(args))
        return tuple(made[name] for name in op.outputs if name in made)

    return run


def _tensor_argument_numbers(args: Sequence[Any]) -> tuple[int, ...]:
    return tuple(n for n, a in enumerate(args) if is_tensor(a))


def model_of(
    subject: Subject, args: Sequence[Any], names: tuple[str, ...], reference: Reference
) -> Model | str:
    """Return the operation with the user's names; a text if the forward cannot be traced."""
    op = operation_of(reference) or _trace_subject(subject, args, names)
    if isinstance(op, str):
        return op
    cotangents = subject.cotangents(len(op.outputs))
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    option = None
    if choice is not None and choice.name in names:
        option = args[names.index(choice.name)]
    return Model(op, names, cotangents, option, _tensor_argument_numbers(args))


def _trace_subject(subject: Subject, args: Sequence[Any], names: Sequence[str]) -> Operation | str:
    """Trace the forward or the reference into an operation; a text if that fails."""

    def forward(*given: Any) -> Any:
        made = subject.traced(given)
        return made[0] if len(made) == 1 else made

    names = subject.plain_names(len(names))
    if all(n.isidentifier() for n in names) and len(set(names)) == len(names):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(n, kind) for n in names])
        forward.__signature__ = signature  # type: ignore[attr-defined]
    forward.__name__ = subject.name
    try:
        return read_torch(forward, *args)
    except DeriveError as error:
        return str(error).partition("\n")[0]
    except Exception as error:
        return f"{type(error).__name__}: {error}"

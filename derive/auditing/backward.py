"""Trace a hand-written backward into equations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from derive.algebra.expr import Access, Expr, Index
from derive.algebra.substitution import replace
from derive.auditing.forward import Context, Subject
from derive.auditing.model import Model
from derive.auditing.points import is_float, is_tensor
from derive.notation.operation import Equation, Operation
from derive.show.formula import equation
from derive.tracing.read import read_torch


def written(
    subject: Subject,
    args: Sequence[Any],
    cotangents: Sequence[Any],
    wanted: Sequence[int],
    model: Model | None,
) -> tuple[str, ...]:
    """Return the gradients of these arguments as equations, as backward computes them.

    Names are those of its code. Equations of the forward that backward reads are included, except
    those that the operation already has.
    """
    names = subject.plain_names(len(args))
    given = [n for n, g in enumerate(cotangents) if g is not None]
    every = [*names, *_distinct_cotangent_names(subject.cotangents(len(cotangents)), names)]
    every = every[: len(names)] + [every[len(names) + n] for n in given]
    returned: list[int] = []

    def backward(*values: Any) -> tuple[Any, ...]:
        inputs, cots = values[: len(args)], dict(zip(given, values[len(args) :], strict=True))
        own = [cots.get(n) for n in range(len(cotangents))]
        raw = _run_unwrapped(subject, inputs, own)
        returned[:] = [n for n in wanted if n < len(raw) and is_tensor(raw[n])]
        return tuple(raw[n] for n in returned)

    _give_names(backward, every)
    letters = (
        {} if model is None else _tracer_letters(model, args, names, every[len(args) :], given)
    )
    op = read_torch(
        backward, *args, *(cotangents[n] for n in given), name="backward", letters=letters
    )
    targets = {o: f"grad_{names[n]}" for o, n in zip(op.outputs, returned, strict=True)}
    taken = {t.name for t in op.inputs} | {e.name for e in op.equations}
    targets = {o: t for o, t in targets.items() if t not in taken}
    known = (
        set() if model is None else {_renamed_equation(e, {}) for e in model.operation.equations}
    )
    return tuple(
        _renamed_equation(e, targets) for e in op.equations if _renamed_equation(e, {}) not in known
    )


def _run_unwrapped(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[Any, ...]:
    """Run forward and backward without autograd; return what backward returns."""
    function = subject.function
    context = Context([is_float(a) for a in args])
    if subject.has_setup:
        result = function.forward(*args)
        function.setup_context(context, tuple(args), result)
    else:
        function.forward(context, *args)
    # Skip the wrapper of once_differentiable, which detaches its arguments.
    raw = inspect.unwrap(function.backward)(context, *cotangents)
    return raw if isinstance(raw, tuple) else (raw,)


def _distinct_cotangent_names(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return the names of cotangents, with "_" appended where an argument has the same name."""
    made: list[str] = []
    for name in (n.replace("[", "").replace("]", "") for n in names):
        while name in taken or name in made:
            name += "_"
        made.append(name)
    return made


def _give_names(function: Callable[..., Any], names: Sequence[str]) -> None:
    if all(n.isidentifier() for n in names):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(n, kind) for n in names])
        function.__signature__ = signature  # type: ignore[attr-defined]


def _tracer_letters(
    model: Model,
    args: Sequence[Any],
    names: Sequence[str],
    cotangents: Sequence[str],
    given: Sequence[int],
) -> dict[str, Any]:
    """Return the operation's index letters for each axis of the arguments and cotangents."""
    op = model.operation
    axes = {t.name: t.axes for t in op.inputs}
    found = {
        names[n]: _of_axes(axes[name])
        for n, name in model.inputs(args).items()
        if len(axes[name]) == args[n].ndim
    }
    outputs = _output_equations(op)
    return found | {
        name: _of_axes(outputs[n].axes)
        for name, n in zip(cotangents, given, strict=True)
        if n < len(outputs)
    }


def _output_equations(op: Operation) -> list[Equation]:
    known = {e.name: e for e in op.equations}
    return [known[name] for name in op.outputs if name in known]


def _of_axes(axes: Sequence[Expr]) -> list[str | None]:
    return [a.name if isinstance(a, Index) and not a.group else None for a in axes]


def _renamed_equation(e: Equation, targets: Mapping[str, str]) -> str:
    """Print an equation, with outputs renamed by ``targets``."""

    def named(part: Expr) -> Expr | None:
        if isinstance(part, Access) and part.tensor in targets:
            return Access(targets[part.tensor], tuple(replace(p, named) for p in part.positions))
        return None

    return equation(targets.get(e.name, e.name), e.axes, replace(e.body, named))

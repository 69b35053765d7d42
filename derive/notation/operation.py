"""The operation: a tuple of named equations with inputs, parameters and outputs.

An `Operation` is complete: every index has its extent, every extent says where its size is
read, every tensor and equation has its kind. Nothing after the spec stage infers any of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Literal, Self

from derive.algebra.expr import Expr, Index, accesses, inside_out
from derive.errors import DeriveError

Kind = Literal["float", "int", "bool"]


@dataclass(frozen=True)
class Tensor:
    """An input tensor. Only ``float`` tensors have a gradient.

    ``axes`` has one `Index` (also for a group) or `Composite` for each axis. An axis that the
    equations reach only through affine or nested positions has an index of its own name.
    ``default`` is the constant that None means; a tensor with a default is optional.
    """

    name: str
    axes: tuple[Expr, ...]
    kind: Kind = "float"
    default: Fraction | Expr | None = None


BOUNDS = {
    ">": "greater than",
    ">=": "at least",
    "<": "less than",
    "<=": "at most",
    "!=": "different from",
}
"""The relations of parameter bounds, in words."""


@dataclass(frozen=True)
class Number:
    """A Python scalar used as a number; it is required if ``default`` is None.

    A default that is not rational is ``inf``, ``-inf`` or ``pi``: a `Const`, or -1 times one.
    ``bounds`` has conditions such as (">", 0); a call that violates one raises a ValueError.
    """

    name: str
    default: Fraction | Expr | None = None
    integer: bool = False
    bounds: tuple[tuple[str, Fraction], ...] = ()


@dataclass(frozen=True)
class AxisOf:
    """``dim=axis(k)``: the run-time position of axis k in the tensors that have it."""

    name: str
    index: Index
    default: int | None = None


@dataclass(frozen=True)
class KeepDim:
    """``keepdim=keep(k)``: outputs that lost axis k keep it with size 1. False unless given."""

    name: str
    index: Index


@dataclass(frozen=True)
class SizeOf:
    """``groups=size(g)``: the size of an index, and a number in expressions (`Size`)."""

    name: str
    extent: str
    default: int | None = None


@dataclass(frozen=True)
class Choice:
    """``reduction=mean|sum|none``: which output is computed; the first option is the default."""

    name: str
    outputs: tuple[tuple[str, str], ...]
    """(option, the output it selects), in order."""


Parameter = Number | AxisOf | KeepDim | SizeOf | Choice


@dataclass(frozen=True)
class Extent:
    """The source of the size of a class of indices.

    Either it is read from an axis: ``sources`` lists each (input, axis number) with this index
    alone, and all must agree. Or ``size`` is an expression in other sizes, parameters and numbers
    (including `Call`s of ``floordiv``, ``minimum``, ``maximum``). With both, the axes are checked
    against ``size``.
    """

    name: str
    group: bool = False
    sources: tuple[tuple[str, int], ...] = ()
    size: Expr | None = None


@dataclass(frozen=True)
class Equation:
    """``name[axes] = body``.

    ``axes`` has an `Index`, a `Num` 0 (an axis of size 1) or a `Composite` for each axis. Every
    free index of ``body`` is in ``axes``. ``line`` and ``column`` are 1-based, for text;
    ``text`` is the equation as it was written.
    """

    name: str
    axes: tuple[Expr, ...]
    body: Expr
    kind: Kind = "float"
    line: int | None = field(default=None, compare=False)
    column: int | None = field(default=None, compare=False)
    text: str = field(default="", compare=False)


@dataclass(frozen=True, init=False, repr=False)
class Operation:
    """A tensor operation in index notation: equations ``output[j] = body`` for all values j.

    This class is plain data. The public class in `derive.notation.specification` adds parsing from
    text and SymPy, and printing.
    """

    name: str
    inputs: tuple[Tensor, ...]
    parameters: tuple[Parameter, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[str, ...]
    extents: tuple[Extent, ...]
    stable: bool
    comment: str = field(compare=False)

    @classmethod
    def resolved(
        cls,
        name: str,
        inputs: tuple[Tensor, ...],
        parameters: tuple[Parameter, ...],
        equations: tuple[Equation, ...],
        outputs: tuple[str, ...],
        extents: tuple[Extent, ...],
        stable: bool = False,
        comment: str = "",
    ) -> Self:
        """Return the operation from parts that are complete already."""
        made = cls.__new__(cls)
        made._set(name, inputs, parameters, equations, outputs, extents, stable, comment)
        return made

    def replaced(self, **parts: Any) -> Self:
        """Return the operation with other parts, complete as well, and without the comment."""
        return self.resolved(**{**vars(self), "comment": "", **parts})

    def __reduce__(self) -> tuple[Any, ...]:
        """Put nodes first, each after its children, so that pickle needs no deep recursion."""
        parts = (self.name, self.inputs, self.parameters, self.equations, self.outputs)
        rest = (self.extents, self.stable, self.comment)
        return _restored, (type(self), tuple(_inner_first(self)), (*parts, *rest))

    def _set(self, *values: Any) -> None:
        """Set the fields, in order; the class is frozen."""
        for own, value in zip(fields(Operation), values, strict=True):
            object.__setattr__(self, own.name, value)


def _restored(kind: type[Operation], nodes: tuple[Expr, ...], parts: tuple[Any, ...]) -> Operation:
    """Return the unpickled operation; ``nodes`` have been rebuilt before ``parts``."""
    return kind.resolved(*parts)


def _inner_first(op: Operation) -> Iterator[Expr]:
    """Yield each node of the bodies and sizes once, after its children."""
    whole = [e.body for e in op.equations] + [e.size for e in op.extents if e.size is not None]
    return inside_out(whole, lambda e: e.parts())


def declared_axes(op: Operation) -> dict[str, tuple[Expr, ...]]:
    """Return the axes of each input and equation."""
    return {t.name: t.axes for t in op.inputs} | {e.name: e.axes for e in op.equations}


# ------------------------------------------------------------------------------------------ options
# The options of a choice: the operation that computes each of them.


def options(op: Operation) -> Iterator[tuple[str | None, Operation]]:
    """Yield (option, the operation that computes it) for each option of the choice."""
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    if choice is None:
        yield None, _pruned(op, op.outputs)
        return
    for option, output in choice.outputs:
        yield option, _pruned(op, (output,))


def without_choice(op: Operation, option: str | None) -> Operation:
    """Return the operation of one option, without its choice parameter."""
    parameters = tuple(p for p in op.parameters if not isinstance(p, Choice))
    return dict(options(op))[option].replaced(parameters=parameters)


def _pruned(op: Operation, outputs: tuple[str, ...]) -> Operation:
    """Return op with these outputs and the equations that they depend on."""
    return op.replaced(equations=depended_on(op, outputs), outputs=outputs)


def depended_on(op: Operation, names: tuple[str, ...]) -> tuple[Equation, ...]:
    """Return the equations with these names and those that they depend on, in order."""
    wanted = set(names)
    kept = []
    for equation in reversed(op.equations):
        if equation.name in wanted:
            kept.append(equation)
            wanted |= {a.tensor for a in accesses(equation.body)}
            if equation.axes:
                wanted |= {a.tensor for e in equation.axes for a in accesses(e)}
    return tuple(reversed(kept))


# ------------------------------------------------------------------------------------ option checks
# Checks of user arguments: options, names with a gradient, and outputs.


def check_operation(op: object) -> None:
    """Raise TypeError unless op is an Operation."""
    if not isinstance(op, Operation):
        text = f"op must be an Operation, not {type(op).__name__}; derive.parse(text) returns one"
        raise TypeError(text)


def known_option(op: Operation, option: str | None) -> str | None:
    """Return the option, by default the first one."""
    names = [name for name, _ in options(op)]
    if option is None:
        return names[0]
    if option not in names:
        raise DeriveError(f"{op.name} has no option {option!r}", kind="unknown-option")
    return option


def names_with_gradient(op: Operation) -> list[str]:
    """Return the float equations, last first as in a backward, then the float inputs."""
    equations = [e.name for e in reversed(op.equations) if e.kind == "float"]
    return equations + [t.name for t in op.inputs if t.kind == "float"]


def known_names(op: Operation, wrt: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names to differentiate with respect to, without duplicates."""
    if wrt is None:
        return None
    known, wrt = names_with_gradient(op), [wrt] if isinstance(wrt, str) else wrt
    for name in wrt:
        if name not in known:
            there = ", ".join(known) or "nothing"
            raise _without_gradient(op, f"no gradient of {name}; it has gradients of {there}")
    return tuple(dict.fromkeys(wrt))


SAVES = ("balanced", "least")
""""balanced" saves intermediates that are worth it, "least" only inputs and outputs."""


def saves_least(save: str) -> bool:
    """True if only inputs and outputs are to be saved."""
    if save not in SAVES:
        text = f"save={save!r}: must be one of {', '.join(map(repr, SAVES))}"
        raise DeriveError(text, kind="unknown-option")
    return save == "least"


STYLES = ("production", "plain")
""""production" has kernels and checks, "plain" is the formulas as a Function."""


def is_plain(style: str) -> bool:
    """True if the module is to be read rather than run."""
    if style not in STYLES:
        text = f"style={style!r}: must be one of {', '.join(map(repr, STYLES))}"
        raise DeriveError(text, kind="unknown-option")
    return style == "plain"


def known_target(op: Operation, of: str | None, outputs: Sequence[str] | None = None) -> str:
    """Return the output to differentiate: ``of``, the only float one, or the only scalar.

    ``outputs`` are those of an option; by default, all outputs.
    """
    equations = {e.name: e for e in op.equations}
    of_interest = op.outputs if outputs is None else outputs
    floats = [name for name in of_interest if equations[name].kind == "float"]
    numbers = [name for name in floats if not equations[name].axes]
    if of is not None:
        if of in floats:
            return of
        known = ", ".join(floats) or "none"
        raise _without_gradient(op, f"no differentiable output {of!r}; it has {known}")
    for found in (floats, numbers):
        if len(found) == 1:
            return found[0]
    if not floats:
        raise _without_gradient(op, "no differentiable output, and so no gradients")
    raise _without_gradient(op, f"several outputs; choose one with of=: {', '.join(floats)}")


def _without_gradient(op: Operation, what: str) -> DeriveError:
    return DeriveError(f"{op.name} has {what}", kind="unknown-gradient")

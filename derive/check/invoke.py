"""Call a generated function on a sample, and get its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from derive.algebra.interpret import Array
from derive.check import reference
from derive.check.lazy import Tensor, torch
from derive.check.samples import Sample
from derive.notation.operation import Operation
from derive.passes import statement

# -------------------------------------------------------------------------------------------- check
# The type of a check, a row of the table in `derive.check.checks`.

Checking = Callable[..., str]
"""check(op, function, made): the difference between a function and its specification at a sample.

'' if they agree. A check with ``slack`` allows for that much rounding error.
"""


class NotApplicable(Exception):
    """Why a check does not apply to an operation."""


@dataclass(frozen=True)
class Column:
    """A check of generated code, with its name.

    ``order`` is the order of the derivatives compared; a difference is then adjudicated
    (`derive.check.rounding_adjudication`). ``rounds``: code is compared with itself, up to its
    rounding. ``typical`` restricts the check to the typical case of each option.
    """

    name: str
    check: Checking
    order: int | None = None
    rounds: bool = False
    typical: bool = False
    said: str = ""
    """What it states, unless the docstring of ``check`` says that."""

    @property
    def states(self) -> str:
        """What holds of code that passes."""
        check = self.check.func if isinstance(self.check, partial) else self.check
        return self.said or statement(check).removeprefix("Check that ")


# ------------------------------------------------------------------------------------------- invoke

Function = Callable[..., Any]


def tensors_of(made: Sample, dtype: str = "float64") -> dict[str, Tensor | None]:
    """Return the inputs as torch tensors; float ones require a gradient."""
    found: dict[str, Tensor | None] = {}
    for name, value in made.tensors.items():
        tensor = None if value is None else torch.from_numpy(value.copy())
        if tensor is not None and tensor.is_floating_point():
            tensor = tensor.to(getattr(torch, dtype)).requires_grad_()
        found[name] = tensor
    return found


def detached(made: Sample) -> dict[str, Tensor | None]:
    """Return the inputs as torch tensors without requires_grad."""
    return {name: None if t is None else t.detach() for name, t in tensors_of(made).items()}


def called(function: Function, made: Sample, tensors: Sequence[Tensor | None]) -> list[Tensor]:
    given = {n: v for n, v in made.parameters.items() if v is not None}
    result = function(*tensors, **given)
    return list(result) if isinstance(result, tuple) else [result]


def smooth(outputs: Sequence[Tensor], made: Sample) -> list[Tensor]:
    """Return the finite elements of the float outputs."""
    kept = []
    for output, value in zip(outputs, made.outputs.values(), strict=True):
        if output.is_floating_point():
            finite = np.asarray(np.isfinite(value))
            kept.append(output if finite.all() else output[torch.from_numpy(finite)])
    return kept


def inputs_of(tensors: dict[str, Tensor | None]) -> list[str]:
    return [name for name, t in tensors.items() if t is not None and t.requires_grad]


def leaves_of(tensors: dict[str, Tensor | None]) -> list[Tensor]:
    return [t for t in tensors.values() if t is not None and t.requires_grad]


def of_inputs(
    function: Function, made: Sample
) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """Return the finite float outputs as a function of the inputs with requires_grad."""
    tensors = tensors_of(made)
    names = inputs_of(tensors)

    def call(*given: Tensor) -> tuple[Tensor, ...]:
        all_of_them = {**tensors, **dict(zip(names, given, strict=True))}
        return tuple(smooth(called(function, made, list(all_of_them.values())), made))

    return call, tuple(leaves_of(tensors))


def differentiable(
    function: Function, made: Sample
) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...]]:
    """`of_inputs`; raises NotApplicable if nothing can be differentiated."""
    call, inputs = of_inputs(function, made)
    if not inputs:
        raise NotApplicable("no input is of floating point")
    if not any(o.requires_grad for o in call(*inputs)):
        raise NotApplicable("no output has a gradient")
    return call, inputs


def cotangents_of(made: Sample) -> dict[str, Any]:
    """Return a cotangent for each float output; 0 where the output is infinite."""
    rng = np.random.default_rng(7)
    return {
        name: np.where(np.isfinite(value), rng.uniform(0.5, 1.5, value.shape), 0)
        for name, value in made.outputs.items()
        if value.dtype == np.float64
    }


def pulled_back(
    function: Function, made: Sample, tensors: dict[str, Tensor | None], graph: bool = False
) -> dict[str, Tensor]:
    """Return the gradient of Sum outputs*cotangents for each input that requires one.

    ``graph`` is create_graph.
    """
    outputs = called(function, made, list(tensors.values()))
    return pulled_through(outputs, made, tensors, cotangents_of(made), graph)


def pulled_through(
    outputs: Sequence[Tensor],
    made: Sample,
    tensors: dict[str, Tensor | None],
    cotangents: Mapping[str, Array],
    graph: bool = False,
) -> dict[str, Tensor]:
    """As `pulled_back`, from outputs that are already computed."""
    pairs = [
        (output, torch.from_numpy(cotangents[name]).to(output.dtype))
        for name, output in zip(made.outputs, outputs, strict=True)
        if output.requires_grad
    ]
    found = gradients(pairs, leaves_of(tensors), create_graph=graph)
    return dict(zip(inputs_of(tensors), found, strict=True))


def gradients(
    pairs: Sequence[tuple[Tensor, Tensor]], inputs: Sequence[Tensor], **options: Any
) -> Sequence[Tensor]:
    """Return autograd's gradients of Sum output*cotangent over the pairs; 0 where there is none."""
    if not pairs or not inputs:
        return [torch.zeros_like(t) for t in inputs]
    outputs, cotangents = zip(*pairs, strict=True)
    return torch.autograd.grad(outputs, inputs, cotangents, materialize_grads=True, **options)


def results(
    function: Function, made: Sample, tensors: dict[str, Tensor | None]
) -> dict[str, Tensor]:
    """Return the outputs by name, and the gradients of `pulled_back`."""
    outputs = called(function, made, list(tensors.values()))
    grads = pulled_through(outputs, made, tensors, cotangents_of(made))
    named = {f"grad_{name}": g for name, g in grads.items()}
    return {**dict(zip(made.outputs, outputs, strict=True)), **named}


Results = dict[str, Array]


def directions_of(made: Sample, n: int) -> dict[str, Array]:
    """Return the n-th random direction of the float inputs."""
    rng = np.random.default_rng((11, n))
    given = {name: v for name, v in made.tensors.items() if v is not None}
    # Random lengths, so that two errors of opposite signs do not cancel.
    return {
        name: np.asarray(rng.uniform(0.5, 1.5, v.shape) * rng.choice((-1.0, 1.0), v.shape))
        for name, v in given.items()
        if v.dtype == np.float64
    }


def plain(op: Operation, made: Sample) -> Function:
    """Return the equations as a torch function with the generated function's signature."""

    def function(*given: Tensor | None, **_: Any) -> tuple[Tensor, ...]:
        names = (t.name for t in op.inputs)
        found = reference.values(op, dict(zip(names, given, strict=True)), made.parameters)
        return tuple(found[name].reshape(v.shape) for name, v in made.outputs.items())

    return function


def derivatives(
    function: Function, made: Sample, order: int, shift: float = 0.0, seed: int = 0
) -> Results:
    """Return autograd's results up to this order.

    Order 0: the outputs. Order 1: the gradients of Sum outputs*cotangents, and the slopes of the
    outputs along a direction, by forward mode too if there is one. Order 2: also the derivatives of
    the gradients along that direction.

    ``shift`` scales each input element by 1 + shift or 1 - shift.
    """
    made = _perturbed(made, shift, seed)
    if order == 0:
        outputs = called(function, made, list(tensors_of(made).values()))
        return {name: array(o) for name, o in zip(made.outputs, outputs, strict=True)}
    call, inputs = of_inputs(function, made)
    every = zip(cotangents_of(made), call(*inputs), weights_of(made), strict=True)
    pairs = {name: (o, w.requires_grad_()) for name, o, w in every if o.requires_grad}
    subjects = [*inputs, *(w for _, w in pairs.values())]
    alone = gradients([*pairs.values()], inputs, retain_graph=True)
    first = gradients([*pairs.values()], inputs, create_graph=True)
    directions = directions_of(made, 0)
    found = {f"grad_{name}": array(g) for name, g in zip(directions, first, strict=True)}
    for name, g in zip(directions, alone, strict=True):
        found[f"grad_{name} without a graph"] = array(g)
    along = tuple(map(torch.from_numpy, directions.values()))
    total = sum([(g * u).sum() for g, u in zip(first, along, strict=True)], torch.zeros(()))
    second: Sequence[Tensor] = [torch.zeros_like(t) for t in subjects]
    if total.requires_grad:
        second = torch.autograd.grad(total, subjects, materialize_grads=True)
    # The gradients are linear in the cotangents, so this derivative gives the outputs' slopes.
    for name, g in zip(pairs, second[len(inputs) :], strict=True):
        found[f"slope of {name}"] = array(g)
    if order == 1 and inputs:
        still = tuple(t.detach() for t in inputs)
        # Raised by a Function without forward mode.
        with suppress(NotImplementedError):
            slopes = torch.func.jvp(call, still, along)[1]
            for name, g in zip(cotangents_of(made), slopes, strict=True):
                found[f"slope of {name}, forward"] = array(g)
    if order == 2:
        for name, g in zip(directions, second, strict=False):
            found[f"second derivative, {name}"] = array(g)
    return found


def _perturbed(made: Sample, shift: float, seed: int) -> Sample:
    """Scale each element of the float inputs by 1 + shift or 1 - shift."""
    rng = np.random.default_rng((17, seed))
    return with_floats(made, lambda v: v * (1 + shift * rng.choice((-1.0, 1.0), v.shape)))


def with_floats(made: Sample, change: Callable[[Array], Any]) -> Sample:
    """Return the sample with its float inputs changed."""
    tensors = {
        name: np.asarray(change(v)) if v is not None and v.dtype.kind == "f" else v
        for name, v in made.tensors.items()
    }
    return replace(made, tensors=tensors)


def weights_of(made: Sample) -> list[Tensor]:
    """Return the cotangents of the finite elements of the float outputs."""
    found = cotangents_of(made)
    floats = replace(made, outputs={name: made.outputs[name] for name in found})
    return smooth([torch.from_numpy(w) for w in found.values()], floats)


def differs(name: str, got: Any, want: Any, rtol: float, atol: float) -> str:
    """Describe the difference beyond the tolerances; '' if there is none."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"{name} has shape {got.shape}, not {want.shape}"
    if np.allclose(got, want, rtol, atol, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        gap = np.abs(np.where(got == want, 0, got.astype(float) - want.astype(float)))
    at = np.unravel_index(np.argmax(np.nan_to_num(gap, nan=np.inf)), gap.shape)
    place = ", ".join(str(int(n)) for n in at)
    return f"{name}[{place}] is {got[at]:.9g}, not {want[at]:.9g}"


def unlike(name: str, got: Any, want: Any, slack: float = 0.0) -> str:
    """Describe a difference beyond the last digits and the slack; '' if there is none."""
    return differs(name, got, want, 1e-10, 1e-12 + slack)


def unlike_each(
    names: Iterable[str],
    got: Iterable[Tensor],
    want: Iterable[Tensor],
    slack: float = 0.0,
    tolerances: tuple[float, float] = (1e-10, 1e-12),
) -> list[str]:
    """Describe the tensors that differ, as `unlike` does or within other tolerances."""
    rtol, atol = tolerances
    named = zip(names, got, want, strict=True)
    found = (differs(name, array(a), array(b), rtol, atol + slack) for name, a, b in named)
    return [text for text in found if text]


def array(t: Tensor) -> Any:
    return t.detach().double().numpy() if t.is_floating_point() else t.detach().numpy()

"""Compare gradients with torch.autograd, tensor by tensor: exact, approximate, maxdiff.

The gradients are hand-written ones or those of generated code. Autograd differentiates the
reference (`derive.check.reference`), which shares no code with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from derive.algebra.expr import accesses
from derive.check.inputs import Inputs, random_inputs
from derive.check.invoke import gradients as autograd_gradients
from derive.check.lazy import Tensor, torch
from derive.check.oracle import selected
from derive.check.reference import values
from derive.errors import DeriveError
from derive.joint import value_and_grad
from derive.memory import loaded
from derive.notation.operation import Choice, KeepDim, Operation, known_target, options
from derive.show.tables import Table, Tabular

_WIDTH = 15
_ROUNDING = 10
"""The allowed error of another order of the same operations, as a multiple of the reference's."""


@dataclass(frozen=True)
class GradientComparison:
    """The comparison of one gradient.

    ``exact``: all elements are equal. ``approximate``: ``torch.allclose`` holds, or the difference
    is rounding (see `compare`). ``maxdiff``: the largest absolute difference of two elements.
    """

    name: str
    exact: bool
    approximate: bool
    maxdiff: float

    def text(self, width: int = _WIDTH) -> str:
        """Return the row as a line of the table; the name is padded to ``width`` columns."""
        return (
            f"{self.name:{width}} | exact: {self.exact!s:5} | "
            f"approximate: {self.approximate!s:5} | maxdiff: {self.maxdiff}"
        )


@dataclass(frozen=True)
class Comparison(Tabular):
    """A comparison of gradients: one row per gradient. ``print`` shows it as a table.

    ``exact``, ``approximate`` and ``maxdiff`` summarize all rows. `compare` and `compare_gradients`
    return it.

    >>> import derive, torch
    >>> found = derive.compare_gradients({"w": torch.ones(2)}, {"w": torch.ones(2)})
    >>> found.exact, found.maxdiff, [row.name for row in found.rows]
    (True, 0.0, ['w'])
    """

    rows: tuple[GradientComparison, ...]

    @property
    def exact(self) -> bool:
        """True if all gradients are equal to their references, element by element."""
        return all(row.exact for row in self.rows)

    @property
    def approximate(self) -> bool:
        """True if all gradients are approximately equal to their references."""
        return all(row.approximate for row in self.rows)

    @property
    def maxdiff(self) -> float:
        """The largest absolute difference over all gradients; nan if one difference is nan."""
        found = [row.maxdiff for row in self.rows]
        return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)

    def __str__(self) -> str:
        width = max([_WIDTH, *(len(row.name) for row in self.rows)])
        return "\n".join(row.text(width) for row in self.rows)

    def table(self) -> Table:
        """Return a row for each gradient, with the columns of the text."""
        rows = [(r.name, str(r.exact), str(r.approximate), f"{r.maxdiff:.3g}") for r in self.rows]
        return Table("", ("gradient", "exact", "approximate", "maxdiff"), rows)


def compare(
    op: Operation,
    gradients: Mapping[str, Tensor],
    /,
    *tensors: Tensor | None,
    option: str | None = None,
    of: str | None = None,
    G: Tensor | None = None,
    **keywords: Any,
) -> Comparison:
    """Compare hand-written gradients with those of torch.autograd.

    The reference is autograd of the equations of ``op``, in the dtype of the tensors:

        d Sum_n G[n]*of[n] / d name,    for each name in ``gradients``

    Args:
        op: the operation.
        gradients: tensors by the name of an input or equation. Each has the shape of its tensor,
            axes of size 1 included.
        tensors: the inputs, in the order of the signature.
        option: an option of the choice parameter. Default: the first one.
        of: the output to differentiate. Default: the only float output, or the only one without
            axes.
        G: the cotangent of this output, with its shape. Default: ones.
        keywords: the parameters of the operation, and optional tensors.

    Returns:
        A `Comparison`, with rows in the order in which backpropagation finishes the gradients: the
        last equation first. A name that the output does not depend on has the reference 0.

    ``approximate`` is ``torch.allclose`` with its default tolerances. If terms cancel in a dtype
    narrower than float64, rounding errors of autograd itself exceed these. A gradient is then also
    approximate if its largest difference from autograd in float64 is at most ten times that of
    autograd in the dtype, plus the spacing of floats at the largest element.

    Raises:
        DeriveError: a name has no gradient, or a gradient has another shape than its tensor.
        TypeError: the inputs or keywords do not match the signature.
        ValueError: the sizes are inconsistent.

    >>> import derive, torch
    >>> op = derive.parse("op f(x[n], w[n]) -> y; z[n] = x[n]*w[n]; y = sum[n](z[n]**2)")
    >>> x, w = torch.tensor([1.0, 2.0]), torch.tensor([0.5, -1.0])
    >>> dz = 2 * x * w
    >>> comparison = derive.compare(op, {"z": dz, "w": dz * x, "x": 2 * w}, x, w)
    >>> print(comparison)
    z               | exact: True  | approximate: True  | maxdiff: 0.0
    x               | exact: False | approximate: False | maxdiff: 6.0
    w               | exact: True  | approximate: True  | maxdiff: 0.0
    >>> comparison.approximate
    False
    """
    given, parameters = _bind_arguments(op, tensors, keywords)
    output = known_target(op, of, selected(op, parameters, option))
    known = _differentiated(op, given, parameters, option, output, G, backwards(op))
    for name in gradients:
        if name not in known:
            raise DeriveError(
                f"{op.name} has no gradient of {name}; it has gradients of {', '.join(known)}",
                kind="unknown-gradient",
            )
    ordered = {name: gradients[name] for name in known if name in gradients}
    found = compare_gradients(ordered, known)
    if found.approximate or all(t.dtype == torch.float64 for t in known.values()):
        return found
    wide = {n: t.double() if t.is_floating_point() else t for n, t in given.items()}
    truth = _differentiated(op, wide, parameters, option, output, G, list(ordered))
    return Comparison(
        tuple(
            replace(
                row,
                approximate=row.approximate
                or _differs_by_rounding(ordered[row.name], known[row.name], truth[row.name]),
            )
            for row in found.rows
        )
    )


def _differs_by_rounding(gradient: Tensor, reference: Tensor, truth: Tensor) -> bool:
    """True if the gradient differs from the truth by rounding, as the reference does."""
    own, other = ((t.detach().double() - truth).abs().max() for t in (gradient, reference))
    resolution = torch.finfo(reference.dtype).eps * truth.abs().max()
    return bool(own <= _ROUNDING * (other + resolution)) or _is_allclose(gradient, truth)


def _differentiated(
    op: Operation,
    tensors: Mapping[str, Tensor],
    parameters: Mapping[str, Any],
    option: str | None,
    output: str,
    cotangent: Tensor | None,
    names: Sequence[str],
) -> dict[str, Tensor]:
    """Return autograd's gradient of every name; 0 if the output does not depend on it."""
    leaves = {
        name: t.detach().requires_grad_() if t.is_floating_point() else t
        for name, t in tensors.items()
    }
    with torch.enable_grad():
        made = values(op, leaves, parameters, option)
    every = {n: t for n, t in (*made.items(), *leaves.items()) if t.is_floating_point()}
    subjects = {name: every[name] for name in names if name in every}
    weight = torch.ones_like(made[output])
    if cotangent is not None:
        weight = _cotangent_in_shape(op, parameters, cotangent, made[output])
    pairs = [(made[output], weight)] if made[output].requires_grad else []
    found = autograd_gradients(pairs, list(subjects.values()))
    return dict(zip(subjects, found, strict=True))


def compare_gradients(
    gradients: Mapping[str, Tensor], references: Mapping[str, Tensor]
) -> Comparison:
    """Compare gradients with references of the same names and shapes.

    Raises:
        DeriveError: a name has no reference, or two shapes differ.

    >>> import derive, torch
    >>> references = {"w": torch.tensor([1.0, 1.5])}
    >>> print(derive.compare_gradients({"w": torch.ones(2)}, references))
    w               | exact: False | approximate: False | maxdiff: 0.5
    """
    return Comparison(tuple(_row(name, g, references) for name, g in gradients.items()))


def compare_generated(
    op: Operation,
    inputs: Inputs,
    option: str | None,
    of: str,
    dtype: str = "float32",
    seed: int = 0,
    module: tuple[str, Callable[..., Any]] | None = None,
) -> Comparison:
    """Compare every adjoint and gradient of generated code with autograd.

    ``of`` is the output to differentiate; its cotangent is 1 if it is a scalar, otherwise random.
    The rows are all inputs and equations, except outputs that no equation reads, whose gradient is
    the cotangent itself or 0. With ``module`` (path and function), the gradients of inputs are
    those of that module.
    """
    tensors: dict[str, Tensor | None] = {}
    for name, array in inputs.tensors.items():
        given = None if array is None else torch.from_numpy(array)
        if given is not None and given.is_floating_point():
            given = given.to(getattr(torch, dtype))
        tensors[name] = given
    pruned = dict(options(op))[option]
    read = {a.tensor for e in pruned.equations for a in accesses(e.body)}
    unread = set(pruned.outputs) - read
    names = [name for name in backwards(pruned) if name not in unread]
    own = {p.name: inputs.parameters[p.name] for p in op.parameters if not isinstance(p, Choice)}
    function = value_and_grad(op, names, option, of)
    keywords, G = dict(own), None
    # The cotangent is G, or another name if the operation has a G; a scalar output has none.
    for name in set(signature(function).parameters) - {*tensors, *own}:
        with torch.no_grad():
            shape = values(op, tensors, inputs.parameters, option)[of].shape
        generator = torch.Generator().manual_seed(seed)
        G = torch.randn(shape, generator=generator, dtype=torch.float64).to(getattr(torch, dtype))
        keywords[name] = G
    _, gradients = function(*tensors.values(), **keywords)
    if module is not None:
        place = [e.name for e in pruned.equations if e.name in pruned.outputs].index(of)
        path, own_function = module
        try:
            gradients |= _input_gradients(own_function, tensors, inputs.parameters, place, G)
        except Exception as error:
            raise _module_failure(op, path, error) from None
    return compare(op, gradients, *tensors.values(), option=option, of=of, G=G, **own)


def _input_gradients(
    function: Callable[..., Any],
    tensors: Mapping[str, Tensor | None],
    parameters: Mapping[str, Any],
    place: int,
    G: Tensor | None,
) -> dict[str, Tensor]:
    """Return the gradients of the inputs, by the function's own backward."""
    given = {
        name: t.detach().requires_grad_() if t is not None and t.is_floating_point() else t
        for name, t in tensors.items()
    }
    made = function(*given.values(), **parameters)
    output = made[place] if isinstance(made, tuple) else made
    leaves = {name: t for name, t in given.items() if t is not None and t.requires_grad}
    weight = torch.ones_like(output) if G is None else G.reshape(output.shape)
    found = torch.autograd.grad(output, list(leaves.values()), weight, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


@dataclass(frozen=True)
class Compared:
    """The comparison of one output of one option, and its settings."""

    operation: str
    option: str | None
    output: str
    dtype: str
    sizes: Mapping[str, int | tuple[int, ...]]
    comparison: Comparison
    module: str | None = None
    """The path of the module that gives the gradients of inputs; None for code derived now."""


def compare_all(
    op: Operation,
    sizes: Mapping[str, Sequence[int]],
    dtype: str,
    seed: int,
    module: tuple[str, str] | None = None,
) -> Iterator[Compared]:
    """Compare the generated code of every option, on random inputs of these sizes.

    ``module`` is the path and text of its module; without one the code is derived now.
    """
    path, imported = None, None
    if module is not None:
        path, text = module
        try:
            imported = path, loaded(op.name, text)
        except Exception as error:
            raise _module_failure(op, path, error) from None
    for option, output in every_output(op):
        inputs = random_inputs(op, option, sizes, seed)
        found = compare_generated(op, inputs, option, output, dtype, seed, imported)
        yield Compared(op.name, option, output, dtype, inputs.sizes, found, path)


def _module_failure(op: Operation, path: str, error: Exception) -> DeriveError:
    """Return the error for a module that differs from the generated one."""
    return DeriveError(
        f"{op.name}: {path} fails: {type(error).__name__}: {error}; run `derive check` to see how "
        "to fix it",
        kind="stale-module",
    )


def every_output(op: Operation) -> Iterator[tuple[str | None, str]]:
    """Yield (option, output) for each differentiable output, or for the only scalar one."""
    for option, chosen in options(op):
        equations = [e for e in chosen.equations if e.name in chosen.outputs and e.kind == "float"]
        numbers = [e for e in equations if not e.axes]
        for e in numbers if len(numbers) == 1 else equations:
            yield option, e.name


def backwards(op: Operation) -> list[str]:
    """Return the float equations and inputs in the order in which backpropagation finishes them.

    A gradient is finished by the first equation that reads its tensor; ties are in the order of
    first access. Outputs that no equation reads come first, unused inputs last.
    """
    first: dict[str, int] = {}
    for equation in op.equations:
        for access in accesses(equation.body):
            first.setdefault(access.tensor, len(first))
    reader = {
        tensor: n
        for n, equation in reversed(list(enumerate(op.equations)))
        for tensor in {access.tensor for access in accesses(equation.body)}
    }
    unread = [e.name for e in reversed(op.equations) if e.name not in first]
    read = sorted(first, key=lambda name: (-reader[name], first[name]))
    every = [*unread, *read, *(t.name for t in op.inputs if t.name not in first)]
    floats = {t.name for t in op.inputs if t.kind == "float"}
    floats |= {e.name for e in op.equations if e.kind == "float"}
    return [name for name in every if name in floats]


def _bind_arguments(
    op: Operation, tensors: Sequence[Tensor | None], keywords: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the inputs and parameters by name."""
    inputs = [t.name for t in op.inputs]
    if len(tensors) > len(inputs):
        raise TypeError(
            f"{op.name} takes {len(inputs)} tensors, {', '.join(inputs)}, not {len(tensors)}"
        )
    given = dict(zip(inputs, tensors, strict=False))
    parameters: dict[str, Any] = {}
    own = [p.name for p in op.parameters]
    for name, value in keywords.items():
        if name in inputs[len(tensors) :]:
            given[name] = value
        elif name in own:
            parameters[name] = value
        else:
            known = ", ".join([*inputs[len(tensors) :], *own, "option", "of", "G"])
            raise TypeError(f"{op.name} takes no keyword {name}; the keywords are {known}")
    for t in op.inputs:
        if given.get(t.name) is None and t.default is None:
            raise TypeError(f"{op.name} needs the tensor {t.name}")
    return {n: t for n, t in given.items() if t is not None}, parameters


def _cotangent_in_shape(
    op: Operation, parameters: Mapping[str, Any], G: Tensor, output: Tensor
) -> Tensor:
    """Return G in the shape of the equation, which has no axes kept by keepdim."""
    flags = [p.name for p in op.parameters if isinstance(p, KeepDim)]
    kept = any(parameters.get(flag) for flag in flags)
    shapes = [[n for n in t.shape if n != 1 or not kept] for t in (G, output)]
    if shapes[0] != shapes[1]:
        raise DeriveError(
            f"{op.name}: G has shape {tuple(G.shape)}, but its output has shape "
            f"{tuple(output.shape)}",
            kind="given-gradient",
        )
    return G.detach().to(output.dtype).reshape(output.shape)


def _row(name: str, gradient: Tensor, references: Mapping[str, Tensor]) -> GradientComparison:
    if name not in references:
        known = ", ".join(references) or "none"
        raise DeriveError(
            f"no reference gradient for {name}; the references are {known}", kind="given-gradient"
        )
    for value in (gradient, references[name]):
        if not isinstance(value, torch.Tensor):
            raise DeriveError(
                f"the gradient of {name} is {value!r}, not a tensor", kind="given-gradient"
            )
    gradient, reference = gradient.detach(), references[name].detach()
    if gradient.shape != reference.shape:
        raise DeriveError(
            f"the gradient of {name} has shape {tuple(gradient.shape)}, but {name} has shape "
            f"{tuple(reference.shape)}",
            kind="given-gradient",
        )
    a, b = _promote_pair(gradient, reference)
    gap = torch.where(a == b, 0, (a - b).abs())
    return GradientComparison(
        name, bool((a == b).all()), _is_allclose(a, b), gap.max().item() if gap.numel() else 0.0
    )


def _promote_pair(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Cast both to their promoted dtype."""
    dtype = torch.promote_types(a.dtype, b.dtype)
    return a.to(dtype), b.to(dtype)


def _is_allclose(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(*_promote_pair(a.detach(), b))

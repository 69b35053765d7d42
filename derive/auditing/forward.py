"""Run a hand-written Function: its forward under autograd, and its own backward.

The forward runs with a stand-in for ``ctx``, so that autograd differentiates its operations and the
hand-written backward is not involved.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import takewhile
from math import isfinite
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from derive.auditing.points import cast, clone_with_layout, inner, is_float, is_tensor, random_like
from derive.check.invoke import gradients
from derive.errors import DeriveError

TOLERANCES = {64: 1e-7, 32: 2e-4, 16: 4e-2, 8: 0.3}
"""Tolerances relative to the largest element, by the bits of the narrowest dtype used."""


def unjudged(text: str) -> DeriveError:
    """Return the error of a Function that cannot be judged at the examples."""
    return DeriveError(text, kind="audit-inputs")


class Context:
    """A stand-in for ``ctx`` without any effect on autograd."""

    def __init__(self, needs_input_grad: Sequence[bool] = ()) -> None:
        self.needs_input_grad = tuple(needs_input_grad)
        self.saved_tensors: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()
        self.kept_for_forward = False

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Store the inputs that the forward overwrites."""
        self.dirty = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Note that it is called: it affects jvp only."""
        self.kept_for_forward = True

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Ignore: the outputs of the Function itself show it."""

    def set_materialize_grads(self, value: bool) -> None:
        """Ignore: it affects backward only."""


def tensors_of(result: Any) -> tuple[Any, ...]:
    """The outputs of a forward as a tuple."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


@dataclass(frozen=True)
class Subject:
    """A Function class, and the torch function that defines its forward."""

    function: Any
    reference: Callable[..., Any] | None = None
    dtype: Any = None
    """The only dtype that the forward accepts; None if it accepts float64."""
    constants: frozenset[int] = frozenset()
    """The numbers of float arguments whose gradient is not checked."""
    owned: frozenset[int] = frozenset()
    """The numbers of the arguments that are parameters of a module argument."""
    bits: int = 64
    """The bits of the narrowest float dtype in forward and backward."""
    believed: bool = False
    """True if autograd of the forward is right at the examples.

    Where it then differs from the slope, as at a jump, the right gradient is unknown (nan).
    """
    copied: bool = False
    """True if the forward overwrites its inputs, so that it gets copies of the leaves."""
    once: bool = False
    """True if backward must not be called twice."""
    silent: frozenset[int] = frozenset()
    """The numbers of outputs that forward detaches and backward sends no gradient."""

    def __post_init__(self) -> None:
        base: Any = torch.autograd.Function
        if not (inspect.isclass(self.function) and issubclass(self.function, base)):
            raise DeriveError(
                f"{self.function!r} is not a torch.autograd.Function; pass the class itself, or a "
                "torch.library.custom_op",
                kind="audit-subject",
            )
        own: Any = self.function
        if own.backward is base.backward and own.vjp is base.vjp:
            nothing = f"{self.name} defines no backward, so there is nothing to judge"
            raise DeriveError(nothing, kind="audit-subject")

    @property
    def name(self) -> str:
        """The name of the class."""
        return str(self.function.__name__)

    @property
    def tolerance(self) -> float:
        """The tolerance relative to the largest element."""
        return TOLERANCES[self.bits]

    def wanted(self, args: Sequence[Any]) -> list[int]:
        """Return the numbers of the arguments that may have a gradient."""
        return [n for n, a in enumerate(args) if is_float(a) and n not in self.constants]

    @contextmanager
    def moved(self, args: Sequence[Any], values: Sequence[Any]) -> Iterator[None]:
        """Temporarily set module parameters to these values, since the forward reads them there."""
        kept = {n: args[n].detach().clone() for n in self.owned}
        with torch.no_grad():
            for n in kept:
                args[n].copy_(values[n])
        try:
            yield
        finally:
            with torch.no_grad():
                for n, value in kept.items():
                    args[n].copy_(value)

    @property
    def has_setup(self) -> bool:
        """True if the Function defines setup_context, so that forward takes no ctx."""
        return self.function.setup_context is not torch.autograd.Function.setup_context

    def names(self, count: int) -> tuple[str, ...]:
        """Return the names of forward's first ``count`` arguments."""
        parameters = list(inspect.signature(self.function.forward).parameters.values())
        if not self.has_setup:
            parameters = parameters[1:]
        return _argument_names(parameters, count)

    def defaults(self, count: int) -> tuple[Any, ...]:
        """Return the defaults of forward's arguments after the first ``count``."""
        parameters = list(inspect.signature(self.function.forward).parameters.values())
        rest = parameters[count + (not self.has_setup) :]
        found = []
        for parameter in rest:
            if parameter.default is parameter.empty or parameter.kind is parameter.KEYWORD_ONLY:
                break
            found.append(parameter.default)
        return tuple(found)

    def words(self) -> tuple[str, ...]:
        """Return the identifier-like strings in the code of the class, candidates for an option."""
        own = self.function
        found: dict[str, None] = {}
        for method in (own.forward, own.setup_context, inspect.unwrap(own.backward)):
            code = getattr(method, "__code__", None)
            for text in code.co_consts if code is not None else ():
                if isinstance(text, str) and text.isidentifier():
                    found[text] = None
        return tuple(found)

    def plain_names(self, count: int) -> tuple[str, ...]:
        """Return the names as identifiers: those of ``*args`` are numbered."""
        return tuple(n.replace("[", "").replace("]", "") for n in self.names(count))

    def cotangents(self, count: int) -> tuple[str, ...]:
        """Return the names that backward gives to its cotangents."""
        backward = inspect.unwrap(self.function.backward)
        return _argument_names(list(inspect.signature(backward).parameters.values())[1:], count)

    def plain(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Run the forward or the reference with torch operations under autograd."""
        if self.copied:
            args = [a.clone() if is_float(a) else a for a in args]
        # What has no gradient may be overwritten, unnoticed by autograd.
        args = [a if not is_float(a) or a.requires_grad else clone_with_layout(a) for a in args]
        with same_draws(), torch.enable_grad():
            if self.reference is not None:
                return tensors_of(self.reference(*args))
            return self._cast_back(self._own(self._cast(args)))

    def traced(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """As `plain`, without casts and random state, for the tracer."""
        return self._own(args) if self.reference is None else tensors_of(self.reference(*args))

    def own(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Run the hand-written forward on copies, which it may overwrite."""
        with same_draws():
            copies = [a.clone() if is_float(a) else a for a in args]
            return self._cast_back(self._own(self._cast(copies)))

    def _cast(self, args: Sequence[Any]) -> Sequence[Any]:
        """Cast the arguments to the only dtype that the forward accepts."""
        if self.dtype is None:
            return args
        return [cast(a, self.dtype) for a in args]

    def _cast_back(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.dtype is None:
            return outputs
        return tuple(o.double() if is_float(o) else o for o in outputs)

    def context(self, args: Sequence[Any]) -> tuple[Context, list[Any], tuple[Any, ...]]:
        """Run the forward; return the stand-in for ctx, and the inputs and outputs of that call."""
        context = Context([is_float(a) and n not in self.constants for n, a in enumerate(args)])
        copies = [a.detach().clone() if hasattr(a, "detach") else a for a in self._cast(args)]
        with same_draws():
            if self.has_setup:
                result = self.function.forward(*copies)
                self.set_up(context, copies, result)
            else:
                result = self.function.forward(context, *copies)
        return context, copies, tensors_of(result)

    def set_up(self, context: Context, args: Sequence[Any], result: Any) -> None:
        """Call setup_context as torch does, which adds the defaults of arguments left out."""
        self.function.setup_context(context, (*args, *self.defaults(len(args))), result)

    def _own(self, args: Sequence[Any]) -> tuple[Any, ...]:
        if self.has_setup:
            return tensors_of(self.function.forward(*args))
        needs = [getattr(a, "requires_grad", False) for a in args]
        return tensors_of(self.function.forward(Context(needs), *args))

    def applied(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Run Function.apply, with its own backward attached."""
        with same_draws(), torch.enable_grad():
            return self._cast_back(tensors_of(self.function.apply(*self._cast(args))))


@contextmanager
def same_draws() -> Iterator[None]:
    """Fix the random seed inside the block, and restore the state afterwards."""
    with torch.random.fork_rng(devices=[]):
        if torch.accelerator.is_available():
            torch.manual_seed(0)
        else:
            # Seeding devices that do not exist would log a traceback for each.
            torch.default_generator.manual_seed(0)
        yield


def function_class(given: Any) -> Any:
    """Return the Function with the parts of a ``torch.library.custom_op``; else what is given."""
    names = ("_init_fn", "_setup_context_fn", "_backward_fn")
    if inspect.isclass(given) or not all(hasattr(given, name) for name in names):
        return given
    forward, setup, backward = (getattr(given, name) for name in names)
    if any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(forward).parameters.values()):
        raise unjudged(
            f"{forward.__name__} cannot be judged: a custom operator is judged by its positional "
            "arguments, and it has keyword-only ones"
        )
    setup = setup or (lambda ctx, inputs, output: None)
    defaults = [p.default for p in inspect.signature(forward).parameters.values()]

    @wraps(setup)
    def set_up(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        last = zip(reversed(inputs), reversed(defaults), strict=False)
        left_out = takewhile(lambda pair: not is_tensor(pair[0]) and pair[0] == pair[1], last)
        ctx.left_out = len(list(left_out))
        setup(ctx, inputs, output)

    methods = {"forward": staticmethod(forward), "setup_context": staticmethod(set_up)}
    methods["_custom_operator"] = given
    if backward is not None:

        @wraps(backward)
        def pulled(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
            made = backward(ctx, *cotangents)
            made = tuple(made) if isinstance(made, tuple | list) else (made,)
            # Torch leaves out the last arguments that have their defaults, and their gradients.
            return (*made, *[None] * ctx.left_out)

        methods["backward"] = staticmethod(pulled)
    return type(forward.__name__, (torch.autograd.Function,), methods)


def _argument_names(parameters: Sequence[inspect.Parameter], count: int) -> tuple[str, ...]:
    """Return the names of ``count`` arguments; those of ``*args`` are numbered."""
    found: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            found += [f"{parameter.name}[{n}]" for n in range(count - len(found))]
        else:
            found.append(parameter.name)
    found += [f"argument {n}" for n in range(len(found), count)]
    return tuple(found[:count])


# ------------------------------------------------------------------------------ reference gradients
# The right gradients of a forward at one point.
#
# They come from autograd of the forward, if finite differences along some directions agree.
# Otherwise they are the finite differences, with an error bound. An element that neither determines
# is nan, which equals anything.

_DOUBTED = 1e-2
"""Differences are discarded if two steps disagree by more, relative to the largest."""
_MOST_DIFFERENCES = 300
_DIRECTIONS = (11, 211)
"""Seeds; along a single direction a slope may be right by chance."""


def leaves_of(
    subject: Subject, args: Sequence[Any], wanted: Sequence[int] | None = None
) -> dict[int, Any]:
    """Return an autograd leaf for each argument with a gradient, with the same strides.

    A module parameter is its own leaf, since the forward reads it from the module.
    """
    return {
        n: args[n] if n in subject.owned else args[n].detach().requires_grad_()
        for n in subject.wanted(args)
        if wanted is None or n in wanted
    }


def with_leaves(args: Sequence[Any], leaves: Mapping[int, Any], copied: bool) -> list[Any]:
    """Insert leaves into the arguments, as copies if the forward may overwrite them."""
    given = [leaves.get(n, a.detach() if is_float(a) else a) for n, a in enumerate(args)]
    return [a.clone() if copied and is_float(a) else a for a in given]


def right_gradients(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[dict[int, Any], float]:
    """Return the right gradients, and their error bound.

    With a reference, autograd of it is right by definition, whatever the slope is.
    """
    try:
        found = by_autograd(subject, args, cotangents)
    except RuntimeError as error:
        if subject.reference is not None:
            raise unjudged(
                f"{subject.name} cannot be judged: autograd fails on its reference: "
                f"{str(error).strip().splitlines()[0]}"
            ) from error
        found = None
    if found is not None and (
        subject.reference is not None
        or all(_is_slope(subject, args, cotangents, found, seed) for seed in _DIRECTIONS)
    ):
        return found, 0.0
    if subject.believed:
        return {n: torch.full_like(args[n], torch.nan) for n in subject.wanted(args)}, 0.0
    return differences(subject, args, cotangents)


def by_autograd(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]
) -> dict[int, Any] | None:
    """Return autograd's gradients of the forward.

    If no output requires a gradient: zeros with a reference, else None.
    """
    leaves = leaves_of(subject, args)
    pairs = differentiated(subject.plain(with_leaves(args, leaves, True)), cotangents)
    if not pairs and subject.reference is None:
        return None
    return dict(zip(leaves, gradients(pairs, list(leaves.values())), strict=True))


def differentiated(outputs: Sequence[Any], cotangents: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the outputs that have a gradient and are used, each with its cotangent."""
    pairs = zip(outputs, cotangents, strict=False)
    return [(o, g) for o, g in pairs if g is not None and is_tensor(o) and o.requires_grad]


def _is_slope(
    subject: Subject,
    args: Sequence[Any],
    cotangents: Sequence[Any],
    found: Mapping[int, Any],
    seed: int,
) -> bool:
    """True if the gradients agree with finite differences along a random direction."""
    direction = {n: random_like(args[n], seed + n) * _step_lengths(args[n]) for n in found}
    parts = [found[n].double() * v.double() for n, v in direction.items()]
    along = sum(float(p.sum()) for p in parts)
    size = max(sum(float(p.abs().sum()) for p in parts), 1e-2)
    told, doubt = slope(subject, args, cotangents, direction)
    if not isfinite(told) or not isfinite(along) or doubt > 0.1 * max(size, abs(told)):
        return True  # the differences are unreliable here
    return abs(along - told) <= max(3 * doubt, 1e-3 * max(size, abs(told)))


def _step_lengths(tensor: Any) -> Any:
    """Return step lengths for the elements: their own size, or the mean of the tensor."""
    usual = float(tensor.detach().double().abs().mean()) if tensor.numel() else 1.0
    return torch.clamp(tensor.detach().abs(), min=0.1 * usual if usual else 1.0)


def _weighted_outputs(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> float:
    with torch.no_grad():
        outputs = subject.plain([a.detach().clone() if is_float(a) else a for a in args])
    return sum(inner(o, g) for o, g in zip(outputs, cotangents, strict=False) if g is not None)


class _PaddedRows(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the row ``padding_idx`` of each embedding as the first run has it.

    Torch defines no gradient for this row, although the values depend on it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows: list[Any] = []
        self.left: Iterator[Any] | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and skipping takes seconds of imports

    @contextmanager
    def run(self) -> Iterator[None]:
        """Record the rows in the first run, and put them into each other."""
        if self.left is not None and not self.rows:
            yield
            return
        with self:
            yield
        self.left = iter(self.rows)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.embedding.default and len(args) > 2 and args[2] >= 0:
            weight, index, row = args[:3]
            if self.left is None:
                self.rows.append(weight[row].clone())
            else:
                made = torch.where((index == row)[..., None], next(self.left, weight[row]), made)
        return made


def _padded_rows(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> _PaddedRows:
    held = _PaddedRows()
    with held.run():
        _weighted_outputs(subject, args, cotangents)
    return held


def slope(
    subject: Subject,
    args: Sequence[Any],
    cotangents: Sequence[Any],
    direction: Mapping[int, Any],
    step: float | None = None,
    held: _PaddedRows | None = None,
) -> tuple[float, float]:
    """Return d/ds of the outputs times cotangents along a direction, and an error bound.

        f'(0) = (8·(f(h) − f(−h)) − (f(2h) − f(−2h))) / 12h + O(h⁴)

    The bound is the difference of two step sizes, plus the rounding of the forward over h.
    """
    rounding = 2.0 ** -{64: 52, 32: 23, 16: 8, 8: 3}[subject.bits]
    h = rounding**0.2 if step is None else step

    held = held or _padded_rows(subject, args, cotangents)

    def at(s: float) -> float:
        moved = [
            (a.double() + s * direction[n].double()).to(a.dtype) if n in direction else a
            for n, a in enumerate(args)
        ]
        with subject.moved(args, moved), held.run():
            return _weighted_outputs(subject, moved, cotangents)

    known = {s: at(s * h) for s in (-2, -1, -0.5, 0.5, 1, 2)}

    def between(s: float) -> float:
        return (8 * (known[s] - known[-s]) - (known[2 * s] - known[-2 * s])) / (12 * s * h)

    return between(0.5), abs(between(0.5) - between(1)) + 4 * rounding * abs(known[1]) / h


def differences(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[dict[int, Any], float]:
    """Return gradients by finite differences of the forward; nan where the steps disagree.

    In a large tensor only some elements are computed, and the others are nan.
    """
    found, most = {}, 0.0
    wanted = subject.wanted(args)
    count = max(8, _MOST_DIFFERENCES // max(1, len(wanted)))
    held = _padded_rows(subject, args, cotangents)
    for n in wanted:
        arg = args[n]
        made = torch.full((arg.numel(),), torch.nan, dtype=torch.float64)
        unit = _step_lengths(arg).reshape(-1).double().cpu()
        order = torch.randperm(arg.numel(), generator=torch.Generator().manual_seed(3))
        told = {}
        for place in order[:count].tolist():
            one = torch.zeros_like(unit)
            one[place] = unit[place]
            direction = {n: one.reshape(arg.shape).to(arg.device)}
            value, doubt = slope(subject, args, cotangents, direction, held=held)
            told[place] = value / float(unit[place]), doubt / float(unit[place])
        largest = max([abs(v) for v, _ in told.values() if isfinite(v)], default=0.0)
        largest = max(largest, 1e-2)
        for place, (value, doubt) in told.items():
            if doubt <= _DOUBTED * largest:
                made[place] = value
                most = max(most, doubt / largest)
        found[n] = made.reshape(arg.shape).to(arg.device)
    return found, most


def check_reference(subject: Subject, args: Sequence[Any]) -> None:
    """Raise a DeriveError if the reference computes other outputs than the forward."""
    if subject.reference is None:
        return
    own, said = subject.own(args), subject.plain(args)
    for n, (a, b) in enumerate(zip(own, said, strict=False)):
        if is_float(a) and not (
            a.shape == b.shape and torch.allclose(a.double(), b.double(), 1e-3, 1e-3)
        ):
            raise unjudged(
                f"{subject.name} cannot be judged: output {n} of its forward differs from "
                "that of reference= for the same inputs; correct the wrong one"
            )

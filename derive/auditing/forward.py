"""Run a hand-written Function: its forward under autograd, and its own backward.

The forward runs with a stand-in for ``ctx``, so that autograd differentiates its operations and the
hand-written backward is not involved.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from derive.auditing.points import cast, is_float
from derive.errors import DeriveError

TOLERANCES = {64: 1e-7, 32: 2e-4, 16: 4e-2, 8: 0.3}
"""Tolerances relative to the largest element, by the bits of the narrowest dtype used."""


class Context:
    """A stand-in for ``ctx`` without any effect on autograd."""

    def __init__(self, needs_input_grad: Sequence[bool] = ()) -> None:
        self.needs_input_grad = tuple(needs_input_grad)
        self.saved_tensors: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Store the tensors in saved_tensors."""
        self.saved_tensors = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Store the inputs that the forward overwrites."""
        self.dirty = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Ignore: forward mode is not audited."""

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

    def __post_init__(self) -> None:
        import torch

        if not _is_function(self.function):
            raise DeriveError(
                f"{self.function!r} is not a torch.autograd.Function; pass the class itself"
            )
        base: Any = torch.autograd.Function
        own: Any = self.function
        if own.backward is base.backward and own.vjp is base.vjp:
            raise DeriveError(f"{self.name} defines no backward, so there is nothing to judge")

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
        import torch

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
        import torch

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
        import torch

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
                self.function.setup_context(context, tuple(copies), result)
            else:
                result = self.function.forward(context, *copies)
        return context, copies, tensors_of(result)

    def _own(self, args: Sequence[Any]) -> tuple[Any, ...]:
        if self.has_setup:
            return tensors_of(self.function.forward(*args))
        needs = [getattr(a, "requires_grad", False) for a in args]
        return tensors_of(self.function.forward(Context(needs), *args))

    def applied(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Run Function.apply, with its own backward attached."""
        import torch

        with same_draws(), torch.enable_grad():
            return self._cast_back(tensors_of(self.function.apply(*self._cast(args))))


@contextmanager
def same_draws() -> Iterator[None]:
    """Fix the random seed inside the block, and restore the state afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        if torch.accelerator.is_available():
            torch.manual_seed(0)
        else:
            # Seeding devices that do not exist would log a traceback for each.
            torch.default_generator.manual_seed(0)
        yield


def _is_function(value: Any) -> bool:
    import torch

    return inspect.isclass(value) and issubclass(value, torch.autograd.Function)


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

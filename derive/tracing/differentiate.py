"""``derive.differentiate``: a PyTorch function with derived forward and backward.

    @derive.differentiate
    def rms_norm(x, weight, eps=1e-6): ...

The first call with new ranks, dtypes, flags or whole numbers reads the function. The derived code
is cached, and runs under torch.compile and the transforms of torch.func too. If the function cannot
be read, the original runs, after one warning with the reason. The original also runs under
torch.compile and within a transform before the first plain call.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from derive.errors import DeriveError, DeriveWarning
from derive.tracing.calls import BoundCall, ValueSource, collected, module_tensors, source_of
from derive.tracing.readings import (
    READING,
    UNCHANGED,
    KnownReadings,
    LoadedFunction,
    UncachedCall,
    numbers_of,
)


def differentiate(
    function: Callable[..., Any], time: float = 1.2, memory: float = 1.5
) -> Callable[..., Any]:
    """Return the same function with derived forward and backward; also a decorator.

    The arguments may be tensors, lists and dicts of tensors, numbers and flags. The first call with
    each combination of ranks, flags and integers reads the function, derives the code, compares it
    with the function, and keeps it. If the function cannot be read, it runs unchanged, after one
    `DeriveWarning`. It also runs unchanged if derived code would cost more at the sizes of that
    call. Both costs are estimated on tensors without data.

    Args:
        function: a function of tensors.
        time: derived code runs if it takes at most this many times as long, by an estimate.
        memory: the same for the largest tensor and for the tensors saved for the backward.

    Raises:
        DeriveError: ``function`` is a module; use `derive.replace`.

    >>> import derive, torch
    >>> @derive.differentiate
    ... def layer(x, w):
    ...     return torch.tanh(x @ w)
    >>> layer(torch.ones(2, 3), torch.ones(3, 4)).shape
    torch.Size([2, 4])
    """
    import torch

    if isinstance(function, torch.nn.Module):
        kind = type(function).__name__
        raise DeriveError(f"{kind} is a module, not a function; use derive.replace(module)")
    known, signature = KnownReadings(time, memory), inspect.signature(function)
    name = getattr(function, "__name__", "a function")

    @functools.wraps(function)
    def derived(*args: Any, **named: Any) -> Any:
        found = known.again(function, args, named)
        if found is UNCHANGED:
            return function(*args, **named)
        if not isinstance(found, UncachedCall):
            return found
        bound = signature.bind(*args, **named)
        return _run_uncached(found.key, known, name, function, bound, (args, named))

    derived.known = known  # type: ignore[attr-defined]
    return derived


def replace(model: Any, time: float = 1.2, memory: float = 1.5) -> Any:
    """Make the modules of a model run derived code, and return the model.

    The largest modules that can be read are replaced, at their first call. A module that cannot be
    read, or whose derived code would cost more, runs unchanged, with the modules inside it
    replaced. Parameters, buffers and ``state_dict`` do not change.

    Args:
        model: an ``nn.Module``.
        time: derived code runs if it takes at most this many times as long, by an estimate.
        memory: the same for the largest tensor and for the tensors saved for the backward.

    >>> import derive, torch
    >>> model = derive.replace(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()))
    >>> model(torch.ones(2, 3)).shape
    torch.Size([2, 4])
    """
    for module in model.modules():
        if "forward" not in vars(module) and not hasattr(module, "_derived"):
            module._derived = KnownReadings(time, memory)
            kind: Any = type(module)
            module.__class__ = _derived_class(kind)
    return model


@functools.cache
def _derived_class(kind: Any) -> Any:
    """Return a subclass of a module class that runs derived code; copies keep the class."""

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        found = self._derived.again(self, args, named)
        if found is UNCHANGED:
            return kind.forward(self, *args, **named)
        if not isinstance(found, UncachedCall):
            return found
        plain = functools.partial(kind.forward, self)
        bound = inspect.signature(plain).bind(*args, **named)
        name, known = kind.__name__, self._derived
        return _run_uncached(found.key, known, name, plain, bound, (args, named), self)

    own = {"forward": functools.wraps(kind.forward)(forward), "__module__": kind.__module__}
    return type(kind.__name__, (kind,), own)


def _run_uncached(
    key: Any,
    known: KnownReadings,
    name: str,
    plain: Callable[..., Any],
    bound: inspect.BoundArguments,
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    module: Any = None,
) -> Any:
    """Run derived code, which is made now if it is new; or the original, if there is none."""
    args, named = arguments
    bound.apply_defaults()
    if _traced(bound):
        return plain(*args, **named)
    made = known.find(plain if module is None else module, bound, name, warn=module is None)
    if made is None:
        known.leave(key)
        return plain(*args, **named)
    known.remember(key, _prebound_call(made, bound, args, named, module))
    return _run_derived(made, plain, bound, module)


def _prebound_call(
    made: LoadedFunction,
    bound: inspect.BoundArguments,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    module: Any = None,
) -> BoundCall | None:
    """Return the call without argument binding; None if a tensor is a default."""
    tensors, paths = collected(bound)
    positional = [*bound.arguments]
    sources = {
        name: source_of(path, positional, args, named)
        for name, path in zip(tensors, paths, strict=True)
    }
    for label, (name, _) in module_tensors(module, sources).items():
        sources[label] = ValueSource.on_module(name)
    own = {name: sources[name] for name in made.inputs}
    found = {name: s for name, s in own.items() if s is not None}
    if len(found) < len(own):
        return None
    numbers = {}
    for at, (name, value) in enumerate(bound.arguments.items()):
        if type(value) is float:
            by_name = bound.signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
            path = (1, name) if by_name else (0, at)
            place = source_of(path, positional, args, named)
            numbers[name] = place or ValueSource(default=value)
    return BoundCall(
        made,
        found,
        {name: numbers[name] for name in made.numbers},
        [(numbers[name], value) for name, value in made.constants.items()],
    )


def _run_derived(
    made: LoadedFunction, function: Callable[..., Any], bound: inspect.BoundArguments, module: Any
) -> Any:
    tensors, _ = collected(bound)
    tensors |= {label: t for label, (_, t) in module_tensors(module, tensors).items()}
    try:
        return made(tensors, numbers_of(bound))
    except ValueError as error:
        # Derived code rejects these sizes. The function raises its own error, or accepts them.
        result = function(*bound.args, **bound.kwargs)
        if not made.refused:
            made.refused.append(str(error))
            name = getattr(function, "__qualname__", "a function").removesuffix(".forward")
            message = f"{name} runs unchanged at sizes that derived code does not take: {error}"
            warnings.warn(message, DeriveWarning, stacklevel=4)
        return result


def _traced(bound: inspect.BoundArguments) -> bool:
    """True if torch traces the call without compiling, or while a function is being read."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if torch.compiler.is_compiling():
        return False
    if READING.get():
        return True
    return any(isinstance(t, FakeTensor) for t in bound.arguments.values())

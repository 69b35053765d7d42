"""Cache of derived code by kind of arguments, and the decision whether it runs."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from derive.algebra.expr import tensors
from derive.errors import DeriveError, DeriveWarning
from derive.tracing.call_cost import cost_of, dearer
from derive.tracing.calls import MOST, BoundCall, key_of
from derive.tracing.cost_report import Fact

READING: ContextVar[bool] = ContextVar("READING", default=False)


@dataclass(frozen=True)
class LoadedFunction:
    """The generated function, and the mapping from a call's arguments to its inputs."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    numbers: tuple[str, ...]
    constants: Mapping[str, float]
    """Numbers whose role is unclear, with their values in this reading."""
    outputs: tuple[bool, ...]
    structure: Any
    unread: frozenset[str] = frozenset()
    """Inputs that no equation reads; their gradient is None, not zeros."""
    refused: list[str] = field(default_factory=list)
    """Error of the first call at sizes that the code does not accept."""

    def __call__(self, tensors: Mapping[str, Any], numbers: Mapping[str, float]) -> Any:
        from torch.utils._pytree import tree_unflatten

        given = [tensors[n].detach() if n in self.unread else tensors[n] for n in self.inputs]
        found = self.function(*given, **{n: numbers[n] for n in self.numbers})
        results = found if isinstance(found, tuple) else (found,)
        left = iter(results)
        every = [next(left) if has else None for has in self.outputs]
        return tree_unflatten(every, self.structure)


@dataclass(frozen=True)
class UncachedCall:
    """A call that is not cached."""

    key: Any


UNCHANGED = object()
"""Result of a call that the original function is to run."""


@dataclass
class KnownReadings:
    """Derived code by kind of arguments; None if the function cannot be read."""

    time: float = 1.2
    """Maximum ratio of the estimated time of derived code to that of the function."""
    memory: float = 1.5
    """Maximum ratio of the largest tensors, and of the saved bytes."""
    made: dict[Any, list[LoadedFunction] | None] = field(default_factory=dict)
    calls: dict[Any, BoundCall] = field(default_factory=dict)
    """Cached calls, by their exact shapes."""
    facts: dict[Any, Fact] = field(default_factory=dict)
    """Outcome of each reading."""
    cheaper: dict[Any, int] = field(default_factory=dict)
    """Number of elements below which the function is cheaper than derived code."""
    unchanged: set[Any] = field(default_factory=set)
    """Calls that the original function runs, by their exact shapes."""

    def again(self, owner: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Return the result of a cached call, else the key to cache the call under.

        `UNCHANGED` if the original function is to run.
        """
        import torch

        if torch.compiler.is_compiling() or READING.get():
            return UncachedCall(None)
        key = key_of(args, named)
        key = None if key is None else (_mode(owner), key)
        if key in self.unchanged:
            return UNCHANGED
        call, arguments = self.calls.get(key), (args, named)
        if call is None or not call.fits(owner, arguments):
            return UncachedCall(key)
        try:
            return call(owner, arguments)
        except ValueError:
            return UncachedCall(None)

    def remember(self, key: Any, call: BoundCall | None) -> None:
        if key is not None and call is not None:
            if len(self.calls) >= MOST:
                self.calls.clear()
            self.calls[key] = call

    def leave(self, key: Any) -> None:
        """Record that the original function runs such calls, unless a transform is active."""
        import torch

        if key is not None and not torch._C._are_functorch_transforms_active():
            if len(self.unchanged) >= MOST:
                self.unchanged.clear()
            self.unchanged.add(key)

    def __deepcopy__(self, memo: Any) -> KnownReadings:
        """Return what a copy of a module knows: derived code holds no tensors."""
        held = dict(self.facts), dict(self.cheaper)
        return KnownReadings(self.time, self.memory, dict(self.made), {}, *held)

    def find(
        self, function: Any, bound: inspect.BoundArguments, name: str, warn: bool
    ) -> LoadedFunction | None:
        """Return the code for these arguments, read now if it is new; else None."""
        import torch

        key, numbers = (_mode(function), _reading_key(bound)), numbers_of(bound)
        found, count = self.made.get(key, []), _tensor_elements(bound)
        if found is None or count < self.cheaper.get(key, 0):
            return None
        for made in found:
            if all(numbers[n] == value for n, value in made.constants.items()):
                return made
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return None
        again = key in self.cheaper
        try:
            new, fact = _derive_and_cost(function, bound)
        except DeriveError as error:
            self.made[key] = None
            new, fact = None, Fact(str(error))
        else:
            more = _more_than(fact, self.time, self.memory)
            if more:
                # Both costs are estimated again for far larger arguments.
                self.cheaper[key] = _FAR * count
                new = None
                fact = dataclasses.replace(fact, refused=f"derived code would take {more}")
        self.facts[key, len(found)] = fact
        if new is not None:
            self.made[key] = [*found, new]
        elif warn and not again:
            message = f"{name} runs unchanged, under torch's autograd: {fact.refused}"
            warnings.warn(message, DeriveWarning, stacklevel=4)
        return new


def _mode(function: Any) -> tuple[Any, ...]:
    """Return the dtype of a module's parameters, and which of its modules train."""
    import torch

    if not isinstance(function, torch.nn.Module):
        return ()
    first = next(function.parameters(), None)
    dtype = None if first is None else first.dtype
    return dtype, *(m.training for m in function.modules())


def _reading_key(bound: inspect.BoundArguments) -> tuple[Any, ...]:
    """Return what a reading depends on: ranks, sizes of 0 and 1, dtypes, flags and integers."""
    return tuple((name, _argument_kind(x)) for name, x in bound.arguments.items())


def _argument_kind(x: Any) -> Any:
    import torch

    if isinstance(x, torch.Tensor):
        # Numbers of torch.finfo(x.dtype) are those of the dtype that was read.
        kind = x.dtype if x.is_floating_point() or x.dtype is torch.bool else "int"
        return kind, tuple(min(n, 2) for n in x.shape)
    if isinstance(x, list | tuple):
        return tuple(map(_argument_kind, x))
    if isinstance(x, dict):
        return tuple((k, _argument_kind(v)) for k, v in x.items())
    return float if type(x) is float else x


def _tensor_elements(bound: inspect.BoundArguments) -> int:
    """Return the number of elements of all tensors among the arguments."""
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves(dict(bound.arguments))
    return sum(x.numel() for x in leaves if isinstance(x, torch.Tensor))


_FAR = 8
"""Derived code that cost too much is estimated again at this many times the elements."""


def numbers_of(bound: inspect.BoundArguments) -> dict[str, float]:
    return {k: v for k, v in bound.arguments.items() if type(v) is float}


def _more_than(fact: Fact, time: float, memory: float) -> str:
    """Describe what derived code takes more of than the limits allow; '' if nothing."""
    if fact.ours is None or fact.plain is None:
        return ""
    return dearer(fact.ours, fact.plain, time, memory)


def _derive_and_cost(function: Any, bound: inspect.BoundArguments) -> tuple[LoadedFunction, Fact]:
    """Derive the code of a function for such arguments, and estimate both costs."""
    from derive.api import load
    from derive.tracing.read import reading_of

    reading = READING.set(True)
    try:
        found = reading_of(function, bound)
    finally:
        READING.reset(reading)
    if found.changed:
        raise DeriveError(f"the function sets {', '.join(found.changed)} on itself as it runs")
    if found.asked:
        raise DeriveError(f"derived code would skip a check of values: {found.asked[0]}")
    numbers = numbers_of(bound)
    inputs = tuple(t.name for t in found.operation.inputs)
    read = frozenset[str]().union(*(tensors(e.body) for e in found.operation.equations))
    made = LoadedFunction(
        function=load(found.operation),
        inputs=inputs,
        numbers=found.numbers,
        constants={n: v for n, v in numbers.items() if n not in found.numbers},
        outputs=found.outputs,
        structure=found.structure,
        unread=frozenset(inputs) - read,
    )
    plain = cost_of(found.function, found.tensors)
    with _as_of_tensors(made.function):
        ours = cost_of(lambda **t: made(t, numbers), found.tensors, derived=True)
    return made, Fact("", plain, ours)


@contextmanager
def _as_of_tensors(function: Any) -> Iterator[None]:
    """Make generated code take the path that it takes with data: in place, by kernels.

    Checks of values, which tensors without data lack, get the answer that most calls have.
    """
    import torch

    own = function.__globals__
    answers = {
        "rt.unrecorded": lambda *_: not torch.is_grad_enabled(),
        "_all_inside": lambda *_: True,
    }
    before = {name: own[name] for name in answers.keys() & own.keys()}
    own.update({name: answers[name] for name in before})
    try:
        yield
    finally:
        own.update(before)

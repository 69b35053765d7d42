"""What was made of a function for each kind of its arguments, and whether it runs."""

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
from derive.tracing import call_cache
from derive.tracing.cost_report import Fact

READING: ContextVar[bool] = ContextVar("READING", default=False)


@dataclass(frozen=True)
class LoadedFunction:
    """The generated function, and how the arguments of a call become its own."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    numbers: tuple[str, ...]
    constants: Mapping[str, float]
    """Numbers of which it is not seen what becomes of them: those of this reading."""
    outputs: tuple[bool, ...]
    structure: Any
    unread: frozenset[str] = frozenset()
    """Inputs that nothing reads, which have no gradient rather than one of zeros."""
    refused: list[str] = field(default_factory=list)
    """What was said of sizes that it does not take, the first time."""

    def __call__(self, tensors: Mapping[str, Any], numbers: Mapping[str, float]) -> Any:
        from torch.utils._pytree import tree_unflatten

        given = [tensors[n].detach() if n in self.unread else tensors[n] for n in self.inputs]
        found = self.function(*given, **{n: numbers[n] for n in self.numbers})
        results = found if isinstance(found, tuple) else (found,)
        left = iter(results)
        every = [next(left) if has else None for has in self.outputs]
        return tree_unflatten(every, self.structure)


@dataclass(frozen=True)
class New:
    """A call that is none of those before."""

    key: Any


UNCHANGED = object()
"""In place of a result: the function is to run."""


@dataclass
class KnownReadings:
    """What was made for each kind of arguments; None where the function cannot be read."""

    time: float = 1.2
    """How many times as long as the function derived code may take, by what is counted of both."""
    memory: float = 1.5
    """The same of the largest tensor, and of what is saved."""
    made: dict[Any, list[LoadedFunction] | None] = field(default_factory=dict)
    calls: dict[Any, call_cache.BoundCall] = field(default_factory=dict)
    """How calls are run that came before, by their exact shapes."""
    facts: dict[Any, Fact] = field(default_factory=dict)
    """What came of each reading."""
    cheaper: dict[Any, int] = field(default_factory=dict)
    """The elements below which the function is cheaper than derived code, as far as was tried."""
    unchanged: set[Any] = field(default_factory=set)
    """The calls of which it is known that the function runs, by their exact shapes."""

    def again(self, owner: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """The result of a call as one before; else the key that it is to be remembered by.

        `UNCHANGED` where the function is to run.
        """
        import torch

        if torch.compiler.is_compiling() or READING.get():
            return New(None)
        key = call_cache.key_of(args, named)
        key = None if key is None else (_mode(owner), key)
        if key in self.unchanged:
            return UNCHANGED
        call, arguments = self.calls.get(key), (args, named)
        if call is None or not call.fits(owner, arguments):
            return New(key)
        try:
            return call(owner, arguments)
        except ValueError:
            return New(None)

    def remember(self, key: Any, call: call_cache.BoundCall | None) -> None:
        if key is not None and call is not None:
            if len(self.calls) >= call_cache.MOST:
                self.calls.clear()
            self.calls[key] = call

    def leave(self, key: Any) -> None:
        """The function runs in such calls, which transforms say nothing of."""
        import torch

        if key is not None and not torch._C._are_functorch_transforms_active():
            if len(self.unchanged) >= call_cache.MOST:
                self.unchanged.clear()
            self.unchanged.add(key)

    def __deepcopy__(self, memo: Any) -> KnownReadings:
        """What a copy of a module knows: the code that was made has no tensors in it."""
        held = dict(self.facts), dict(self.cheaper)
        return KnownReadings(self.time, self.memory, dict(self.made), {}, *held)

    def find(
        self,
        function: Any,
        bound: inspect.BoundArguments,
        name: str,
        warn: bool,
    ) -> LoadedFunction | None:
        """What is made for these arguments, read now where it is not known."""
        import torch

        key, numbers = (_mode(function), _key(bound)), numbers_of(bound)
        found, count = self.made.get(key, []), _elements(bound)
        if found is None or count < self.cheaper.get(key, 0):
            return None
        for made in found:
            if all(numbers[n] == value for n, value in made.constants.items()):
                return made
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return None
        again = key in self.cheaper
        try:
            new, fact = _read(function, bound)
        except DeriveError as error:
            self.made[key] = None
            new, fact = None, Fact(str(error))
        else:
            more = _more_than(fact, self.time, self.memory)
            if more:
                # For arguments that are far larger both are counted again.
                self.cheaper[key] = _FAR * count
                new = None
                fact = dataclasses.replace(fact, refused=f"derived code would take {more}")
        self.facts[key, len(found)] = fact
        if new is not None:
            self.made[key] = [*found, new]
        elif warn and not again:
            message = f"{name} runs unchanged, under torch's autograd: {fact.refused}"
            warnings.warn(message, DeriveWarning, stacklevel=3)
        return new


def _mode(function: Any) -> tuple[Any, ...]:
    """Which modules of a module train, and the dtype of its parameters."""
    import torch

    if not isinstance(function, torch.nn.Module):
        return ()
    first = next(function.parameters(), None)
    dtype = None if first is None else first.dtype
    return dtype, *(m.training for m in function.modules())


def _key(bound: inspect.BoundArguments) -> tuple[Any, ...]:
    """What a reading depends on: ranks, sizes of 0 and 1, dtypes, flags and whole numbers."""
    return tuple((name, _kind(x)) for name, x in bound.arguments.items())


def _kind(x: Any) -> Any:
    import torch

    if isinstance(x, torch.Tensor):
        # Numbers of torch.finfo(x.dtype) are those of the dtype that was read.
        kind = x.dtype if x.is_floating_point() or x.dtype is torch.bool else "int"
        return kind, tuple(min(n, 2) for n in x.shape)
    if isinstance(x, list | tuple):
        return tuple(map(_kind, x))
    if isinstance(x, dict):
        return tuple((k, _kind(v)) for k, v in x.items())
    return float if type(x) is float else x


def _elements(bound: inspect.BoundArguments) -> int:
    """How many numbers the tensors among the arguments have."""
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves(dict(bound.arguments))
    return sum(x.numel() for x in leaves if isinstance(x, torch.Tensor))


_FAR = 8
"""Derived code that was dearer is counted again for so many times as many elements."""


def numbers_of(bound: inspect.BoundArguments) -> dict[str, float]:
    return {k: v for k, v in bound.arguments.items() if type(v) is float}


def _more_than(fact: Fact, time: float, memory: float) -> str:
    """What derived code takes more of than so many times the plain function's."""
    from derive.tracing.call_cost import dearer

    if fact.ours is None or fact.plain is None:
        return ""
    return dearer(fact.ours, fact.plain, time, memory)


def _read(function: Any, bound: inspect.BoundArguments) -> tuple[LoadedFunction, Fact]:
    """What is made of a function for such arguments, and what both cost."""
    from derive.pipeline import load
    from derive.tracing.call_cost import cost_of
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
    """Generated code takes the way that it takes with data: in place, by kernels.

    What is asked of values, where there are none, is answered as most calls have it.
    """
    import torch

    own = function.__globals__
    answers = {
        "_alone": lambda *_: not torch.is_grad_enabled(),
        "_are_inside": lambda *_: True,
    }
    before = {name: own[name] for name in answers.keys() & own.keys()}
    own.update({name: answers[name] for name in before})
    try:
        yield
    finally:
        own.update(before)

"""``derive.differentiate``: a PyTorch function with derived forward and backward.

    @derive.differentiate
    def rms_norm(x, weight, eps=1e-6): ...

The function is read at the first call with new ranks, kinds of dtype, flags or whole numbers; what
was made is kept, and torch.compile and the transforms of torch.func run that. Where the function
cannot be read, it is called itself, after one warning that says why; so it is under torch.compile
and within a transform before the first plain call.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from derive.errors import DeriveError, DeriveWarning
from derive.tracing import direct
from derive.tracing.reported import Fact

_READING: ContextVar[bool] = ContextVar("_READING", default=False)


@dataclass(frozen=True)
class Made:
    """The generated function, and how the arguments of a call become its own."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    numbers: tuple[str, ...]
    constants: Mapping[str, float]
    """Numbers of which it is not seen what becomes of them: those of this reading."""
    outputs: tuple[bool, ...]
    structure: Any
    refused: list[str] = field(default_factory=list)
    """What was said of sizes that it does not take, the first time."""

    def __call__(self, tensors: Mapping[str, Any], numbers: Mapping[str, float]) -> Any:
        from torch.utils._pytree import tree_unflatten

        given = [tensors[name] for name in self.inputs]
        found = self.function(*given, **{n: numbers[n] for n in self.numbers})
        results = found if isinstance(found, tuple) else (found,)
        left = iter(results)
        every = [next(left) if has else None for has in self.outputs]
        return tree_unflatten(every, self.structure)


@dataclass(frozen=True)
class _New:
    """A call that is none of those before."""

    key: Any


_UNCHANGED = object()
"""In place of a result: the function is to run."""


@dataclass
class Known:
    """What was made for each kind of arguments; None where the function cannot be read."""

    time: float = 1.2
    """How many times as long as the function derived code may take, by what is counted of both."""
    memory: float = 1.5
    """The same of the largest tensor, and of what is saved."""
    made: dict[Any, list[Made] | None] = field(default_factory=dict)
    calls: dict[Any, direct.Call] = field(default_factory=dict)
    """How calls are run that came before, by their exact shapes."""
    facts: dict[Any, Fact] = field(default_factory=dict)
    """What came of each reading."""
    cheaper: dict[Any, int] = field(default_factory=dict)
    """The elements below which the function is cheaper than derived code, as far as was tried."""
    unchanged: set[Any] = field(default_factory=set)
    """The calls of which it is known that the function runs, by their exact shapes."""

    def again(self, owner: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """The result of a call as one before; else the key that it is to be remembered by.

        `_UNCHANGED` where the function is to run.
        """
        import torch

        if torch.compiler.is_compiling() or _READING.get():
            return _New(None)
        key = direct.key_of(args, named)
        key = None if key is None else (_mode(owner), key)
        if key in self.unchanged:
            return _UNCHANGED
        call, arguments = self.calls.get(key), (args, named)
        if call is None or not call.fits(owner, arguments):
            return _New(key)
        try:
            return call(owner, arguments)
        except ValueError:
            return _New(None)

    def remember(self, key: Any, call: direct.Call | None) -> None:
        if key is not None and call is not None:
            if len(self.calls) >= direct.MOST:
                self.calls.clear()
            self.calls[key] = call

    def leave(self, key: Any) -> None:
        """The function runs in such calls, which transforms say nothing of."""
        import torch

        if key is not None and not torch._C._are_functorch_transforms_active():
            if len(self.unchanged) >= direct.MOST:
                self.unchanged.clear()
            self.unchanged.add(key)

    def __deepcopy__(self, memo: Any) -> Known:
        """What a copy of a module knows: the code that was made has no tensors in it."""
        held = dict(self.facts), dict(self.cheaper)
        return Known(self.time, self.memory, dict(self.made), {}, *held)

    def find(
        self,
        function: Any,
        bound: inspect.BoundArguments,
        name: str,
        warn: bool,
    ) -> Made | None:
        """What is made for these arguments, read now where it is not known."""
        import torch

        key, numbers = (_mode(function), _key(bound)), _numbers(bound)
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


def differentiate(
    function: Callable[..., Any], time: float = 1.2, memory: float = 1.5
) -> Callable[..., Any]:
    """Return the same function with derived forward and backward; also a decorator.

    The arguments may be tensors, lists and dicts of tensors, numbers and flags. The first call with
    each combination of ranks, flags and integers reads the function, derives the code, compares it
    with the function, and keeps it. If the function cannot be read, it runs unchanged, after one
    `DeriveWarning`. So does a function of which derived code would be dearer at the sizes of that
    call: both are counted on tensors without data before either runs.

    Args:
        function: a function of tensors.
        time: derived code runs if its flops and bytes take at most so many times as long.
        memory: the same for the largest tensor and for what is saved for the backward.

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
    known, signature = Known(time, memory), inspect.signature(function)
    name = getattr(function, "__name__", "a function")

    @functools.wraps(function)
    def derived(*args: Any, **named: Any) -> Any:
        found = known.again(function, args, named)
        if found is _UNCHANGED:
            return function(*args, **named)
        if not isinstance(found, _New):
            return found
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        if _traced(bound):
            return function(*args, **named)
        made = known.find(function, bound, name, warn=True)
        if made is None:
            known.leave(found.key)
            return function(*args, **named)
        known.remember(found.key, _call(made, bound, args, named))
        return _run(made, function, bound)

    derived.known = known  # type: ignore[attr-defined]
    return derived


def replace(model: Any, time: float = 1.2, memory: float = 1.5) -> Any:
    """Make the modules of a model run derived code, and return the model.

    The largest modules that can be read are replaced, at their first call. A module that cannot be
    read, or that derived code would make dearer, runs unchanged, with the modules inside it
    replaced. Parameters, buffers and ``state_dict`` do not change.

    Args:
        model: an ``nn.Module``.
        time: derived code runs if its flops and bytes take at most so many times as long.
        memory: the same for the largest tensor and for what is saved for the backward.

    >>> import derive, torch
    >>> model = derive.replace(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()))
    >>> model(torch.ones(2, 3)).shape
    torch.Size([2, 4])
    """
    for module in model.modules():
        if "forward" not in vars(module) and not hasattr(module, "_derived"):
            module._derived = Known(time, memory)
            kind: Any = type(module)
            module.__class__ = _derived_class(kind)
    return model


@functools.cache
def _derived_class(kind: Any) -> Any:
    """The class of modules of this kind that run derived code; a copy of one is one."""

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        found = self._derived.again(self, args, named)
        if found is _UNCHANGED:
            return kind.forward(self, *args, **named)
        if not isinstance(found, _New):
            return found
        plain = functools.partial(kind.forward, self)
        bound = inspect.signature(plain).bind(*args, **named)
        bound.apply_defaults()
        if _traced(bound):
            return plain(*args, **named)
        made = self._derived.find(self, bound, kind.__name__, warn=False)
        if made is None:
            self._derived.leave(found.key)
            return plain(*args, **named)
        self._derived.remember(found.key, _call(made, bound, args, named, self))
        return _run(made, plain, bound, _held(self))

    own = {"forward": functools.wraps(kind.forward)(forward), "__module__": kind.__module__}
    return type(kind.__name__, (kind,), own)


def _held(module: Any) -> dict[str, Any]:
    """The parameters and buffers of a module, by the names that a reading gives them."""
    from derive.tracing.read import label_of

    held = [*module.named_parameters(), *module.named_buffers()]
    return {label_of(name): t for name, t in held}


def _call(
    made: Made,
    bound: inspect.BoundArguments,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    module: Any = None,
) -> direct.Call | None:
    """How the call is run without binding its arguments; None where a tensor is a default."""
    from derive.tracing.read import collected, label_of

    tensors, paths = collected(bound)
    positional = [*bound.arguments]
    sources = {
        name: direct.source_of(path, positional, args, named)
        for name, path in zip(tensors, paths, strict=True)
    }
    if module is not None:
        for name, _ in [*module.named_parameters(), *module.named_buffers()]:
            label = label_of(name)
            while label in sources:
                label += "_"
            sources[label] = direct.Source.on_module(name)
    own = {name: sources[name] for name in made.inputs}
    found = {name: s for name, s in own.items() if s is not None}
    if len(found) < len(own):
        return None
    numbers = {}
    for at, (name, value) in enumerate(bound.arguments.items()):
        if type(value) is float:
            by_name = bound.signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
            path = (1, name) if by_name else (0, at)
            place = direct.source_of(path, positional, args, named)
            numbers[name] = place or direct.Source(default=value)
    return direct.Call(
        made,
        found,
        {name: numbers[name] for name in made.numbers},
        [(numbers[name], value) for name, value in made.constants.items()],
    )


def _run(
    made: Made,
    function: Callable[..., Any],
    bound: inspect.BoundArguments,
    held: Mapping[str, Any] | None = None,
) -> Any:
    from derive.tracing.read import collected

    tensors, _ = collected(bound)
    for name, t in (held or {}).items():
        while name in tensors:
            name += "_"
        tensors[name] = t
    try:
        return made(tensors, _numbers(bound))
    except ValueError as error:
        # Sizes that the reading does not take: the function says what is wrong, or takes them.
        result = function(*bound.args, **bound.kwargs)
        if not made.refused:
            made.refused.append(str(error))
            name = getattr(function, "__qualname__", "a function").removesuffix(".forward")
            message = f"{name} runs unchanged at sizes that derived code does not take: {error}"
            warnings.warn(message, DeriveWarning, stacklevel=3)
        return result


def _traced(bound: inspect.BoundArguments) -> bool:
    """Whether torch traces the call without compiling, or it is part of what is being read."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if torch.compiler.is_compiling():
        return False
    if _READING.get():
        return True
    return any(isinstance(t, FakeTensor) for t in bound.arguments.values())


def _mode(function: Any) -> tuple[bool, ...]:
    """Which modules of a module train."""
    import torch

    if not isinstance(function, torch.nn.Module):
        return ()
    return tuple(m.training for m in function.modules())


def _key(bound: inspect.BoundArguments) -> tuple[Any, ...]:
    """What a reading depends on: ranks, sizes of 0 and 1, kinds, flags and whole numbers."""
    return tuple((name, _kind(x)) for name, x in bound.arguments.items())


def _kind(x: Any) -> Any:
    import torch

    if isinstance(x, torch.Tensor):
        kind = "float" if x.is_floating_point() else "bool" if x.dtype is torch.bool else "int"
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


def _numbers(bound: inspect.BoundArguments) -> dict[str, float]:
    return {k: v for k, v in bound.arguments.items() if type(v) is float}


def _more_than(fact: Fact, time: float, memory: float) -> str:
    """What derived code takes more of than so many times the plain function's."""
    from derive.tracing.dearer import dearer

    if fact.ours is None or fact.plain is None:
        return ""
    return dearer(fact.ours, fact.plain, time, memory)


def _read(function: Any, bound: inspect.BoundArguments) -> tuple[Made, Fact]:
    """What is made of a function for such arguments, and what both cost."""
    from derive.pipeline import load
    from derive.tracing.dearer import cost_of
    from derive.tracing.read import reading_of

    reading = _READING.set(True)
    try:
        found = reading_of(function, bound)
    finally:
        _READING.reset(reading)
    if found.changed:
        raise DeriveError(f"the function sets {', '.join(found.changed)} on itself as it runs")
    if found.asked:
        raise DeriveError(f"derived code would skip a check of values: {found.asked[0]}")
    numbers = _numbers(bound)
    made = Made(
        function=load(found.operation),
        inputs=tuple(t.name for t in found.operation.inputs),
        numbers=found.numbers,
        constants={n: v for n, v in numbers.items() if n not in found.numbers},
        outputs=found.outputs,
        structure=found.structure,
    )
    plain = cost_of(found.function, found.tensors)
    with _as_of_tensors(made.function):
        ours = cost_of(lambda **t: made(t, numbers), found.tensors, derived=True)
    return made, Fact("", plain, ours)


@contextmanager
def _as_of_tensors(function: Any) -> Iterator[None]:
    """Generated code takes the way that it takes with data: in place, by kernels."""
    import torch

    own = function.__globals__
    if "_alone" not in own:
        yield
        return
    before = own["_alone"]
    own["_alone"] = lambda *_: not torch.is_grad_enabled()
    try:
        yield
    finally:
        own["_alone"] = before

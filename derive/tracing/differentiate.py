"""``derive.differentiate``: a PyTorch function with derived forward and backward.

    @derive.differentiate
    def rms_norm(x, weight, eps=1e-6): ...

The first call with new ranks, dtypes, flags or whole numbers reads the function. The derived code
is cached, and runs under torch.compile and the transforms of torch.func too. If the function cannot
be read, the original runs, after one warning with the reason. The original also runs under
torch.compile and within a transform before the first plain call.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import attrgetter
from types import FunctionType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_unflatten

from derive.api import load, source
from derive.errors import DeriveError, DeriveWarning
from derive.memory import loaded
from derive.notation.operation import Operation
from derive.tracing.calls import (
    MOST,
    BoundCall,
    ValueSource,
    collected,
    key_of,
    module_tensors,
    source_of,
)
from derive.tracing.cost_report import Fact, cost_of, dearer
from derive.tracing.graph import in_block
from derive.tracing.read import reading_of
from derive.tracing.surroundings import Surroundings, surroundings_of, without_hooks
from derive.tracing.validate import without_gradient
from derive.tracing.writes import ComputedInputs

# ----------------------------------------------------------------------------------------- readings
# Cache of derived code by kind of arguments, and the decision whether it runs.

READING: ContextVar[bool] = ContextVar("READING", default=False)
"""True while a function is read: those inside of it, which derive their own code elsewhere, run as
they are."""

_LOCK = threading.RLock()
"""Held while a function is read: functions of torch and Python are replaced then."""


@dataclass(frozen=True)
class LoadedFunction:
    """The generated function, and the mapping from a call's arguments to its inputs."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    numbers: tuple[str, ...]
    constants: Mapping[str, float]
    """Numbers whose role is unclear, with their values in this reading."""
    outputs: tuple[str, ...]
    structure: Any
    same: Sequence[str | None] = ()
    """The input that each result is; None if it is a new tensor."""
    kind: Any = None
    """Dataclass of the result, whose fields the structure has."""
    casts: Sequence[Any] = ()
    """Dtypes of outputs that the function casts, as x.to(dtype), each None if it is right."""
    prepared: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """What is done to an input before the call: ``detach`` if no gradient reaches it, so that it is
    None, not zeros; ``long`` if it has integers of another dtype."""
    reach: Sequence[frozenset[str]] = ()
    """The inputs that gradients of each result may reach; () if each result reaches all of them."""
    computed: ComputedInputs = field(default_factory=ComputedInputs)
    """Inputs that are no arguments of the function, such as the positions of a sort."""
    refused: list[str] = field(default_factory=list)
    """Error of the first call that the code does not accept."""
    held: bool = False
    """True if a part is computed under no_grad, through which torch's forward mode goes."""
    fits: Callable[[Mapping[str, Any]], bool] | None = None
    """True of tensors with sizes that the code is right for; None if it rejects others."""

    def __call__(self, tensors: Mapping[str, Any], numbers: Mapping[str, float]) -> Any:
        if self.fits is not None and not self.fits(tensors):
            raise ValueError("a part is longer than its axis, or a tensor larger than is assumed")
        steps, tensors = self.prepared, self.computed.added(tensors)
        given = [steps[n](tensors[n]) if n in steps else tensors[n] for n in self.inputs]
        found = self.function(*given, **{n: numbers[n] for n in self.numbers})
        results = found if isinstance(found, tuple) else (found,)
        if self.reach and not _transformed():
            needed = {n for n in self.inputs if tensors[n].requires_grad}
            pairs = zip(results, self.reach, strict=True)
            results = tuple(x.detach() if needed.isdisjoint(own) else x for x, own in pairs)
        left = iter(results)
        every: list[Any] = [next(left) if has else None for has in self.outputs]
        if any(self.casts):
            pairs = zip(every, self.casts, strict=True)
            every = [x if dtype is None else x.to(dtype) for x, dtype in pairs]
        if any(self.same):
            every = [x if n is None else tensors[n] for x, n in zip(every, self.same, strict=True)]
        result = tree_unflatten(every, self.structure)
        if self.kind is None:
            return result
        made = object.__new__(self.kind)
        for name, value in result.items():
            object.__setattr__(made, name, value)
        return made


def _transformed() -> bool:
    """True if a transform of torch.func or forward mode is active."""
    return _in_forward_mode() or torch._C._are_functorch_transforms_active()


def _in_forward_mode() -> bool:
    level: int = torch.autograd.forward_ad._current_level
    return level >= 0


@dataclass(frozen=True)
class UncachedCall:
    """A call that is not cached."""

    key: Any


UNCHANGED = object()
"""Result of a call that the original function is to run."""

_REJECTED = (ValueError, IndexError, RuntimeError)
"""What derived code raises for sizes, and for positions out of range, that it does not take."""


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
    around: Surroundings | None = None
    """What the derived code assumes of closures, globals and attributes."""
    owner: Any = None
    """The function or module that was read."""
    called: list[Any] = field(default_factory=list)
    """Arguments of readings that can be called, and so read what is outside too."""
    changes: list[str] = field(default_factory=list)
    """What was another value in a later call, so that derived code was dropped."""
    held: bool = False
    """True if any derived code is ``held``."""

    def __post_init__(self) -> None:
        def stale() -> bool:
            return self.around is not None and self.around.changed() is not None

        # What torch.compiler.assume_constant_result does, which imports the compiler: seconds.
        vars(stale)["_dynamo_marked_constant"] = True
        self.stale = stale
        """True if derived code is to be dropped; asked as code is compiled."""

    def again(self, owner: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Return the result of a cached call, else the key to cache the call under.

        `UNCHANGED` if the original function is to run.
        """
        if self.held and _in_forward_mode():
            return UNCHANGED
        if torch.compiler.is_compiling() or _runs_plainly(owner):
            return UncachedCall(None)
        if self.around is not None:
            if owner is not self.owner:  # a shallow copy of a module
                return UNCHANGED
            if (name := self.around.changed()) is not None:
                self._forget(name)
        key = key_of(args, named)
        key = None if key is None else (_mode(owner), key)
        if key in self.unchanged:
            return UNCHANGED
        call, arguments = self.calls.get(key), (args, named)
        if call is None or not call.fits(owner, arguments):
            return UncachedCall(key)
        try:
            return call(owner, arguments)
        except _REJECTED:
            return UncachedCall(None)

    def remember(self, key: Any, call: BoundCall | None) -> None:
        if key is not None and call is not None:
            if len(self.calls) >= MOST:
                self.calls.clear()
            self.calls[key] = call

    def leave(self, key: Any) -> None:
        """Record that the original function runs such calls, unless a transform is active."""
        if key is not None and not torch._C._are_functorch_transforms_active():
            if len(self.unchanged) >= MOST:
                self.unchanged.clear()
            self.unchanged.add(key)

    def _forget(self, name: str) -> None:
        """Drop the derived code, as a value that it was read with is another one."""
        self.changes.append(name)
        self.calls.clear()
        self.made = {key: found for key, found in self.made.items() if found is None}
        self.around = None

    def __reduce__(self) -> Any:
        """Copy and pickle the limits alone: the attributes of a copy may become other ones."""
        return KnownReadings, (self.time, self.memory)

    def find(
        self, function: Any, bound: inspect.BoundArguments, name: str, warn: bool
    ) -> LoadedFunction | None:
        """Return the code for these arguments, read now if it is new; else None."""
        numbers = numbers_of(bound)
        try:
            key = _mode(function), _reading_key(bound)
            found = self.made.get(key, [])
        except TypeError as error:
            # An argument that cannot be compared, as a configuration, may differ in each call.
            fact = Fact(f"an argument is no tensor, number or flag: {error}")
            if warn and ((), 0) not in self.facts:
                message = f"{name} runs unchanged, under torch's autograd: {fact.refused}"
                warnings.warn(message, DeriveWarning, stacklevel=4)
            self.facts[(), 0] = fact
            return None
        leaves = tree_leaves(dict(bound.arguments))
        count = sum(x.numel() for x in leaves if isinstance(x, torch.Tensor))
        if found is None or count < self.cheaper.get(key, 0):
            return None
        if torch.compiler.is_compiling() and self.stale():
            return None
        for made in found:
            if all(numbers[n] == value for n, value in made.constants.items()):
                return made
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return None
        with _LOCK:
            if len(self.made.get(key) or ()) > len(found):  # another thread was faster
                return self.find(function, bound, name, warn)
            return self._read(function, bound, name, key, count, warn)

    def _read(
        self,
        function: Any,
        bound: inspect.BoundArguments,
        name: str,
        key: Any,
        count: int,
        warn: bool,
    ) -> LoadedFunction | None:
        """Read the function for these arguments; return None if derived code is not to run."""
        found = self.made.get(key) or []
        again = key in self.cheaper
        self.called += [x for x in tree_leaves(dict(bound.arguments)) if callable(x)]
        around = surroundings_of(function, self.called)
        try:
            if len(self.changes) > _CHANGES:
                text = f"{self.changes[-1]} changes between calls; pass it as an argument"
                raise DeriveError(text, kind="torch-state")
            around.add_generators(bound.arguments)
            with around.restored() as changed, without_hooks(function):
                new, fact = _derive_and_cost(function, bound)
            _refuse_changes(changed())
            for held in around.parameters():
                text = f"{held} is a parameter, which may change, and no argument; pass it as one"
                raise DeriveError(text, kind="outside-tensor")
        except DeriveError as error:
            self.made[key] = None
            new, fact = None, Fact(str(error))
        else:
            more = dearer(fact.ours, fact.plain, self.time, self.memory)
            if more:
                # Both costs are estimated again for far larger arguments.
                self.cheaper[key] = _FAR * count
                new = None
                fact = dataclasses.replace(fact, refused=f"derived code would take {more}")
        self.facts[key, len(found)] = fact
        if new is not None:
            self.made[key] = [*found, new]
            self.held = self.held or new.held
            self.around, self.owner = around, function
        elif warn and not again:
            message = f"{name} runs unchanged, under torch's autograd: {fact.refused}"
            warnings.warn(message, DeriveWarning, stacklevel=5)
        return new


def _mode(function: Any) -> tuple[Any, ...]:
    """Return the dtypes of autocast and of new tensors, and the flags of a module."""
    own = tuple(
        torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        for kind in ("cpu", "cuda")
    )
    own = (*own, torch.get_default_dtype())
    if not isinstance(function, torch.nn.Module):
        return own
    return *own, *(m.training for m in function.modules())


def _reading_key(bound: inspect.BoundArguments) -> tuple[Any, ...]:
    """Return what a reading depends on: ranks, sizes of 0 and 1, dtypes, flags and integers."""
    named = bound.arguments.items()
    return tuple((name, float if type(x) is float else _argument_kind(x)) for name, x in named)


def _argument_kind(x: Any) -> Any:
    """Return what a reading depends on, of an argument that is no number.

    A number inside of it is no parameter, so the reading depends on its value.
    """
    if isinstance(x, torch.Tensor):
        # Numbers of torch.finfo(x.dtype) are those of the dtype that was read.
        return x.dtype, tuple(min(n, 2) for n in x.shape)
    if isinstance(x, list | tuple):
        return tuple(map(_argument_kind, x))
    if isinstance(x, dict):
        return tuple((k, _argument_kind(v)) for k, v in x.items())
    hashed: Any = type(x).__hash__
    if hashed is object.__hash__ and hasattr(x, "__dict__") and not callable(x):
        raise TypeError(f"attributes that may change: {type(x).__name__!r}")
    return type(x), x


_CHANGES = 4
"""Number of times that a function is read anew because of a closure, global or attribute."""

_FAR = 8
"""Derived code that cost too much is estimated again at this many times the elements."""


def numbers_of(bound: inspect.BoundArguments) -> dict[str, float]:
    return {k: v for k, v in bound.arguments.items() if type(v) is float}


def _refuse_changes(names: Sequence[str]) -> None:
    if names:
        text = f"the function changes {', '.join(names)} as it runs"
        raise DeriveError(text, kind="torch-state")


def _derive_and_cost(function: Any, bound: inspect.BoundArguments) -> tuple[LoadedFunction, Fact]:
    """Derive the code of a function for such arguments, and estimate both costs."""
    with in_block(READING, True):
        found = reading_of(function, bound)
        inputs = tuple(t.name for t in found.operation.inputs)
        with torch.inference_mode(False), torch.enable_grad():
            wanted = _reached(found.function, found.tensors)
            reach = [own.intersection(inputs) for own in wanted]
            if found.has_branches:  # another branch may reach other inputs
                reach = [frozenset(inputs)] * len(reach)
    _refuse_changes(found.changed)
    if found.leaves_out:
        text = "the function returns a number beside tensors; return it as a tensor"
        raise DeriveError(text, kind="torch-result")
    if found.asked:
        text = f"derived code would skip a check of values: {found.asked[0]}"
        raise DeriveError(text, kind="data-dependent")
    numbers = numbers_of(bound)
    every = frozenset[str]().union(*reach)
    prepared: dict[str, Any] = {n: torch.Tensor.detach for n in inputs if n not in every}
    prepared |= dict.fromkeys(_to_int64(found.operation, found.tensors), torch.Tensor.long)
    prepared |= dict.fromkeys(found.written, _from_the_start)
    made = LoadedFunction(
        function=_with_absent_gradients(load(found.operation), inputs, reach),
        reach=() if all(own == every for own in reach) else reach,
        inputs=inputs,
        numbers=found.numbers,
        constants={n: v for n, v in numbers.items() if n not in found.numbers},
        outputs=found.outputs,
        casts=[torch.bool if kind == "bool" else None for kind in found.outputs],
        structure=found.structure,
        same=found.same,
        kind=found.kind,
        prepared=prepared,
        computed=found.computed,
        held=found.held,
        fits=found.fits,
    )
    with in_block(READING, True):
        with torch.inference_mode(False), torch.enable_grad():
            code = dataclasses.replace(made, kind=None)
            reached = _reached(lambda **t: code(t, numbers), found.tensors)
            zero = frozenset[str]().union(*map(frozenset[str].difference, wanted, reached))
        if zero:
            text = f"a result is constant in {min(zero)}, and autograd gives it a gradient of zeros"
            raise DeriveError(text, kind="torch-result")
        plain = cost_of(found.function, found.tensors)
        # A branch, or a number of elements that a mask selects, depends on data.
        plain = plain or cost_of(found.function, found.tensors, with_data=True)
    whole = _as_of_tensors(found.operation)
    counted = dataclasses.replace(code, function=whole, casts=(), same=())
    ours = cost_of(lambda **t: counted(t, numbers), found.tensors, derived=True)
    if plain is not None and ours is not None:
        pairs = zip(plain.dtypes, ours.dtypes, strict=True)
        made = dataclasses.replace(made, casts=[a if a is not b else None for a, b in pairs])
    return made, Fact("", plain, ours)


def _reached(function: Callable[..., Any], tensors: Mapping[str, Any]) -> list[frozenset[str]]:
    """Return the tensors that autograd's gradients of each result reach, be they zero or not."""
    given = {n: t.detach().clone() for n, t in tensors.items()}
    floats = {n: t.requires_grad_() for n, t in given.items() if t.is_floating_point()}
    silent = frozenset(without_gradient(function, given))
    given |= {n: given[n].detach() for n in silent}
    own = {n: t for n, t in floats.items() if n not in silent}
    leaves, found = [*own.values()], []
    for y in tree_leaves(function(**given)):
        if not isinstance(y, torch.Tensor) or not y.requires_grad:
            found += [] if y is None else [silent]
            continue
        one = torch.ones_like(y)
        grads = torch.autograd.grad(y, leaves, one, retain_graph=True, allow_unused=True)
        reached = (n for n, g in zip(own, grads, strict=True) if g is not None)
        found.append(silent.union(reached))
    return found


def _with_absent_gradients(
    function: Any, inputs: Sequence[str], reach: Sequence[frozenset[str]]
) -> Any:
    """Return generated code whose gradients are None where no used output reaches the input.

    Zeros instead would let an optimizer decay the weights of a head that has no part in the loss.
    """
    floats = [own for own in reach if own]
    if all(own == floats[0] for own in floats):
        return function
    own, names = function.__globals__, function.__code__.co_names
    kinds = [n for n in names if inspect.isclass(own.get(n))]
    kinds = [n for n in kinds if issubclass(own[n], torch.autograd.Function)]
    if not kinds:  # torch itself differentiates what only moves elements
        return function
    # Another one is its subclass for forward mode.
    name = min(kinds, key=lambda n: len(own[n].__mro__))
    base, count = own[name], len(reach)
    outputs = [[k for k, own in enumerate(reach) if n in own] for n in inputs]

    def setup_context(ctx: Any, given: Any, output: Any) -> None:
        base.setup_context(ctx, given, output)
        ctx.set_materialize_grads(False)
        ctx.absent = [(x.shape, x.dtype, x.device) for x in output[:count]]

    def backward(ctx: Any, *cotangents: Any) -> Any:
        filled = list(cotangents)
        for n, (shape, dtype, device) in enumerate(ctx.absent):
            if filled[n] is None and reach[n]:
                filled[n] = torch.zeros(shape, dtype=dtype, device=device)
        found = list(base.backward(ctx, *filled))
        if all(G is None for G in cotangents[count:]):
            for n, own in enumerate(outputs):
                if all(cotangents[k] is None for k in own):
                    found[n] = None
        return tuple(found)

    made = {"setup_context": staticmethod(setup_context), "backward": staticmethod(backward)}
    kind = type(base.__name__, (base,), made)
    copy = FunctionType(function.__code__, {**own, name: kind}, function.__name__)
    copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return copy


def _from_the_start(positions: Any) -> Any:
    """Return the positions of a write; raise if one is negative, and so counts from the end."""
    torch._assert_async((positions >= 0).all(), "a write takes positions from 0, not negative ones")
    return positions.long()


def _to_int64(operation: Operation, given: Mapping[str, Any]) -> list[str]:
    """Return the inputs with integers of another dtype than int64, the one of generated code.

    Small integers wrap around where int64 does not, and an integer output would have another dtype.
    """
    own = [t.name for t in operation.inputs if t.kind == "int" and t.name in given]
    own = [n for n in own if given[n].dtype != torch.int64]
    whole = any(e.kind == "int" and e.name in operation.outputs for e in operation.equations)
    for name in own:
        if whole or given[name].dtype != torch.int32:
            raise DeriveError(
                f"{name} is {given[name].dtype}, and derived code computes with int64; "
                f"pass {name}.long()",
                kind="torch-arguments",
            )
    return own


def _as_of_tensors(op: Operation) -> Any:
    """Return the code of an operation that takes the path of tensors with data: in place, fused.

    Checks of values, which tensors without data lack, get the answer that most calls have.
    """
    function = loaded(op.name, source(op))
    own = function.__globals__
    answers = {
        "_unrecorded": lambda *_: not torch.is_grad_enabled(),
        "_all_inside": lambda *_: True,
    }
    own.update({name: answers[name] for name in answers.keys() & own.keys()})
    return function


# ------------------------------------------------------------------------------------ differentiate


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
    if isinstance(function, torch.nn.Module):
        kind = type(function).__name__
        text = f"{kind} is a module, not a function; use derive.replace(module)"
        raise DeriveError(text, kind="torch-arguments")
    known = KnownReadings(time, memory)
    name = getattr(function, "__name__", "a function")
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        text = f"the arguments of {name} are unknown; pass a Python function that calls it"
        raise DeriveError(text, kind="torch-arguments") from error

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

    def reduced(self: Any, protocol: Any) -> Any:
        """Return what copies and pickles of the module are made of: its own class."""
        rebuild, args, *rest = kind.__reduce_ex__(self, protocol)
        args = (kind if x is type(self) else x for x in args)
        return _copied, (rebuild, *args), *rest

    own = {"forward": functools.wraps(kind.forward)(forward), "__reduce_ex__": reduced}
    return type(kind.__name__, (kind,), {**own, "__module__": kind.__module__})


def _copied(rebuild: Callable[..., Any], *args: Any) -> Any:
    made = rebuild(*args)
    kind: Any = type(made)
    made.__class__ = _derived_class(kind)
    return made


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
    if _traced(bound) or _runs_plainly(module):
        return plain(*args, **named)
    made = known.find(plain if module is None else module, bound, name, warn=module is None)
    if made is None:
        known.leave(key)
        return plain(*args, **named)
    known.remember(key, _prebound_call(made, bound, args, named, module))
    if made.held and _in_forward_mode():  # read just now
        return plain(*args, **named)
    return _run_derived(made, plain, bound, module)


def _prebound_call(
    made: LoadedFunction,
    bound: inspect.BoundArguments,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    module: Any = None,
) -> BoundCall | None:
    """Return the call without argument binding; None if a tensor is a default."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, given in bound.arguments.items():
        if bound.signature.parameters[name].kind in several:
            if any(type(x) is float for x in tree_leaves(given)):
                # The key of the call has these numbers' types alone.
                return None
    tensors, paths = collected(bound)
    positional = [*bound.arguments]
    sources = {
        name: source_of(path, positional, args, named)
        for name, path in zip(tensors, paths, strict=True)
    }
    for label, (name, _) in module_tensors(module, sources).items():
        sources[label] = ValueSource(held=attrgetter(name))
    arguments = {*made.inputs, *made.computed.arguments} - {*made.computed.names}
    own = {name: sources[name] for name in arguments}
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
    constants = [(numbers[name], value) for name, value in made.constants.items()]
    return BoundCall(made, found, {name: numbers[name] for name in made.numbers}, constants)


def _run_derived(
    made: LoadedFunction, function: Callable[..., Any], bound: inspect.BoundArguments, module: Any
) -> Any:
    tensors, _ = collected(bound)
    tensors |= {label: t for label, (_, t) in module_tensors(module, tensors).items()}
    try:
        return made(tensors, numbers_of(bound))
    except _REJECTED as error:
        # A negative position, which counts from the end in torch alone, is rejected as sizes are.
        # The function raises its own error, or accepts them.
        result = function(*bound.args, **bound.kwargs)
        if not made.refused:
            made.refused.append(str(error))
            name = getattr(function, "__qualname__", "a function").removesuffix(".forward")
            message = f"{name} runs unchanged on arguments that derived code does not take: {error}"
            warnings.warn(message, DeriveWarning, stacklevel=4)
        return result


def _traced(bound: inspect.BoundArguments) -> bool:
    """True if torch traces the call without compiling, or an argument has no shape."""
    if torch.compiler.is_compiling():
        return False
    given = bound.arguments.values()
    return any(isinstance(x, FakeTensor | torch.fx.Proxy) for x in given) or any(
        x.is_nested for x in given if isinstance(x, torch.Tensor)
    )


def _runs_plainly(owner: Any) -> bool:
    """True while a function is read or traced by torch.jit, or if each module has a hook."""
    if torch.compiler.is_compiling():
        return False
    if READING.get() or torch._C._get_tracing_state() is not None:
        return True
    hooked: Any = torch.nn.modules.module._has_any_global_hook
    return isinstance(owner, torch.nn.Module) and bool(hooked())

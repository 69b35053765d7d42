"""Arguments of a call: bound to names, replaced, and found again in the next call.

Binding arguments to a signature and naming each tensor takes longer than a small operation. For a
call with exact shapes, the cache records where each tensor and each number is in the arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_is_leaf, tree_unflatten

from derive.errors import DeriveError
from derive.tracing.names import notation_name


def bind(
    function: Any, examples: Sequence[Any], named: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Bind the arguments of a call to their names, with defaults."""
    target = function.forward if isinstance(function, torch.nn.Module) else function
    if isinstance(function, type):
        name = function.__name__
        text = f"{name} is a class; pass an instance, {name}(..)"
        raise DeriveError(text, kind="torch-arguments")
    if isinstance(function, torch.jit.ScriptModule):
        text = "a module of torch.jit cannot be read; pass the module that it was made of"
        raise DeriveError(text, kind="torch-arguments")
    if not callable(target):
        text = f"{type(function).__name__} is not a function or module"
        raise DeriveError(text, kind="torch-arguments")
    try:
        bound = _signature(target, len(examples), named).bind(*examples, **named)
    except TypeError as error:
        text = f"the examples do not match the arguments of the function: {error}"
        raise DeriveError(text, kind="torch-arguments") from error
    bound.apply_defaults()
    return bound


def _signature(target: Any, count: int, named: Mapping[str, Any]) -> inspect.Signature:
    """Return the signature of a function; for a builtin, made-up names for its arguments."""
    try:
        return inspect.signature(target)
    except ValueError:
        kinds = inspect.Parameter
        names = [f"x{n}" if count > 1 else "x" for n in range(count)]
        own = [kinds(n, kinds.POSITIONAL_OR_KEYWORD) for n in names]
        return inspect.Signature([*own, *(kinds(n, kinds.KEYWORD_ONLY) for n in named)])


def with_argument_value(
    bound: inspect.BoundArguments, name: str, value: Any
) -> inspect.BoundArguments:
    made = copy(bound)
    made.arguments = {**bound.arguments, name: value}
    return made


def as_function(
    function: Any, bound: inspect.BoundArguments
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return (a function of named tensors, the tensors); the rest is fixed as in the examples.

    ``changed`` of the function has the buffers of a module that its calls assign to, and the
    attributes that a method sets, which each call restores. ``kinds`` has the dataclass of a
    result, of which a call returns the fields as a dict.
    """
    module = function if isinstance(function, torch.nn.Module) else None
    tensors, places = collected(bound)
    arguments: Any = (list(bound.args), dict(bound.kwargs))
    names, own = list(tensors), module_tensors(module, tensors)
    tensors |= {label: t for label, (_, t) in own.items()}
    slots = _slots(module, own)

    def call(**given: Any) -> Any:
        made = (list(arguments[0]), dict(arguments[1]))
        for name, path in zip(names, places, strict=True):
            made = _with_value_at(made, path, given[name])
        with unchanged_containers(made) as (positional, keywords):
            with restored_attributes(function) as assigned:
                held = {name: given[label] for name, label in slots.items()}
                # torch would leave the tensors that are given in a module that has two names.
                result = (
                    function(*positional, **keywords)
                    if module is None
                    else torch.func.functional_call(
                        module, held, tuple(positional), keywords, tie_weights=False
                    )
                )
            # An assignment to a buffer is in the dict.
            changed.update(n for n, label in slots.items() if held[n] is not given[label])
            changed.update(assigned())
            return fields_of(result)

    def fields_of(result: Any) -> Any:
        """Return the fields of a dataclass that torch has no pytree of; else the result."""
        if not is_dataclass(result) or not tree_is_leaf(result):
            return result
        own = {f.name: getattr(result, f.name) for f in fields(result)}
        if own.keys() < getattr(result, "__dict__", own).keys():
            return result
        kinds.add(type(result))
        return own

    changed, kinds = set[str](), set[Any]()
    call.kinds = kinds  # type: ignore[attr-defined]
    call.__wrapped__ = function  # type: ignore[attr-defined]
    call.changed = changed  # type: ignore[attr-defined]
    return call, {k: t.detach() for k, t in tensors.items()}


def collected(bound: inspect.BoundArguments) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """Return (the tensors of a call by name, their paths in the arguments)."""
    tensors: dict[str, Any] = {}
    arguments = (list(bound.args), dict(bound.kwargs))
    labelled = _labels(list(bound.arguments), bound, len(arguments[0]))
    places: list[tuple[Any, ...]] = []

    def collect(x: Any, label: str, path: tuple[Any, ...]) -> None:
        if isinstance(x, torch.Tensor):
            name, n = notation_name(label), 2
            while name in tensors:
                name, n = f"{notation_name(label)}{n}", n + 1
            tensors[name] = x
            places.append(path)
        elif isinstance(x, list | tuple):
            for k, e in enumerate(x):
                collect(e, f"{label}{k}", (*path, k))
        elif isinstance(x, dict):
            for k, e in x.items():
                collect(e, f"{label}_{k}", (*path, k))

    for n, x in enumerate(arguments[0]):
        collect(x, labelled[n] if n < len(labelled) else f"x{n}", (0, n))
    for k, x in arguments[1].items():
        collect(x, k, (1, k))
    return tensors, places


def module_tensors(module: Any, taken: Collection[str]) -> dict[str, tuple[str, Any]]:
    """Return (dotted name, tensor) of the parameters and buffers of a module, by input name."""
    found: dict[str, tuple[str, Any]] = {}
    if module is not None:
        for name, t in (*module.named_parameters(), *module.named_buffers()):
            # A compiled module holds the plain one in this attribute.
            label = notation_name(name.replace("_orig_mod.", "").replace(".", "_"))
            while label in taken or label in found:
                label += "_"
            found[label] = name, t
    return found


def _slots(module: Any, own: Mapping[str, tuple[str, Any]]) -> dict[str, str]:
    """Return the input name of each parameter and buffer, by one dotted name of its place."""
    labels = {id(t): label for label, (_, t) in own.items()}
    return {
        f"{name}.{key}" if name else key: labels[id(t)]
        for name, m in (() if module is None else module.named_modules())
        for key, t in (*m._parameters.items(), *m._buffers.items())
        if t is not None
    }


def _labels(labels: Sequence[str], bound: inspect.BoundArguments, count: int) -> list[str]:
    """The name of each positional argument."""
    found: list[str] = []
    for name in labels:
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found += [f"{name}{n}" for n in range(len(bound.arguments[name]))]
        elif kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
            found.append(name)
    return found[:count]


def _with_value_at(x: Any, path: Sequence[Any], value: Any) -> Any:
    """x with the value at the end of a path."""
    if not path:
        return value
    first, *rest = path
    if isinstance(x, dict):
        return {k: _with_value_at(e, rest, value) if k == first else e for k, e in x.items()}
    made = [_with_value_at(e, rest, value) if n == first else e for n, e in enumerate(x)]
    return made if isinstance(x, list) else tuple(made)


@contextmanager
def unchanged_containers(arguments: Any) -> Iterator[Any]:
    """Yield a copy of the lists and dicts of arguments; raise if a call changes one of them."""
    copied = tree_unflatten(*tree_flatten(arguments))
    before, structure = tree_flatten(copied)  # a torch.Size becomes a tuple
    yield copied
    after, now = tree_flatten(copied)
    if now != structure or any(x is not y for x, y in zip(before, after, strict=True)):
        text = "the function changes a list or dict that it is given; return what it adds"
        raise DeriveError(text, kind="torch-call")


@contextmanager
def restored_attributes(function: Any) -> Iterator[Callable[[], list[str]]]:
    """Restore the attributes of a module and its submodules, or of a method's object, at exit.

    Yields a function that returns the names of those that changed.
    """
    modules = _owners(function)
    before = {name: dict(vars(m)) for name, m in modules.items()}
    found: list[str] = []
    try:
        yield lambda: found
    finally:
        for name, m in modules.items():
            old, new = before[name], m.__dict__
            for key in [k for k in {**old, **new} if new.get(k, m) is not old.get(k, m)]:
                found.append(f"{name}.{key}" if name else key)
            new.clear()
            new.update(old)


def _owners(function: Any) -> dict[str, Any]:
    """Return the modules in a function, or the object of a method, by their names."""
    owner = function.__self__ if inspect.ismethod(function) else function
    if isinstance(owner, torch.nn.Module):
        return dict(owner.named_modules())
    bound = owner is not function and not isinstance(owner, type) and hasattr(owner, "__dict__")
    return {"": owner} if bound else {}


# -------------------------------------------------------------------- calls that are repeated


MOST = 512
"""Maximum number of cached calls; a full cache is cleared."""

Path = tuple[Any, ...]
"""(0, n, ..) for a positional argument, (1, name, ..) for a keyword; then keys inside of it."""


@dataclass(frozen=True)
class ValueSource:
    """Source of a value: a path into the arguments, a dotted name on the module, a default."""

    path: Path = ()
    held: Callable[[Any], Any] | None = None
    default: Any = None

    def of(self, owner: Any, arguments: tuple[Any, ...]) -> Any:
        """Return the value in a call."""
        if self.held is not None:
            return self.held(owner)
        if not self.path:
            return self.default
        x: Any = arguments
        for step in self.path:
            x = x[step]
        return x


@dataclass(frozen=True)
class BoundCall:
    """A callable, with the sources of its tensors and numbers."""

    made: Callable[..., Any]
    tensors: Mapping[str, ValueSource]
    numbers: Mapping[str, ValueSource]
    constants: Sequence[tuple[ValueSource, float]]
    """Numbers that must have the recorded values."""

    def fits(self, owner: Any, arguments: tuple[Any, ...]) -> bool:
        return all(s.of(owner, arguments) == value for s, value in self.constants)

    def __call__(self, owner: Any, arguments: tuple[Any, ...]) -> Any:
        tensors = {name: s.of(owner, arguments) for name, s in self.tensors.items()}
        numbers = {name: s.of(owner, arguments) for name, s in self.numbers.items()}
        return self.made(tensors, numbers)


def key_of(args: tuple[Any, ...], named: Mapping[str, Any]) -> Hashable | None:
    """Return the cache key of a call; None if an argument is no plain tensor, number or flag."""
    try:
        found = [_argument_key(x) for x in args]
        for name, x in named.items():
            found += [name, _argument_key(x)]
    except RuntimeError:  # a nested tensor has no shape
        return None
    return None if None in found else tuple(found)


def _argument_key(x: Any, inside: bool = False) -> Hashable | None:
    """Return the key of an argument, or of an element of one: there, a number is no parameter."""
    kind = type(x)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return x.dtype, x.shape
    if kind is float and not inside:
        return float
    if x is None or kind in (int, bool, str, float):
        return kind, x
    if kind in (list, tuple):
        parts = tuple(_argument_key(part, True) for part in x)
        return None if None in parts else (kind, parts)
    return None


def source_of(
    path: Path, names: Sequence[str], args: tuple[Any, ...], named: Mapping[str, Any]
) -> ValueSource | None:
    """Return the source of a bound argument; None if it is a parameter's default.

    ``names`` are those of the positional parameters.
    """
    kind, at, *inside = path
    if kind == 0 and at < len(args):
        return ValueSource(path)
    name = names[at] if kind == 0 else at
    return ValueSource((1, name, *inside)) if name in named else None

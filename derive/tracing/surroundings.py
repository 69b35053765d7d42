"""What a function reads beside its arguments: closures, globals, and attributes of objects.

A reading has their values of that time. So they are restored after it, and compared at each later
call. The globals of Python and of the libraries that this package needs do not count.
"""

from __future__ import annotations

import dis
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as Collected
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from types import CellType, CodeType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Generator
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves

from derive.errors import DeriveError

_LIBRARIES = {"torch", "derive", "numpy", "sympy"}
_FOREIGN = _LIBRARIES | sys.stdlib_module_names | {"builtins"}
_MOST = 10_000
"""Maximum number of values; of what a larger surrounding holds, the rest is not looked at."""
_HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
_CALLED = "forward", "__call__", "__getitem__", "__getattr__", "__len__", "__iter__", "__enter__"
"""Methods that code may call without their names."""
_PLAIN = bool, int, float, complex, str, bytes


@dataclass
class Surroundings:
    """The values that a function reads beside its arguments, each with what holds it."""

    values: list[tuple[str, Any, Callable[[Any], Any], Any, Any]] = field(default_factory=list)
    """Name, holder, reader, key and value; None is also the value of what is not there."""
    containers: list[tuple[str, Any, Any]] = field(default_factory=list)
    """Name, list, dict or set, and a copy of it."""
    tensors: list[tuple[str, Any, tuple[Any, ...]]] = field(default_factory=list)
    """Name, tensor and the version of its data."""
    slots: list[tuple[str, Mapping[str, Any], Sequence[Any]]] = field(default_factory=list)
    """Name of a module, its parameters or buffers, and names and dtypes of those that are there."""
    hooks: dict[str, Any] = field(default_factory=dict)
    """The dicts of hooks of submodules, which are empty."""
    ties: list[tuple[str, Mapping[str, Any], str, Mapping[str, Any], str]] = field(
        default_factory=list
    )
    """Name, and two slots with one tensor."""
    functions: list[Any] = field(default_factory=list)
    """Python functions that it may call."""
    generators: list[Any] = field(default_factory=list)
    """Sources of random numbers, which a reading leaves in their states."""

    def parameters(self) -> list[str]:
        """Return the names of parameters that are constants of a reading."""
        return [name for name, t, _ in self.tensors if isinstance(t, Parameter)]

    def add_generators(self, arguments: Any) -> None:
        leaves = tree_leaves(dict(arguments))
        self.generators += [x for x in leaves if isinstance(x, Generator)]

    def changed(self) -> str | None:
        """Return the name of a value that is another one now."""
        return next(self._changes(), None)

    def _changes(self) -> Iterator[str]:
        for name, _, read, key, then in self.values:
            now = read(key)
            if now is not then and not (type(now) is type(then) in _PLAIN and now == then):
                yield name
        for name, now, then in self.containers:
            if not _is_same(now, then):
                yield name
        for name, tensor, version in self.tensors:
            if _version(tensor) != version:
                yield name
        for name, held, there in self.slots:
            if [(n, t.dtype) for n, t in held.items() if t is not None] != there:
                yield name
        if any(self.hooks.values()):
            yield next(name for name, hooks in self.hooks.items() if hooks)
        for name, one, n, other, k in self.ties:
            if one.get(n) is not other.get(k):
                yield name

    @contextmanager
    def restored(self) -> Iterator[Callable[[], list[str]]]:
        """Restore values and containers at exit; yield a function that names what had changed."""
        found: list[str] = []
        absent = {(id(x), k) for _, x, _, k, _ in self.values if isinstance(x, dict) and k not in x}
        copies = [(t, t._version, t.detach().clone()) for _, t, _ in self.tensors]
        states = [(g.set_state, g.get_state()) for g in self.generators]
        states.append((random.setstate, random.getstate()))
        states.append((np.random.set_state, np.random.get_state()))
        try:
            # A checkpoint counts the tensors that are saved. Without it: torch.func takes no hooks.
            counts = torch._C._autograd._top_saved_tensors_default_hooks(False)
            with saved_tensors_hooks(lambda t: t, lambda t: t) if counts else nullcontext():
                yield lambda: list(dict.fromkeys(found))
        finally:
            for put, state in states:
                put(state)
            found += self._changes()
            for _, holder, read, key, then in self.values:
                if (id(holder), key) in absent:
                    holder.pop(key, None)
                elif read(key) is not then:
                    _put(holder, key, then)
            for _, now, then in self.containers:
                if not _is_same(now, then):
                    now.clear()
                    now.extend(then) if isinstance(now, list) else now.update(then)
            for tensor, version, data in copies:
                if tensor._version != version:
                    tensor.detach().copy_(data)


def _version(x: Any) -> tuple[Any, ...]:
    place = x.data_ptr() if x.layout is torch.strided else id(x)
    return x._version, place, x.requires_grad


def _is_same(a: Any, b: Any) -> bool:
    """True if two lists, dicts or sets have the same elements, or a has more that are tools."""
    if isinstance(a, set):
        return bool(a == b)
    if isinstance(a, dict):
        more = [*a.values()][len(b) :]
        return len(a) >= len(b) and all(
            (*map(is_, a, b), *map(is_, a.values(), b.values()), *map(_is_tool, more))
        )
    return len(a) == len(b) and all(map(is_, a, b))


def _is_tool(x: Any) -> bool:
    """True of an object without data, as a library keeps one for each type or name that it met."""
    plain = not hasattr(x, "__dict__") or callable(x) or _is_foreign(type(x).__module__)
    return not plain and all(isinstance(v, type | ModuleType) for v in vars(x).values())


def _wrapped(x: Any) -> Any:
    """Return the function that x is made of, or None."""
    try:
        return getattr(x, "__wrapped__", None) or getattr(x, "_torchdynamo_inline", None)
    except Exception:  # as of the stand-in for a package that is not installed
        return None


def _put(holder: Any, key: str, value: Any) -> None:
    if isinstance(holder, CellType):
        holder.cell_contents = value
    elif isinstance(holder, type):
        setattr(holder, key, value)
    else:
        holder[key] = value


def surroundings_of(function: Any, given: Sequence[Any] = ()) -> Surroundings:
    """Return what a function, method or module reads beside its arguments.

    ``given`` are arguments that it may call.
    """
    walk = _Walk(function, frozenset(), frozenset())
    while True:
        # The names in methods of objects that are found say which attributes are read.
        for x in (function, *given):
            walk.visit("", x)
        if len(walk.names) + len(walk.stored) == walk.count:
            return walk.found
        walk = _Walk(function, walk.names, walk.stored)


class _Walk:
    def __init__(self, root: Any, names: Collected[str], stored: Collected[str]) -> None:
        self.root, self.count = root, len(names) + len(stored)
        self.given, self.names, self.stored = names, {*names}, {*stored}
        self.found = Surroundings()
        self.seen: dict[int, Any] = {}

    def value(self, name: str, holder: Any, key: str, then: Any = None) -> None:
        if len(self.found.values) < _MOST:
            own: Any = vars(holder) if isinstance(holder, type) else holder
            read = own.__getattribute__ if isinstance(holder, CellType) else own.get
            self.found.values.append((name, holder, read, key, then))
            self.visit(name, then)

    def visit(self, name: str, x: Any) -> None:
        """Add what an object holds, if it was not seen before."""
        if x is None or type(x) in _PLAIN or id(x) in self.seen:
            return
        self.seen[id(x)] = x
        if isinstance(x, torch.Tensor):
            if not x.is_inference() and x.device.type != "meta":
                self.found.tensors.append((name, x, _version(x)))
        elif isinstance(x, torch.Generator):
            self.found.generators.append(x)
        elif isinstance(x, torch.nn.Module):
            self._visit_module(name, x)
        elif inspect.isfunction(x) and not _is_foreign(x.__globals__.get("__name__")):
            self._visit_code(x)
        elif isinstance(x, list | dict | set):
            if len(x) < _MOST:
                self.found.containers.append((name, x, copy(x)))
                for part in x.values() if isinstance(x, dict) else x:
                    self.visit(name, part)
        elif isinstance(x, tuple):
            for part in x:
                self.visit(name, part)
        elif isinstance(x, partial):
            self.visit(name, (x.func, x.args, x.keywords))
        elif isinstance(x, ModuleType):
            if not _is_foreign(x.__name__):
                self._visit_names(name, vars(x))
        elif inspect.ismethod(x):
            self.visit(name, x.__func__)
            self.visit("", x.__self__)
        elif isinstance(x, property) or (wrapped := _wrapped(x)) is not None:
            self.visit(name, x.fget if isinstance(x, property) else wrapped)
        elif isinstance(x, type):
            self._visit_class(name, x)
        elif hasattr(x, "__dict__") and type(x).__module__.partition(".")[0] not in _LIBRARIES:
            self._visit_names(name, vars(x))
            self._visit_class(name, type(x), vars(x))

    def _visit_code(self, f: Any) -> None:
        """Add a function, and the variables of closures and globals that it names."""
        self.found.functions.append(f)
        self._add_names(f.__code__)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            try:
                self.value(name, cell, "cell_contents", cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
        # An attribute may have the name of a global that the function does not read.
        read = _named(f.__code__, "LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
        for name in sorted(read & f.__globals__.keys()):
            self.value(name, f.__globals__, name, f.__globals__[name])

    def _add_names(self, code: CodeType) -> None:
        self.names |= _named(code)
        self.stored |= {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR"}

    def _visit_names(self, name: str, held: dict[str, Any]) -> None:
        """Add the attributes that code names, and those that it sets."""
        for key in [k for k in held if k in self.given]:
            self.value(_dotted(name, key), held, key, held[key])
        for key in sorted(self.stored - held.keys()):
            self.value(_dotted(name, key), held, key)

    def _visit_class(self, name: str, kind: type, own: dict[str, Any] | None = None) -> None:
        """Add the attributes of a class that code names, and what stands for them on an object."""
        for base in kind.__mro__:
            if not _is_foreign(base.__module__):
                for key in [k for k in vars(base) if k in self.given or k in _CALLED]:
                    self.value(_dotted(name, key), base, key, vars(base)[key])
                    if own is not None and key not in own:
                        self.value(_dotted(name, key), own, key)

    def _visit_module(self, name: str, module: Any) -> None:
        """Add attributes, hooks and submodules, and which parameters and buffers there are."""
        base, tied = vars(torch.nn.Module()).keys(), dict[int, tuple[Any, str]]()
        for path, m in module.named_modules(prefix=name):
            self.seen[id(m)] = m
            own, kind = vars(m), type(m)
            foreign = _is_foreign(kind.__module__)
            kept = own.keys() - base - {"_derived"}
            for key in [k for k in own if k in kept and (foreign or k in self.given)]:
                self.value(_dotted(path, key), own, key, own[key])
            for key in sorted(self.stored - own.keys()):
                self.value(_dotted(path, key), own, key)
            self._visit_class(path, kind, own)
            if foreign and m is not module and "forward" not in own:
                self.value(_dotted(path, "forward"), own, "forward")
            if module is not self.root:
                self.value(_dotted(path, "training"), own, "training", m.training)
            if m._modules:
                self.found.containers.append((path, m._modules, dict(m._modules)))
            if m is not module:
                self.found.hooks |= {f"{path}.{hook}": own[hook] for hook in _HOOKS}
            for held in filter(None, (m._parameters, m._buffers)):
                there = [(n, t.dtype) for n, t in held.items() if t is not None]
                self.found.slots.append((path, held, there))
                for key, _ in there:
                    if module is not self.root:  # its tensors are constants of the reading
                        self.value(_dotted(path, key), held, key, held[key])
                    if id(held[key]) in tied:
                        self.found.ties.append((path, held, key, *tied[id(held[key])]))
                    tied[id(held[key])] = held, key


def _is_foreign(module: Any) -> bool:
    return str(module).partition(".")[0] in _FOREIGN


def _dotted(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _named(code: CodeType, *operations: str) -> set[str]:
    """Return the globals and attributes that code names, or those of some of its operations."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    own = {i.argval for i in dis.get_instructions(code) if i.opname in operations}
    return (own if operations else {*code.co_names}).union(*(_named(c, *operations) for c in inner))


@contextmanager
def without_hooks(function: Any) -> Iterator[None]:
    """Set the hooks of a module aside, which a call runs around its forward.

    Raises:
        DeriveError: a module inside of it has hooks, which derived code would not run.
    """
    if not isinstance(function, torch.nn.Module):
        yield
        return
    for name, m in function.named_modules():
        if m is not function and any(vars(m)[hook] for hook in _HOOKS):
            raise DeriveError(f"derived code would not run the hooks of {name}", kind="torch-state")
    kept = {hook: vars(function)[hook] for hook in _HOOKS}
    vars(function).update({hook: type(x)() for hook, x in kept.items()})
    try:
        yield
    finally:
        vars(function).update(kept)

"""Data flow of a body: facts of its values from the first line to the last, uses from the last.

A `Forward` analysis computes a fact of each name from those of the names that its line reads: the
memory that a value may share, its kind, its dtype. A `Backward` analysis computes the use of each
name from those of the lines that read it: whether it is live, and for which gradients. The passes
read facts and uses, and compute none of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import or_
from typing import Generic, Protocol, TypeVar

from derive.program.shape_rules import TensorType
from derive.program.torch_ir import (
    NONE,
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    MethodCall,
    Name,
    Subscript,
    Unary,
    names_in,
    text,
)
from derive.program.torch_ops import Alias, torch_op

Fact = TypeVar("Fact")
Use = TypeVar("Use")


class Statement(Protocol):
    """name = code; ``type`` is declared for what the lowering has defined."""

    @property
    def name(self) -> str: ...
    @property
    def code(self) -> Code: ...
    @property
    def type(self) -> TensorType | None: ...


class Forward(Generic[Fact]):
    """Facts of names, line after line; ``known`` has those of the names at the current line."""

    def __init__(self, given: Mapping[str, Fact]) -> None:
        self.known = dict(given)

    def of(self, code: Code) -> Fact:
        """Return the fact of the value of the code."""
        raise NotImplementedError

    def run(self, lines: Iterable[Statement]) -> None:
        """Take in the facts of these lines."""
        for line in lines:
            self.known[line.name] = self.of(line.code)


class Backward(Generic[Use]):
    """Uses of names; ``wanted`` has those after the current line, and two of one name join."""

    def __init__(self, wanted: Mapping[str, Use], join: Callable[[Use, Use], Use]) -> None:
        self.wanted = dict(wanted)
        self.join = join

    def note(self, name: str, use: Use) -> None:
        """Take in a use of a name."""
        self.wanted[name] = self.join(self.wanted[name], use) if name in self.wanted else use

    def walk(self, lines: Sequence[Statement]) -> Iterator[tuple[int, Use]]:
        """Yield (position, use) of the live lines, the last first; the caller notes their reads."""
        for n in range(len(lines) - 1, -1, -1):
            if lines[n].name in self.wanted:
                yield n, self.wanted.pop(lines[n].name)

    def run(self, lines: Sequence[Statement]) -> list[Use | None]:
        """Return the use of each line, None for a dead one."""
        found: list[Use | None] = [None] * len(lines)
        for n, use in self.walk(lines):
            found[n] = use
            for name in names_in(lines[n].code):
                self.note(name, use)
        return found


def live(lines: Sequence[Statement], results: Iterable[str]) -> list[bool]:
    """Return for each line whether a result depends on it."""
    return [use or False for use in Backward(dict.fromkeys(results, True), or_).run(lines)]


def live_in(lines: Iterable[Statement]) -> set[str]:
    """Return the names that are read before a line defines them."""
    read: set[str] = set()
    made: set[str] = set()
    for line in lines:
        read |= set(names_in(line.code)) - made
        made.add(line.name)
    return read


# -------------------------------------------------------------------- memory

Owner = str | int
"""A name that the body is given, the number of a tensor that it allocates, or an item of either."""


@dataclass(frozen=True)
class Memory:
    """The owners of all memory that a value may share, and what the value is in it.

    A ``view`` is one for autograd. A value ``overlaps`` if an element may appear at several
    positions. It is ``writable`` if the body allocated it and it has each element of it once. One
    of ``several`` is a tuple of tensors with memory of their own. Values with the same ``tensor``
    are certainly the same tensor, apart from casts.
    """

    owners: frozenset[Owner] = frozenset()
    view: bool = False
    overlaps: bool = False
    writable: bool = False
    several: bool = False
    tensor: Owner | None = None


_NOTHING = Memory()
"""The memory of numbers and shapes."""
_OF_ITSELF = ("shape", "dtype", "device", "ndim")
_FRESH_OPERATORS = frozenset("+ - * / ** @ ~ == != < <= > >= & |".split())
_RESULTS = ("out", "grad_input")


class Aliases(Forward[Memory]):
    """The memory of values, given the names of tensors; an unknown call may alias its operands."""

    def __init__(self, given: Iterable[str] = ()) -> None:
        super().__init__({name: _given(name) for name in given})
        self._made = 0

    def fresh(self, view: bool = False, several: bool = False) -> Memory:
        """Return the memory of a new tensor, or of several."""
        self._made += 1
        own = frozenset({self._made})
        return Memory(own, view, writable=True, several=several, tensor=self._made)

    def of(self, code: Code) -> Memory:
        match code:
            case Name(name):
                return self.known.get(name) or _given(name)
            case Conditional(_, then, other):
                return self.either(code, self.of(then), self.of(other))
        return self.combined(code, [self.of(part) for part in code.parts()])

    def either(self, code: Conditional, one: Memory, two: Memory) -> Memory:
        """Return the memory of a choice, given that of its branches."""
        if NONE in (code.then, code.other):
            return two if code.then is NONE else one
        return Memory(
            one.owners | two.owners,
            one.view or two.view,
            one.overlaps or two.overlaps,
            one.writable and two.writable,
            tensor=one.tensor if one.tensor == two.tensor else self.fresh().tensor,
        )

    def combined(self, code: Code, parts: Sequence[Memory]) -> Memory:
        """Return the memory of the code, given that of its parts."""
        written = _written_operand(code)
        if written is not None:
            # A local tensor that is written over is dead under its other names.
            given = frozenset(owner for owner in parts[written].owners if isinstance(owner, str))
            made = self.fresh(parts[written].view)
            return replace(made, owners=made.owners | given, writable=parts[written].writable)
        if not (read_parts(code) or torch_op(code).makes):
            return _NOTHING
        match code:
            case Attribute(_, "values" | "indices" as name):
                return self._item(parts[0], f".{name}")
            case Subscript(_, items) if parts[0].several:
                return self._item(parts[0], f"[{text(items[0])}]")
            case FunctionCall("rt.no_view"):
                return replace(parts[0], view=False)
            case Keyword():
                return parts[0]
        alias = _alias_of(code)
        if alias in (Alias.FRESH, Alias.FRESH_VIEW, Alias.SEVERAL):
            return self.fresh(alias is Alias.FRESH_VIEW, alias is Alias.SEVERAL)
        if alias is Alias.SAME:
            return parts[0]
        shared = parts if alias is Alias.ANY else parts[:1]
        return Memory(
            frozenset().union(*(part.owners for part in shared)),
            view=alias is not Alias.ANY,
            overlaps=alias is Alias.OVERLAPPING or any(part.overlaps for part in shared),
            writable=alias is Alias.RESHAPED and parts[0].writable,
            tensor=self.fresh().tensor,
        )

    def _item(self, whole: Memory, which: str) -> Memory:
        owners = frozenset(f"{owner}{which}" for owner in whole.owners)
        return Memory(owners, tensor=self.fresh().tensor)


def _given(name: str) -> Memory:
    return Memory(frozenset({name}), tensor=name)


def _alias_of(code: Code) -> Alias:
    """Return what the result of a node shares with its operands."""
    match code:
        case Binary(op) | Unary(op) if op in _FRESH_OPERATORS:
            return Alias.FRESH
        case Attribute(_, "mT" | "T"):
            return Alias.RESHAPED
        case Subscript():
            return Alias.VIEW
        case FunctionCall("torch.einsum", (_, _)):
            return Alias.ANY
    return torch_op(code).alias


def _written_operand(code: Code) -> int | None:
    """Return the position of the operand that the code overwrites with its result, else None."""
    match code:
        case MethodCall(_, name) if name.endswith("_"):
            return 0
        case FunctionCall(name, args):
            if name.startswith("reuse.") or (name.startswith("rt.") and name.endswith("_")):
                return 0
            named = (n for n, a in enumerate(args) if isinstance(a, Keyword) and a.name in _RESULTS)
            return next(named, None)
    return None


def read_parts(code: Code) -> tuple[Code, ...]:
    """Return the parts from which the code reads more than shapes and dtypes."""
    match code:
        case Attribute(_, name) if name in _OF_ITSELF:
            return ()
        case MethodCall(_, name, args) if name in ("dim", "size") or torch_op(code).makes:
            return args
    return code.parts()


@lru_cache(maxsize=2**12)
def names_read(code: Code) -> frozenset[Name]:
    """Return the names from which the code reads more than shapes and dtypes."""
    if isinstance(code, Name):
        return frozenset({code})
    return frozenset().union(*map(names_read, read_parts(code)))

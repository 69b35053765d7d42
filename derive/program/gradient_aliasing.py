"""Copies gradients that alias each other where autograd cannot detect it.

A gradient may be the cotangent itself; autograd copies it if another holder exists. It does not
detect two views of the same memory, and ``torch.autograd.grad`` returns one tensor for two inputs
as it is, so that scaling one gradient would scale the other. All but one of them are copied if
several are needed; disjoint parts of a tensor stay views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from derive.program.cse import Line
from derive.program.gradient_predication import any_wanted
from derive.program.output_aliasing import AliasSet, memory
from derive.program.program import BackwardLine, Program
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Literal,
    MethodCall,
    Name,
    Subscript,
    names_in,
    operands,
)
from derive.program.torch_ops import torch_op

_NONE = Literal("None")


def gradients_apart(program: Program, lines: Sequence[BackwardLine]) -> tuple[BackwardLine, ...]:
    """Return the lines of a backward in which no two gradients alias."""
    body = _AliasedBody(program, lines)
    inputs = [t for t, name in program.gradients.items() if name in body.memories]
    places = {name: n for n, name in enumerate(program.inputs)}
    # The cotangent itself is never copied here, so its views are.
    turn = sorted(inputs, key=lambda t: (not body.is_given(t), inputs.index(t)))
    result = list(lines)
    for n, t in enumerate(turn):
        others = tuple(u for u in inputs if u in turn[:n] and body.share(t, u))
        if others and not body.is_given(t):
            name = Name(program.gradients[t])
            overlaps = body.memories[name.id].overlaps
            copy = FunctionCall("_copied", (name,)) if overlaps else MethodCall(name, "clone")
            code = Conditional(any_wanted(others, places), copy, name)
            read = [name.id in (x.line.name, *names_in(x.line.code)) for x in result]
            at = len(read) - read[::-1].index(True)
            result.insert(at, BackwardLine(Line(name.id, code), (t,)))
    return tuple(result)


@dataclass
class _AliasedBody:
    """The state of names at the end of a body: memory, tensor identity, and part of another."""

    program: Program
    lines: Sequence[BackwardLine]
    memories: dict[str, AliasSet] = field(init=False)
    tensors: dict[str, str | int] = field(init=False)
    """Name -> the first name of the same tensor, or the line that made it."""
    parts: dict[str, _Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        read = {name for x in self.lines for name in names_in(x.line.code)}
        self.memories = {name: AliasSet(frozenset({name})) for name in read}
        self.tensors = {name: name for name in read}
        for n, x in enumerate(self.lines):
            name, code = x.line.name, x.line.code
            part = self._part(code)
            tensor, own = self._tensor(code, n), memory(code, self.memories, n)
            self.tensors[name], self.memories[name] = tensor, own
            self.parts.pop(name, None)
            if part is not None:
                self.parts[name] = part

    def is_given(self, t: str) -> bool:
        """True if the gradient of an input is a cotangent tensor itself."""
        cotangents = {name for _, name in self.program.cotangents if name is not None}
        return self.tensors[self.program.gradients[t]] in cotangents

    def share(self, t: str, u: str) -> bool:
        """True if the gradients of two inputs may share memory."""
        one, two = self.program.gradients[t], self.program.gradients[u]
        if not self.memories[one].owners & self.memories[two].owners:
            return False
        if self.tensors[one] == self.tensors[two]:
            return True
        a, b = self.parts.get(one), self.parts.get(two)
        return a is None or b is None or not (a.ends_before(b) or b.ends_before(a))

    def _tensor(self, code: Code, n: int) -> str | int:
        """Return the identity of the tensor: an existing name, or the line."""
        match code:
            case Name(name):
                return self.tensors.get(name, n)
            case MethodCall(obj, "to"):
                return self._tensor(obj, n)
            case Conditional(_, then, other):
                found = {self._tensor(part, n) for part in (then, other) if part is not _NONE}
                return found.pop() if len(found) == 1 else n
        return n

    def _part(self, code: Code) -> _Part | None:
        """Return the part of a tensor that the code is a view of."""
        while not isinstance(code, Name):
            first = code.parts()[0] if code.parts() else code
            if isinstance(code, Attribute) or not torch_op(code).view:
                return None
            match code:
                case MethodCall(Name(name), "narrow", (axis, start, length)):
                    return _Part(self.tensors.get(name, name), axis, start, length)
                case MethodCall(Name(name), "select", (axis, start)):
                    return _Part(self.tensors.get(name, name), axis, start, Literal("1"))
            code = first
        return self.parts.get(code.id)


@dataclass(frozen=True)
class _Part:
    """A run of positions along an axis of a tensor."""

    tensor: str | int
    axis: Code
    start: Code
    length: Code

    def ends_before(self, other: _Part) -> bool:
        """True if this part provably ends at or before the start of the other."""
        if (self.tensor, self.axis) != (other.tensor, other.axis):
            return False
        gap = _counted_terms(other.start)
        gap.subtract(_counted_terms(self.start))
        gap.subtract(_counted_terms(self.length))
        return all(n >= 0 and _is_nonnegative_size(x) for x, n in gap.items() if n)


def _counted_terms(code: Code) -> Counter[Code]:
    """Return the terms of a sum with their counts; an integer counts as a multiple of 1."""
    found: Counter[Code] = Counter()
    for term in operands(code, "+"):
        if isinstance(term, Literal) and term.text.isdigit():
            found[Literal("1")] += int(term.text)
        else:
            found[term] += 1
    return found


def _is_nonnegative_size(code: Code) -> bool:
    """True if the number is provably nonnegative."""
    match code:
        case Literal(words):
            return words.isdigit()
        case Binary("*", a, b):
            return _is_nonnegative_size(a) and _is_nonnegative_size(b)
        case Subscript(Name(name)):
            return name.endswith("_shape")
        case Subscript(Attribute(_, "shape")):
            return True
    return False

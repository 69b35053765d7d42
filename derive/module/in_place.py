"""Lines that compute in the memory of what is read no more, in a body that nothing records.

    q = part8 * p - part6        q = p.mul_(part8).sub_(part6)        where p has q's shape

A tensor may be used up where it was made in the body, nothing that is read later shares its
memory, and it has the shape of the result. Tensors of one axis are left as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from derive.cost.trace import Trace
from derive.program.absent import is_float
from derive.program.code import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Function,
    Literal,
    Method,
    Name,
    Subscript,
    Unary,
    names_in,
)
from derive.program.program import BackwardLine
from derive.program.shapes import Shape
from derive.program.torch_ops import ELEMENTWISE, torch_op

_OPERATORS = {"+": "add_", "-": "sub_", "*": "mul_", "/": "div_"}
_METHODS = frozenset(
    "exp exp2 expm1 log log1p sqrt rsqrt square sin cos tan asin acos atan sinh cosh tanh sigmoid "
    "abs neg reciprocal clamp clamp_min clamp_max erf erfc scatter_add index_add masked_fill".split()
)


def in_place(
    entries: Sequence[BackwardLine],
    trace: Trace,
    floats: Collection[str],
    results: Collection[str],
    known: Mapping[str, Shape],
) -> list[BackwardLine]:
    """The lines with what they make where it may be made."""
    body = _Body(trace, set(floats), {name: frozenset({name}) for name in trace.values})
    made = []
    for n, entry in enumerate(entries):
        later = {name for x in entries[n + 1 :] for name in names_in(x.line.code)}
        code = body.line(entry.line.code, later | set(results), n)
        trace.run([entry.line], known)
        body.note(entry.line.name, entry.line.code, code, n)
        made.append(replace(entry, line=replace(entry.line, code=code)))
    return made


@dataclass
class _Body:
    trace: Trace
    floats: set[str]
    owners: dict[str, frozenset[str | int]]
    """Whose memory a name shares: a tensor that is given, or what a line made."""
    whole: set[str] = field(default_factory=set)
    """The names that hold what they share as it is, and no view of it."""
    later: set[str] = field(default_factory=set)


    def line(self, code: Code, later: set[str], n: int) -> Code:
        """The code of the next line, with the names that later ones read."""
        self.later = later
        if isinstance(code, Conditional):
            if self._reads_again(code):
                return code
            return Conditional(code.test, self._made(code.then), self._made(code.other))
        return self._made(code)

    def note(self, name: str, given: Code, code: Code, n: int) -> None:
        """What a line has made."""
        self.owners[name] = self._owners(code, n)
        self.whole.discard(name)
        if self._is_whole(given):
            self.whole.add(name)
        self.floats.discard(name)
        if is_float(given, self.floats):
            self.floats.add(name)

    def _reads_again(self, code: Conditional) -> bool:
        return any(name in names_in(code.test) for name in names_in(code.then))

    def _made(self, code: Code) -> Code:
        """The code, in the memory of an operand where that may be."""
        shape = self.trace.shape(code)
        if shape is None or len(shape) < 2:
            return code
        match code:
            case Binary("+" | "-" | "*" | "/" as op, left, right):
                for a, b in ((left, right), (right, left)):
                    if (a is left or op in "+*") and self._may_use(a, shape, code):
                        return Method(self._made(a), _OPERATORS[op], (b,))
            case Unary("-", a) if self._may_use(a, shape, code):
                return Method(self._made(a), "neg_")
            case Method(a, name, args) if name in _METHODS and self._may_use(a, shape, code):
                return Method(self._made(a), f"{name}_", args)
            case Function("torch.where", (mask, a, Literal("0"))) if self._may_use(a, shape, code):
                return Method(self._made(a), "masked_fill_", (Unary("~", mask), Literal("0")))
        return code

    def _may_use(self, a: Code, shape: Shape, code: Code) -> bool:
        """Whether the memory of an operand may hold the result."""
        if self.trace.shape(a) != shape or not is_float(a, self.floats):
            return False
        if not isinstance(a, Name):
            return self._is_fresh(a)
        own = self.owners.get(a.id, frozenset({a.id}))
        if a.id not in self.whole or any(isinstance(o, str) for o in own):
            return False
        if any(own & self.owners.get(name, frozenset()) for name in self.later):
            return False
        reads = [name for name in _names(code) if own & self.owners.get(name, frozenset())]
        return len(reads) == 1

    def _is_fresh(self, code: Code) -> bool:
        """Whether the code makes a tensor of its own."""
        match code:
            case Binary() | Unary():
                return True
            case Method() | Function():
                op = torch_op(code)
                return (op is ELEMENTWISE or not op.view) and not op.ends_in_view
        return False

    def _is_whole(self, code: Code) -> bool:
        match code:
            case Name(name):
                return name in self.whole
            case Conditional(_, then, other):
                same = self.trace.shape(then) == self.trace.shape(other)
                return same and self._is_whole(then) and self._is_whole(other)
            case Method(obj, "to"):
                return self._is_whole(obj)
        return self._is_fresh(code)

    def _owners(self, code: Code, n: int) -> frozenset[str | int]:
        match code:
            case Name(name):
                return self.owners.get(name, frozenset({name}))
            case Conditional(_, then, other):
                return self._owners(then, n) | self._owners(other, n)
            case Attribute(obj, "mT" | "T") | Subscript(obj) | Method(obj, "to"):
                return self._owners(obj, n)
            case Method(obj, name) if name.endswith("_"):
                return self._owners(obj, n)
        if torch_op(code).view:
            return self._owners(code.parts()[0], n)
        return frozenset({n})


def _names(code: Code) -> list[str]:
    """The names that are read, each as often as it stands there."""
    if isinstance(code, Name):
        return [code.id]
    return [name for part in code.parts() for name in _names(part)]

"""Lines that compute in the memory of what is read no more, in a body that nothing records.

    q = part8 * p - part6        q = p.mul_(part8).sub_(part6)        where p has q's shape

A tensor may be used up where it was made in the body, nothing that is read later shares its
memory, and it has the shape of the result. Tensors of one axis are left as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from derive.algebra.substitution import numbered
from derive.cost.trace import Trace
from derive.program.absent import is_float
from derive.program.code import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Function,
    Keyword,
    Literal,
    Method,
    Name,
    Subscript,
    Unary,
    literal,
    names_in,
    text,
)
from derive.program.program import BackwardLine
from derive.program.shapes import Shape
from derive.program.tidy import Line
from derive.program.torch_ops import ELEMENTWISE, torch_op

WIDTH = 76
"""Columns that a line of code may take; its indentation comes on top."""

_SOFTMAXES = ("torch.softmax", "torch.log_softmax")
"""Those that may write over what they read."""
_OPERATORS = {"+": "add_", "-": "sub_", "*": "mul_", "/": "div_"}
_METHODS = frozenset(
    "exp exp2 expm1 log log1p sqrt rsqrt square sin cos tan asin acos atan sinh cosh tanh sigmoid "
    "abs neg reciprocal clamp clamp_min clamp_max erf erfc scatter_add index_add masked_fill"
    "".split()
)


def in_place(
    entries: Sequence[BackwardLine],
    trace: Trace,
    floats: Collection[str],
    results: Collection[str],
    known: Mapping[str, Shape],
    places: Mapping[str, int],
) -> list[BackwardLine]:
    """The lines with what they make where it may be made; ``trace`` follows them.

    Where only the gradient of one input reads a tensor later, it is used up if that is not asked
    for. ``places`` has the place of each input.
    """
    entries = _opened(entries, {*trace.values, *places})
    owners: dict[str, frozenset[str | int]] = {name: frozenset({name}) for name in trace.values}
    body = _Body(trace, set(floats), owners)
    made = []
    for n, entry in enumerate(entries):
        line, after = entry.line, entries[n + 1 :]
        rare = [x for x in after if len(x.needs) == 1 < len(places)]
        always = {name for x in after if x not in rare for name in names_in(x.line.code)}
        always |= set(results)
        code = body.line(line.code, always.union(*(names_in(x.line.code) for x in rare)))
        if code is line.code and len(entry.needs) > 1:
            loose = body.line(line.code, always)
            readers = {x.needs[0] for x in rare if body.shares(line.code, x.line.code)}
            test = _asked([places[t] for t in places if t in readers])
            choice = Conditional(test, line.code, loose)
            if loose is not line.code and len(f"{line.name} = {text(choice)}") <= WIDTH:
                code = choice
        trace.run([line], known)
        body.note(line.name, line.code, line.code if isinstance(code, Conditional) else code, n)
        made.append(replace(entry, line=replace(line, code=code)))
    return made


def _opened(entries: Sequence[BackwardLine], taken: set[str]) -> list[BackwardLine]:
    """The lines with a name for what a softmax is of."""
    taken = {*taken, *(name for x in entries for name in (x.line.name, *names_in(x.line.code)))}
    made = []
    for entry in entries:
        match entry.line.code:
            case Function(name, (Method() as inner, *rest)) if name in _SOFTMAXES:
                part = numbered("part", taken)
                taken.add(part)
                made.append(replace(entry, line=Line(part, inner, kept=False)))
                code = Function(name, (Name(part), *rest))
                entry = replace(entry, line=replace(entry.line, code=code))
        made.append(entry)
    return made


def _asked(places: Sequence[int]) -> Code:
    """Whether a gradient of these inputs is asked for."""
    asked = Attribute(Name("ctx"), "needs_input_grad")
    each: list[Code] = [Subscript(asked, (literal(n),)) for n in places]
    return reduce(lambda a, b: Binary("or", a, b), each) if each else Literal("True")


@dataclass
class _Body:
    trace: Trace
    floats: set[str]
    owners: dict[str, frozenset[str | int]]
    """Whose memory a name shares: a tensor that is given, or what a line made."""
    whole: set[str] = field(default_factory=set)
    """The names that hold what they share as it is, and no view of it."""
    later: set[str] = field(default_factory=set)

    def shares(self, code: Code, other: Code) -> bool:
        """Whether both read the same memory."""
        nobody: frozenset[str | int] = frozenset()
        one, two = (
            nobody.union(*(self.owners.get(name, nobody) for name in names_in(c)))
            for c in (code, other)
        )
        return bool(one & two)

    def line(self, code: Code, later: set[str]) -> Code:
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
            case Function(name, (Name() as a, *rest)) if name in _SOFTMAXES:
                if self._may_use(a, shape, code):
                    return Function(name, (a, *rest, Keyword("out", a)))
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
            case Function(_, (*_, Keyword("out", obj))):
                return self._owners(obj, n)
        if torch_op(code).view:
            return self._owners(code.parts()[0], n)
        return frozenset({n})


def _names(code: Code) -> list[str]:
    """The names that are read, each as often as it stands there."""
    if isinstance(code, Name):
        return [code.id]
    return [name for part in code.parts() for name in _names(part)]

"""Reuses buffers: a result overwrites an operand that is dead.

    part = e * c      part = e.mul_(c)
    a - rstd * x      a.addcmul_(rstd, x, value=-1)

A tensor is overwritten if the lines themselves allocated it, if it certainly has the shape and
dtype of the result, and if no later line and no result reads its memory. An allocation costs more
than the arithmetic that fills it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from derive.program.cse import Line, cut, numbered
from derive.program.gemm_fusion import note_groups, product_added
from derive.program.gradient_predication import Needs, any_wanted
from derive.program.none_specialization import has_choice, is_float
from derive.program.scatter_sinking import scatter_parts, sink_scatters, with_adding
from derive.program.shape_rules import Shape
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Unary,
    names_in,
    replaced,
    subexpressions,
    text,
)
from derive.program.torch_ops import torch_op

Entry = tuple[Line, Needs]
"""A line, and the inputs whose gradients need it."""

_OF_ITSELF = ("shape", "dtype", "device", "ndim")
_NONE = Literal("None")
_ARITHMETIC = ("+", "-", "*", "/", "**", "@", "~", "==", "!=", "<", "<=", ">", ">=", "&", "|")
_METHODS = {"+": "add_", "*": "mul_", "-": "sub_", "/": "div_", "**": "pow_"}


class Scenario(Protocol):
    """The known facts if some optional tensors are None and the others given."""

    def shape(self, code: Code) -> Shape | None: ...
    def truth(self, test: Code) -> bool | None: ...
    def runs(self, needs: Needs) -> bool: ...
    def run(self, lines: Iterable[Line], known: Mapping[str, Shape]) -> None: ...


@dataclass(frozen=True)
class WritableMemory:
    """The local tensors that a value may alias, and whether they may be overwritten."""

    of: frozenset[int] = frozenset()
    writable: bool = False


_OTHERS = WritableMemory()
"""The memory of arguments, and of values that are not tensors."""


@dataclass
class InPlaceWriter:
    """Rewrites lines in place, one after another.

    ``floats`` are the names of float tensors, and ``results`` the returned names, whose shapes are
    in ``known``. ``places`` has the positions of inputs among the arguments. ``taken`` are the
    names in use. ``is_large`` says which shapes are worth the rewrite.
    """

    floats: dict[str, None]
    results: Collection[str]
    known: Mapping[str, Shape]
    places: Mapping[str, int]
    taken: set[str]
    is_large: Callable[[Shape], bool]
    width: int
    numbers: Collection[str] = ()
    """The names that are not tensors."""
    grouped: set[str] = field(default_factory=set)
    """The names of tensors that may have a group of axes."""
    written: int = 0
    """The number of saved allocations."""
    _memory: dict[str, WritableMemory] = field(default_factory=dict)
    _busy: set[int] = field(default_factory=set)
    """The tensors that the current line reads again or a later line reads."""
    _asked: dict[int, dict[str, None]] = field(default_factory=dict)
    """For each tensor, the inputs whose gradients alone read it after the current line."""
    _shapes: dict[tuple[int, Code], Shape | None] = field(default_factory=dict)
    _whole: Code | None = None
    _before: list[Line] = field(default_factory=list)
    _made: int = 0
    _compared: frozenset[str] = frozenset()
    """The names of what must round as it is written."""
    _name: str = ""
    """The name of the line at hand."""

    def write(self, entries: Sequence[Entry], worlds: Sequence[Scenario]) -> Iterator[Entry]:
        """Yield the lines in place; each world assumes one set of optional tensors to be None."""
        pending = sink_scatters(entries)
        self._compared = _compared([line for line, _ in pending])
        for n, (line, needs) in enumerate(pending):
            here = [world for world in worlds if world.runs(needs)]
            joined = self._joined(line, pending[n + 1 :][:1], here)
            if joined is not None:
                pending[n + 1] = joined
            else:
                yield from ((x, needs) for x in self._line(line, needs, pending[n + 1 :], here))
            for world in here:
                world.run([line], self.known)
            self._shapes.clear()
            if is_float(line.code, self.floats):
                self.floats[line.name] = None
            else:
                self.floats.pop(line.name, None)
            note_groups(line, self.grouped)

    def _line(
        self, line: Line, needs: Needs, later: Sequence[Entry], worlds: Sequence[Scenario]
    ) -> list[Line]:
        """Return the line in place, after the lines that it needs."""
        self._busy = {m for name in self.results for m in self._of(name).of}
        self._busy |= {m for m, times in self._reads(line.code).items() if times > 1}
        self._asked = {}
        for x, own in later:
            for m in {m for name in _names_with_elements(x.code) for m in self._of(name).of}:
                if set(own) & set(needs):
                    self._busy.add(m)
                self._asked.setdefault(m, {}).update(dict.fromkeys(own))
        self._whole, self._before, written = line.code, [], self.written
        self._name = line.name
        code, memory = self._made_of(line.code, worlds)
        made = replace(line, code=code)
        if not self._fits(made):
            self._before, self.written = [], written
            made, memory = line, self._made_of(line.code, ())[1]
        self._memory[line.name] = memory
        every = [*self._before, made]
        chosen = [has_choice(x.code) for x in every]
        among = [x for x, _ in later]
        parts = (
            [x] if c else cut([x], self.taken, self.width, among)
            for x, c in zip(every, chosen, strict=True)
        )
        return [x for own in parts for x in own]

    def _fits(self, line: Line) -> bool:
        """True if the line fits the width or can be cut; branches of a choice are not cut."""
        match line.code:
            case Conditional(_, then, other):
                parts: tuple[Code, ...] = (then, other)
            case _:
                parts = (line.code,) if has_choice(line.code) else ()
        return all(len(f"{line.name} = {text(part)}") <= self.width for part in parts)

    def _joined(
        self, line: Line, following: Sequence[Entry], worlds: Sequence[Scenario]
    ) -> Entry | None:
        """Return the next line with a - t.scatter_add(d, i, s) as (a - t).scatter_add(d, i, -s).

        The base t must not be writable itself: it is an expanded number or an argument.
        """
        for reader, needs in following:
            added_to = scatter_parts(line.code)
            if added_to is None:
                return None
            target, source = added_to
            if self._made_of(target, worlds)[1].writable:
                return None
            for part in subexpressions(reader.code):
                match part:
                    case Binary("+" | "-" as op, total, Name(read)) if read == line.name:
                        pass
                    case Binary("+" as op, Name(read), total) if read == line.name:
                        pass
                    case _:
                        continue
                if any(self._shape(w, total) != self._shape(w, line.code) for w in worlds):
                    return None
                if not (self._is_float(total, worlds) and self._is_large(total, worlds)):
                    return None
                added = Unary("-", source) if op == "-" else source
                whole = with_adding(line.code, Binary(op, total, target), added)
                return replace(reader, code=replaced(reader.code, {part: whole})), needs
        return None

    def _shape(self, world: Scenario, code: Code) -> Shape | None:
        """Return the shape of a value, cached until a line is written."""
        key = id(world), code
        if key not in self._shapes:
            self._shapes[key] = world.shape(code)
        return self._shapes[key]

    def _of(self, name: str) -> WritableMemory:
        return self._memory.get(name, _OTHERS)

    def _reads(self, code: Code) -> Counter[int]:
        """Count how often one execution of the code reads each local tensor."""
        match code:
            case Name(name):
                return Counter(self._of(name).of)
            case Conditional(test, then, other):
                return self._reads(test) + (self._reads(then) | self._reads(other))
        parts = _read_parts(code)
        return sum((self._reads(part) for part in parts), Counter())

    def _made_of(
        self, code: Code, worlds: Sequence[Scenario], alone: bool = True
    ) -> tuple[Code, WritableMemory]:
        """Return the code in place, and the memory of its value.

        ``alone`` is false inside a branch of a choice.
        """
        match code:
            case Name(name):
                return code, self._of(name)
            case Conditional(test, then, other):
                holds = [(w, w.truth(test)) for w in worlds]
                one = self._made_of(then, [w for w, x in holds if x is not False], False)
                two = self._made_of(other, [w for w, x in holds if x is not True], False)
                return Conditional(test, one[0], two[0]), _either_memory(code, one[1], two[1])
        if not (_read_parts(code) or torch_op(code).makes):
            return code, _OTHERS
        match code:
            case Binary("*", Unary("-", a), b) if self._is_like(a, code, worlds):
                code = Unary("-", Binary("*", a, b))
        if self._name not in self._compared:
            fused = self._matrices_added(code, worlds, alone)
            fused = fused or self._product_added(code, worlds, alone)
            if fused is not None:
                return fused
        found = [self._made_of(part, worlds, alone) for part in code.parts()]
        left = iter(found)
        new = code.map(lambda _: next(left)[0])
        ways = [
            (self._asked_of(found[place][1]), place, make)
            for place, make in _ways(code)
            if self._may_write(code.parts()[place], code, found[place][1], worlds)
        ]
        for asked, place, make in sorted(ways, key=lambda way: bool(way[0])):
            made = make(self, new, alone) if not asked else self._unless(asked, code, new, place)
            if made is not None:
                # An out-of-place scatter copies its base first, and a choice is slow.
                chosen = isinstance(code, FunctionCall) and code.name == "torch.where"
                self.written += 2 if chosen or torch_op(code).at_positions else 1
                return made, self._new() if asked else found[place][1]
        return new, self._memory_of(code, [memory for _, memory in found])

    def _product_added(
        self, code: Code, worlds: Sequence[Scenario], alone: bool
    ) -> tuple[Code, WritableMemory] | None:
        """Return a + b*c in one call, written over a if possible."""
        match code:
            case Binary("+" | "-" as op, total, Binary("*", a, b)):
                pass
            case Binary("+" as op, Binary("*", a, b), total):
                pass
            case _:
                return None
        if not all(self._is_float(x, worlds) for x in (total, a, b)):
            return None
        product = Binary("*", a, b)
        if any(
            self._shape(w, product) != self._shape(w, code) for w in worlds
        ) or not self._is_large(code, worlds):
            return None
        before, written = list(self._before), self.written
        (x, memory), (left, one), (right, two) = (
            self._made_of(part, worlds, alone) for part in (total, a, b)
        )
        value = (Keyword("value", Literal("-1")),) if op == "-" else ()
        if self._may_write(total, code, memory, worlds) and not self._asked_of(memory):
            self.written += 2
            return MethodCall(x, "addcmul_", (left, right, *value)), memory
        if any(self._may_write(p, code, m, worlds) for p, m in ((a, one), (b, two))):
            self._before, self.written = before, written
            return None
        self.written += 1
        return FunctionCall("torch.addcmul", (x, left, right, *value)), self._new()

    def _matrices_added(
        self, code: Code, worlds: Sequence[Scenario], alone: bool
    ) -> tuple[Code, WritableMemory] | None:
        """Return a + b @ c in one call, written over a if possible."""
        made = product_added(code, self.numbers, self.grouped)
        if made is None or not self._is_large(code, worlds):
            return None
        for w in worlds:
            sides = self._shape(w, made.left), self._shape(w, made.right)
            if not made.fits(*sides) or self._shape(w, made.product) != self._shape(w, code):
                return None
        if not all(self._is_float(x, worlds) for x in (made.addend, made.left, made.right)):
            return None
        axes = len(self._shape(worlds[0], code) or ())
        parts = (made.addend, made.left, made.right)
        (total, memory), (left, _), (right, _) = (self._made_of(x, worlds, alone) for x in parts)
        self.written += 1
        if self._may_write(made.addend, code, memory, worlds) and not self._asked_of(memory):
            over = made.over(total, left, right, axes)
            if over is not None:
                return over, memory
        return made.call(total, left, right, axes), self._new()

    def _is_float(self, code: Code, worlds: Sequence[Scenario]) -> bool:
        there = bool(worlds) and all(self._shape(w, code) is not None for w in worlds)
        return there and is_float(code, self.floats)

    def _is_large(self, code: Code, worlds: Sequence[Scenario]) -> bool:
        return any(self.is_large(self._shape(w, code) or ()) for w in worlds)

    def _may_write(
        self, operand: Code, code: Code, memory: WritableMemory, worlds: Sequence[Scenario]
    ) -> bool:
        """True if the result of the code may overwrite the operand."""
        if not memory.writable or memory.of & self._busy or not self._is_float(operand, worlds):
            return False
        return self._is_like(operand, code, worlds)

    def _is_like(self, operand: Code, code: Code, worlds: Sequence[Scenario]) -> bool:
        """True if an operand has the same, large shape as the result."""
        same = all(self._shape(w, operand) == self._shape(w, code) for w in worlds)
        return same and self._is_large(code, worlds)

    def _asked_of(self, memory: WritableMemory) -> Needs:
        """Return the inputs whose gradients read the memory later, but not in the current line."""
        return tuple(dict.fromkeys(t for m in memory.of for t in self._asked.get(m, ())))

    def _unless(self, asked: Needs, code: Code, new: Code, place: int) -> Code | None:
        """Return x op y or f(x) if one of these gradients is needed, else the same written over x.

        If a gradient is needed, later lines read the operand; if not, it is dead.
        """
        if code is not self._whole:
            return None
        match new:
            case MethodCall(Name() as operand, name, ()) if torch_op(new).over == "_":
                over = MethodCall(operand, f"{name}_")
                return Conditional(any_wanted(asked, self.places), new, over)
        if not isinstance(new, Binary):
            return None
        parts = list(new.parts())
        other = parts[1 - place]
        parts[1 - place] = other if isinstance(other, Literal) else self.named(other, True)
        assert isinstance(parts[1 - place], Code)
        plain = Binary(new.op, *parts)
        written = _method_in_place(plain, place, _METHODS[new.op])
        return Conditional(any_wanted(asked, self.places), plain, written)

    def _memory_of(self, code: Code, parts: Sequence[WritableMemory]) -> WritableMemory:
        op = torch_op(code)
        if op.new or (isinstance(code, Unary | Binary) and code.op in _ARITHMETIC):
            return self._new()
        shared = frozenset().union(*(m.of for m in parts))
        whole = op.reshaped or (isinstance(code, Attribute) and code.name in ("mT", "T"))
        return WritableMemory(shared, whole and parts[0].writable)

    def _new(self) -> WritableMemory:
        self._made += 1
        return WritableMemory(frozenset((self._made,)), True)

    def named(self, code: Code, alone: bool) -> Name | None:
        """Return a name for the code, defined before the current line; None in a choice."""
        if isinstance(code, Name):
            return code
        if not alone:
            return None
        name = numbered("part", self.taken)
        self._before.append(Line(name, code, kept=False))
        return Name(name)


Make = Callable[[InPlaceWriter, Code, bool], Code | None]


def _ways(code: Code) -> Iterator[tuple[int, Make]]:
    """Yield (operand, rewrite) for each operand that the result may overwrite."""
    match code:
        case Binary("+" | "*" as op):
            yield 0, lambda writer, new, alone: _method_in_place(new, 0, _METHODS[op])
            yield 1, lambda writer, new, alone: _method_in_place(new, 1, _METHODS[op])
        case Binary("-" | "/" | "**" as op):
            yield 0, lambda writer, new, alone: _method_in_place(new, 0, _METHODS[op])
        case Unary("-"):
            yield 0, lambda writer, new, alone: MethodCall(new.parts()[0], "neg_")
        case MethodCall(_, name) if torch_op(code).over == "_":
            yield (
                0,
                lambda writer, new, alone: MethodCall(new.parts()[0], f"{name}_", new.parts()[1:]),
            )
        case FunctionCall("torch.where", (mask, _, Literal())):
            yield (
                1,
                lambda writer, new, alone: _masked_fill(new.parts()[1], Unary("~", mask), new, 2),
            )
        case FunctionCall("torch.where", (mask, Literal(), _)):
            yield 2, lambda writer, new, alone: _masked_fill(new.parts()[2], mask, new, 1)
        case FunctionCall(name) if torch_op(code).over == "_" and name.startswith("_"):
            yield 0, lambda writer, new, alone: FunctionCall(f"{name}_", new.parts())
        case FunctionCall() if torch_op(code).over:
            yield 0, _with_out_keyword


def _method_in_place(code: Code, place: int, name: str) -> Code:
    """Return x.name(y) for the operands of x op y."""
    parts = code.parts()
    return MethodCall(parts[place], name, (parts[1 - place],))


def _masked_fill(x: Code, mask: Code, code: Code, number: int) -> Code:
    """Return x.masked_fill_(mask, number); filling with 0 has a faster call."""
    if isinstance(mask, Unary) and isinstance(mask.operand, Unary):
        mask = mask.operand.operand
    filling = code.parts()[number]
    if filling != Literal("0"):
        return MethodCall(x, "masked_fill_", (mask, filling))
    kept = mask.operand if isinstance(mask, Unary) else Unary("~", mask)
    return FunctionCall("_masked_", (x, kept))


def _with_out_keyword(writer: InPlaceWriter, code: Code, alone: bool) -> Code | None:
    """f(x, .., out=x)"""
    assert isinstance(code, FunctionCall)
    first, *others = code.args
    name = writer.named(first, alone)
    if name is None:
        return None
    return FunctionCall(code.name, (name, *others, Keyword(torch_op(code).over, name)))


def _either_memory(code: Conditional, one: WritableMemory, two: WritableMemory) -> WritableMemory:
    """Return the memory of either branch."""
    if code.then is _NONE or code.other is _NONE:
        return two if code.then is _NONE else one
    return WritableMemory(one.of | two.of, one.writable and two.writable)


def _read_parts(code: Code) -> tuple[Code, ...]:
    """Return the parts from which the code reads more than shapes and dtypes."""
    match code:
        case Attribute(_, name) if name in _OF_ITSELF:
            return ()
        case MethodCall(_, "dim" | "numel" | "size", args):
            return args
        case MethodCall(_, _, args) if torch_op(code).makes:
            return args
    return code.parts()


def _compared(lines: Sequence[Line]) -> frozenset[str]:
    """The names that two tensors which are compared for equality are made of.

    x == x.amax() holds somewhere if what is written twice is computed alike: one call that
    multiplies and adds rounds once, and two round twice.
    """
    found: set[str] = set()
    for line in reversed(lines):
        alike = (
            part
            for part in subexpressions(line.code)
            if isinstance(part, Binary)
            and part.op in ("==", "!=")
            and not any(isinstance(side, Literal) for side in (part.left, part.right))
        )
        if line.name in found or any(alike):
            found |= {line.name, *names_in(line.code)}
    return frozenset(found)


def _names_with_elements(code: Code) -> Iterator[str]:
    """Yield the names from which the code reads more than shapes and dtypes."""
    if isinstance(code, Name):
        yield code.id
    for part in _read_parts(code):
        yield from _names_with_elements(part)

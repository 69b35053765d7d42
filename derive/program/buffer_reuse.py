"""Reuses buffers: a result overwrites an operand that is dead.

    part = e * c      part = e.mul_(c)
    a - rstd * x      a.addcmul_(rstd, x, value=-1)

Code that may be differentiated decides at run time: ``reuse.mul(e, c)``.

A tensor is overwritten if the lines themselves allocated it, if it certainly has the shape and
dtype of the result, and if no later line and no result reads its memory. An allocation costs more
than the arithmetic that fills it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from derive.program.cse import VALUE, Line, Needs, cut, numbered
from derive.program.dataflow import Aliases, Memory, Owner, names_read, read_parts
from derive.program.gemm_fusion import note_groups, product_added, without_test
from derive.program.gradient_predication import any_wanted
from derive.program.none_specialization import has_choice
from derive.program.shape_rules import Shape
from derive.program.torch_ir import (
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
    subexpressions,
)
from derive.program.torch_ops import torch_op
from derive.program.torch_printer import is_long
from derive.program.types import Types

_SCATTERS = (
    "scatter_add index_add rt.scatter_add rt.index_add rt.scatter_add_if_any rt.index_add_if_any"
).split()
_METHODS = {"+": "add_", "*": "mul_", "-": "sub_", "/": "div_", "**": "pow_"}


@dataclass(frozen=True)
class Savings:
    """What is saved by lines in place: allocations, and passes over the addends of products."""

    allocations: int = 0
    certain: int = 0
    """The allocations that are saved whichever branches run."""
    fused: int = 0

    def plus(self, allocations: int, fused: int = 0) -> Savings:
        """Return the savings with these in addition, which are certain."""
        both = self.allocations + allocations, self.certain + allocations
        return Savings(*both, self.fused + fused)


@dataclass
class InPlaceWriter:
    """Rewrites lines in place, one after another.

    ``results`` are the returned names, ``taken`` those in use. ``places`` has the positions of
    inputs among the arguments. ``is_large`` says which shapes are worth the rewrite.
    """

    results: Collection[str]
    places: Mapping[str, int]
    taken: set[str]
    is_large: Callable[[Shape], bool]
    write_over: Callable[[Code], Code] = lambda code: code
    """Returns the final form of a call that overwrites an operand."""
    numbers: Collection[str] = ()
    """The names that are not tensors."""
    grouped: set[str] = field(default_factory=set)
    """The names of tensors that may have a group of axes."""
    exact: bool = False
    """True if a difference of products must be 0 where they are equal."""
    saved: Savings = field(default_factory=Savings)
    _aliases: Aliases = field(default_factory=Aliases)
    _busy: set[Owner] = field(default_factory=set)
    """The tensors that the current line reads again or a later line reads."""
    _asked: dict[Owner, dict[str, None]] = field(default_factory=dict)
    """For each tensor, the inputs whose gradients alone read it after the current line."""
    _shapes: dict[tuple[int, Code], Shape | None] = field(default_factory=dict)
    _whole: Code | None = None
    _before: list[Line] = field(default_factory=list)
    _compared: frozenset[str] = frozenset()
    """The names of what must round as it is written."""
    _products: set[str] = field(default_factory=set)
    """The names of products."""
    _name: str = ""
    """The name of the line at hand."""

    def write(self, lines: Sequence[Line], worlds: Sequence[Types]) -> Iterator[Line]:
        """Yield the lines in place; each world assumes one set of optional tensors to be None."""
        lines = _sink_scatters(lines)
        self._compared = compared(lines)
        for n, line in enumerate(lines):
            here = [world for world in worlds if world.runs(line.needs)]
            for x in self._line(line, lines[n + 1 :], here):
                yield replace(x, needs=line.needs)
            for world in here:
                world.run([line])
            self._shapes.clear()
            note_groups(line, self.grouped)
            if self._is_product(line.code):
                self._products.add(line.name)

    def _line(self, line: Line, later: Sequence[Line], worlds: Sequence[Types]) -> list[Line]:
        """Return the line in place, after the lines that it needs."""
        self._busy = {m for name in self.results for m in self._aliases.of(Name(name)).owners}
        self._busy |= {m for m, times in self._reads(line.code).items() if times > 1}
        self._asked = {}
        for x in later:
            together = not set(x.needs).isdisjoint(line.needs)
            for name in names_read(x.code):
                for m in self._aliases.of(name).owners:
                    if together:
                        self._busy.add(m)
                    self._asked.setdefault(m, {}).update(dict.fromkeys(x.needs))
        self._whole, self._before, saved = line.code, [], self.saved
        self._name = line.name
        code, memory = self._made_of(line.code, worlds)
        made = line.having(code)
        if not self._fits(made):
            self._before, self.saved = [], saved
            made, memory = line, self._made_of(line.code, ())[1]
        self._aliases.known[line.name] = memory
        result: list[Line] = []
        for x in (*self._before, made):
            chosen = has_choice(x.code)
            result += [x] if chosen else cut([x], self.taken, later)
        return result

    def _fits(self, line: Line) -> bool:
        """True if the line is short or can be cut; branches of a choice are not cut."""
        match line.code:
            case Conditional(_, then, other) | MethodCall(Conditional(_, then, other), "to"):
                parts: tuple[Code, ...] = (then, other)
            case _:
                parts = (line.code,) if has_choice(line.code) else ()
        return not any(is_long(f"{line.name} = ", part) for part in parts)

    def _shape(self, world: Types, code: Code) -> Shape | None:
        """Return the shape of a value, cached until a line is written."""
        key = id(world), code
        if key not in self._shapes:
            self._shapes[key] = world.shape(code)
        return self._shapes[key]

    def _reads(self, code: Code) -> Counter[Owner]:
        """Count how often one execution of the code reads each local tensor."""
        match code:
            case Name():
                return Counter(self._aliases.of(code).owners)
            case Conditional(test, then, other):
                return self._reads(test) + (self._reads(then) | self._reads(other))
        return sum(map(self._reads, read_parts(code)), Counter())

    def _made_of(
        self, code: Code, worlds: Sequence[Types], alone: bool = True
    ) -> tuple[Code, Memory]:
        """Return the code in place, and the memory of its value.

        ``alone`` is false inside a branch of a choice.
        """
        match code:
            case Name():
                return code, self._aliases.of(code)
            case Conditional(test, then, other):
                holds = [(w, w.truth(test)) for w in worlds]
                certain = self.saved.certain
                one = self._made_of(then, [w for w, x in holds if x is not False], False)
                first = self.saved.certain
                self.saved = replace(self.saved, certain=certain)
                two = self._made_of(other, [w for w, x in holds if x is not True], False)
                self.saved = replace(self.saved, certain=min(first, self.saved.certain))
                whole = without_test(Conditional(test, one[0], two[0]))
                return whole, self._aliases.either(code, one[1], two[1])
        if not (read_parts(code) or torch_op(code).makes):
            return code, self._aliases.of(code)
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
            (self._asked_of(found[place][1]), place)
            for place in _writable_operands(code)
            if self._may_write(code.parts()[place], code, found[place][1], worlds)
        ]
        for asked, place in sorted(ways, key=lambda way: bool(way[0])):
            if asked:
                made = self._unless(asked, code, new, place)
            else:
                made = self._over(new, place, alone)
            if made is not None:
                # An out-of-place scatter copies its base first, and a choice is slow.
                chosen = isinstance(code, FunctionCall) and code.name == "torch.where"
                twice = chosen or torch_op(code).at_positions
                self.saved = self.saved.plus(2 if twice else 1)
                return made, self._aliases.fresh() if asked else found[place][1]
        return new, self._aliases.combined(code, [memory for _, memory in found])

    def _product_added(
        self, code: Code, worlds: Sequence[Types], alone: bool
    ) -> tuple[Code, Memory] | None:
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
        if op == "-" and (
            (self.exact and self._is_product(total)) or _contracts_what_it_reads(total, product)
        ):
            # a*b - c*d is 0 where both are equal, and W@x - sum(W)*x where W is diagonal, if
            # both products are rounded.
            return None
        if not self._is_like(product, code, worlds):
            return None
        before, saved = list(self._before), self.saved
        made = (self._made_of(part, worlds, alone) for part in (total, a, b))
        (x, memory), (left, one), (right, two) = made
        value = (Keyword("value", Literal("-1")),) if op == "-" else ()
        if self._may_write(total, code, memory, worlds) and not self._asked_of(memory):
            self.saved = self.saved.plus(2)
            return self.write_over(MethodCall(x, "addcmul_", (left, right, *value))), memory
        if any(self._may_write(p, code, m, worlds) for p, m in ((a, one), (b, two))):
            self._before, self.saved = before, saved
            return None
        self.saved = self.saved.plus(1)
        return FunctionCall("torch.addcmul", (x, left, right, *value)), self._aliases.fresh()

    def _is_product(self, code: Code) -> bool:
        """True for a product, and for the name of one."""
        product = isinstance(code, Binary) and code.op == "*"
        return product or (isinstance(code, Name) and code.id in self._products)

    def _matrices_added(
        self, code: Code, worlds: Sequence[Types], alone: bool
    ) -> tuple[Code, Memory] | None:
        """Return a + b @ c in one call, written over a if possible."""
        made = product_added(code, self.numbers, self.grouped)
        if made is None or not self._is_large(code, worlds):
            return None
        for w in worlds:
            sides = self._shape(w, made.left), self._shape(w, made.right)
            if made.grouped and len(self._shape(w, made.addend) or ()) != 1:
                return None
            if not made.fits(*sides) or self._shape(w, made.product) != self._shape(w, code):
                return None
        if not all(self._is_float(x, worlds) for x in (made.addend, made.left, made.right)):
            return None
        axes = len(self._shape(worlds[0], code) or ())
        parts = (made.addend, made.left, made.right)
        (total, memory), (left, _), (right, _) = (self._made_of(x, worlds, alone) for x in parts)
        self.saved = self.saved.plus(1, fused=1)
        if self._may_write(made.addend, code, memory, worlds) and not self._asked_of(memory):
            over = made.over(total, left, right, axes)
            if over is not None:
                return self.write_over(over), memory
        return made.call(total, left, right, axes), self._aliases.fresh()

    def _is_float(self, code: Code, worlds: Sequence[Types]) -> bool:
        return bool(worlds) and all(w.is_float(code) for w in worlds)

    def _is_large(self, code: Code, worlds: Sequence[Types]) -> bool:
        return any(self.is_large(self._shape(w, code) or ()) for w in worlds)

    def _may_write(
        self, operand: Code, code: Code, memory: Memory, worlds: Sequence[Types]
    ) -> bool:
        """True if the result of the code may overwrite the operand."""
        if not memory.writable or memory.owners & self._busy or not self._is_float(operand, worlds):
            return False
        return self._is_like(operand, code, worlds)

    def _is_like(self, operand: Code, code: Code, worlds: Sequence[Types]) -> bool:
        """True if an operand has the same, large shape as the result."""
        same = all(self._shape(w, operand) == self._shape(w, code) for w in worlds)
        return same and self._is_large(code, worlds)

    def _asked_of(self, memory: Memory) -> Needs:
        """Return the inputs whose gradients read the memory later, but not in the current line."""
        owners = sorted(memory.owners, key=str)
        return tuple(dict.fromkeys(t for m in owners for t in self._asked.get(m, ())))

    def _over(self, code: Code, place: int, alone: bool) -> Code | None:
        made = self._in_place(code, place, alone)
        return made and self.write_over(made)

    def _in_place(self, code: Code, place: int, alone: bool) -> Code | None:
        match code:
            case Binary(op):
                parts = code.parts()
                return MethodCall(parts[place], _METHODS[op], (parts[1 - place],))
            case Unary(_, operand):
                return MethodCall(operand, "neg_")
            case MethodCall(operand, name, args):
                return MethodCall(operand, f"{name}_", args)
            case FunctionCall("torch.where", (mask, then, other)):
                chosen = (then, Unary("~", mask), other) if place == 1 else (other, mask, then)
                return _masked_fill(*chosen)
            case FunctionCall(name, args) if torch_op(code).over == "_":
                return FunctionCall(f"{name}_", args)
            case FunctionCall(name, (first, *others)):
                out = self.named(first, alone)
                keyword = torch_op(code).over
                return out and FunctionCall(name, (out, *others, Keyword(keyword, out)))
        return None

    def _unless(self, asked: Needs, code: Code, new: Code, place: int) -> Code | None:
        """Return x op y or f(x) if one of these gradients is needed, else the same written over x.

        If a gradient is needed, later lines read the operand; if not, it is dead.
        """
        if code is not self._whole:
            return None
        plain = new
        match new:
            case MethodCall(Name(), _, ()):
                pass
            case Binary(op):
                parts = list(new.parts())
                other = parts[1 - place]
                if not isinstance(other, Literal):
                    parts[1 - place] = self.named(other, True) or other
                plain = Binary(op, *parts)
            case _:
                return None
        written = self._over(plain, place, False)
        assert written is not None
        return Conditional(any_wanted(asked, self.places), plain, written)

    def named(self, code: Code, alone: bool) -> Name | None:
        """Return a name for the code, defined before the current line; None in a choice."""
        if isinstance(code, Name):
            return code
        if not alone:
            return None
        name = numbered(VALUE, self.taken)
        self._before.append(Line(name, code, kept=False))
        return Name(name)


def _contracts_what_it_reads(total: Code, product: Code) -> bool:
    """True if the total has a contraction of two tensors that the product reads too."""
    read = set(names_in(product))
    return any(
        len(read.intersection(names_in(part))) > 1
        for part in subexpressions(total)
        if torch_op(part).contracts or (isinstance(part, Binary) and part.op == "@")
    )


def where_allowed(code: Code) -> Code:
    """Return a call that overwrites an operand as one that does so only where it may.

    x.mul_(y) is reuse.mul(x, y), and torch.softmax(x, 1, out=x) is reuse.softmax(x, 1).
    """
    match code:
        case MethodCall(x, name, args):
            return FunctionCall(f"reuse.{name.removesuffix('_')}", (x, *args))
        case FunctionCall(name, (*args, Keyword(_, _))):
            return FunctionCall(f"reuse.{name.rpartition('.')[2]}", tuple(args))
    # A function of the runtime decides itself.
    return code


def in_place_operation(code: Code) -> Code | None:
    """Return the operation that a call in place computes: x*y of x.mul_(y), -x of x.neg_()."""
    match code:
        case MethodCall(x, "neg_", ()):
            return Unary("-", x)
        case MethodCall(x, name, (y,)) if name in _METHODS.values():
            (op,) = (op for op, method in _METHODS.items() if method == name)
            return Binary(op, x, y)
    return None


def _writable_operands(code: Code) -> tuple[int, ...]:
    """Return the positions of the operands that the result may overwrite."""
    match code:
        case Binary("+" | "*"):
            return 0, 1
        case Binary("-" | "/" | "**") | Unary("-"):
            return (0,)
        case FunctionCall("torch.where", (_, then, other)):
            return (1,) if isinstance(other, Literal) else (2,) if isinstance(then, Literal) else ()
        case MethodCall():
            return (0,) if torch_op(code).over == "_" else ()
        case FunctionCall(name) if over := torch_op(code).over:
            return (0,) if over != "_" or name.startswith("rt.") else ()
    return ()


def _masked_fill(x: Code, mask: Code, filling: Code) -> Code:
    """Return x.masked_fill_(mask, number); filling with 0 has a faster call."""
    if isinstance(mask, Unary) and isinstance(mask.operand, Unary):
        mask = mask.operand.operand
    if filling != Literal("0"):
        return MethodCall(x, "masked_fill_", (mask, filling))
    kept = mask.operand if isinstance(mask, Unary) else Unary("~", mask)
    return FunctionCall("rt.keep_where_", (x, kept))


def _sink_scatters(lines: Sequence[Line]) -> list[Line]:
    """Return the lines, each scatter moved to just before its only reader."""
    result = list(lines)
    for line in lines:
        call = line.code
        is_scatter = isinstance(call, MethodCall | FunctionCall) and call.name in _SCATTERS
        if line.kept or not is_scatter:
            continue
        at = result.index(line)
        readers = [n for n, x in enumerate(result) if line.name in names_in(x.code)]
        once = len(readers) == 1 and names_in(result[readers[0]].code).count(line.name) == 1
        if not once or result[readers[0]].needs != line.needs:
            continue
        between = result[at + 1 : readers[0]]
        if not {x.name for x in between} & {line.name, *names_in(line.code)}:
            result[at : readers[0]] = [*between, line]
    return result


def compared(lines: Sequence[Line]) -> frozenset[str]:
    """The names that values which are compared for equality are made of.

    x == x.amax() holds somewhere if what is written twice is computed alike, and a*b - c*d == 0
    where both products are equal: one call that multiplies and adds rounds once, and two round
    twice.
    """
    found: set[str] = set()
    for line in reversed(lines):
        whole = line.name in found
        for part in subexpressions(line.code):
            if whole or (isinstance(part, Binary) and part.op in ("==", "!=")):
                found |= {line.name, *names_in(part)}
    return frozenset(found)

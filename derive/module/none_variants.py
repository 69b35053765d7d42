"""Specialize code for optional tensors that may be None.

Each line that reads such a tensor becomes a conditional, with a simplified version for None:

    part = xhat if weight is None else weight * xhat

A name whose value is a plain number in that case is None too. If a body needs the tensor itself,
it starts with a number expanded to the shape of the tensor, which takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.expr import Num
from derive.lowering.groups import groups_of
from derive.module.checks import constant_text, shape_of_absent
from derive.notation import operation
from derive.notation.operation import Operation, Tensor
from derive.program.aliasing import unalias_outputs
from derive.program.argument_types import backward_types, forward_types
from derive.program.cse import VALUE, Line, is_brief, numbered, renumbered
from derive.program.decided_tests import without_decided_tests
from derive.program.mixed_precision import LOW, WIDE, Precision
from derive.program.none_specialization import (
    Absence,
    Number,
    TensorNeeded,
    Uniform,
    comes_of,
    expanded,
    flattens,
    has_choice,
    optional_operands_last,
)
from derive.program.program import Program
from derive.program.torch_ir import (
    DTYPES,
    NONE,
    Attribute,
    Code,
    Conditional,
    Literal,
    MethodCall,
    Name,
    Subscript,
    is_none,
    literal,
    names_in,
    replaced,
    subexpressions,
    text,
)
from derive.program.torch_printer import fits, is_long
from derive.program.types import ABSENT, Types


def with_absent(op: Operation, program: Program) -> Program:
    """Return the program in which each optional tensor may be None."""
    optional = [t for t in op.inputs if t.default is not None]
    if not optional:
        return program
    required = (t for t in op.inputs if t.kind == "float" and t.default is None)
    like = Name(next(required, optional[0]).name)
    # The backward reads a saved value at its own axes.
    results = (*program.outputs, *program.statistics)
    forward = _VariantBody(op, forward_types(op), like, program.forward_precision, results)
    composed = replace(forward, precision=program.composed_precision)
    second_forward = composed.lines(program.composed, optional)
    first = forward.lines(program.forward, optional)
    cotangents = (Name(name) for _, name in program.cotangents if name is not None)
    like = next(cotangents, like)
    filled: list[Tensor] = []

    def pulled(lines: tuple[Line, ...], precision: Precision) -> tuple[Line, ...]:
        types = backward_types(op, replace(program, backward=lines))
        body = _VariantBody(op, types, like, precision, tuple(program.gradients.values()))
        made = body.lines(lines, optional)
        made += _none_where_absent(op, program, made)
        filled.extend(t for t in body.filled if t not in filled)
        return tuple(made)

    second = pulled(program.backward, program.backward_precision)
    order = program.first_order, program.first_order_precision
    first_order = pulled(*order) if program.first_order else ()
    shapes = [Line(f"{t.name}_shape", shape_of_absent(op, t)) for t in filled]
    kept = [line.name for line in shapes]
    return replace(
        program,
        forward=_apart(op, program, first),
        composed=_apart(op, program, second_forward),
        backward=second,
        first_order=first_order,
        setup=(*program.setup, *shapes),
        kept_groups=(*program.kept_groups, *kept),
        kept_shapes=tuple(t for t in program.kept_shapes if f"{t}_shape" not in kept),
    )


def _apart(op: Operation, program: Program, lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines with each output in its own memory: x*w is x itself where w is None."""
    if program.rearranges:
        return tuple(lines)
    return tuple(unalias_outputs(lines, program.outputs, [t.name for t in op.inputs]))


def with_decided_tests(op: Operation, program: Program) -> Program:
    """Return the program without the tests that the bounds of the parameters decide."""
    numbers = (p for p in op.parameters if isinstance(p, operation.Number))
    bounds = {p.name: p.bounds for p in numbers if p.bounds}
    if not bounds:
        return program
    results = (*program.outputs, *program.statistics, *program.gradients.values())
    return program.in_bodies(lambda lines: without_decided_tests(lines, bounds, results))


def _none_where_absent(op: Operation, program: Program, lines: Sequence[Line]) -> Iterator[Line]:
    """Yield lines that reset the gradient of an optional tensor to None if it is not requested.

    Other gradients may need its value, so its line can run without the request.
    """
    for place, t in enumerate(op.inputs):
        name = program.gradients.get(t.name)
        needs = next((x.needs for x in reversed(lines) if x.name == name), ())
        if t.default is not None and set(needs) - {t.name}:
            assert name is not None
            asked = Subscript(Attribute(Name("ctx"), "needs_input_grad"), (literal(place),))
            yield Line(name, Conditional(asked, Name(name), NONE), needs=tuple(program.gradients))


@dataclass
class _VariantBody:
    """A body: its context, a tensor with its dtype, its precision, and its results."""

    op: Operation
    trace: Types
    like: Code
    precision: Precision
    results: Sequence[str]

    def __post_init__(self) -> None:
        self.filled: list[Tensor] = []
        """The optional tensors whose values are needed as tensors."""
        self.available: list[str] = []
        """The tensors whose shapes the current line may read."""
        self.taken = {x.name for x in (*self.op.inputs, *self.op.parameters)}

    def lines(self, lines: Sequence[Line], optional: Sequence[Tensor]) -> list[Line]:
        """Return the lines, valid if each of the tensors is None."""
        names = {t.name for t in optional}
        made = _optional_terms_last(lines, names)
        self.taken |= {name for x in made for name in (x.name, *names_in(x.code))}
        own = [line for line in made if line.kept]
        for t in optional:
            if any(x.needs != (t.name,) and t.name in names_in(x.code) for x in made):
                try:
                    made = self._without(made, t, names)
                except TensorNeeded:
                    made = self._filled(made, t, t.name)
        own += [line for line in made if line.name in names]
        kept = {line.name for line in own}
        reserved = self.taken - {line.name for line in made if line.name not in kept}
        return renumbered(made, own, reserved)

    def _without(self, lines: Sequence[Line], t: Tensor, optional: set[str]) -> list[Line]:
        """Return the lines, valid if t is None; raise `TensorNeeded` if t is needed."""
        given, there = (Types(self.trace.letters, self.trace.known) for _ in range(2))
        full = numbered(f"full_{t.name}", self.taken)
        given.known[full] = there.known[full] = given.known.get(t.name)
        there.known[t.name] = ABSENT
        numbers: dict[str, Number] = {t.name: _default_number(t)}
        absence = Absence(numbers, self.like, there, given, self._wide(), self.available)
        choice = _Choice(t, absence, optional, self.taken)
        last = {line.name: n for n, line in enumerate(lines)}
        whole = None if t.name in last else Name(full)
        made: list[Line] = []
        for n, line in enumerate(lines):
            found: Code | Uniform = line.code
            self.available[:] = self._before(lines, n)
            # Lines needed only for the gradient of t run only if t is given.
            if line.needs != (t.name,) and absence.reads(line.code):
                line, found = _simplified_line(absence, line, t, whole)
                made += choice.lines(line, found)
            else:
                made.append(line)
            given.run([line])
            there.known[line.name] = given.known[line.name]
            numbers.pop(line.name, None)
            if isinstance(found, Uniform):
                if line.name in self.results and last[line.name] == n:
                    raise TensorNeeded
                value = found.value
                there.known[line.name] = there.of(value) if isinstance(value, Code) else ABSENT
                numbers[line.name] = Name(line.name) if isinstance(value, Code) else value
        if any(full in names_in(line.code) for line in made):
            return self._filled(made, t, full)
        return made

    def _before(self, lines: Sequence[Line], n: int) -> Iterator[str]:
        """Yield the tensors given or computed before line n, those that it reads first."""
        line, needs = lines[n], set(lines[n].needs)
        tensors = (x for x in lines[:n] if not (_is_pair(x.code) or _may_be_none(x.code)))
        flat = set[str]()
        for x in lines[:n]:
            reshaped = isinstance(x.code, MethodCall) and x.code.name == "reshape"
            if flattens(x.code) or (not reshaped and flat & set(names_in(x.code))):
                flat.add(x.name)
        earlier = (x.name for x in tensors if needs <= {*x.needs} and x.name not in flat)
        made = dict.fromkeys(name for name in earlier if name not in self.results)
        read = dict.fromkeys(names_in(line.code))
        inputs = self.op.inputs
        others = {x.name for x in lines}
        if any(t.name in others and groups_of(t) for t in inputs):
            # The groups of the others are one axis in their types, but not in their shapes.
            others |= {t.name for t in inputs if groups_of(t)}
        others |= {t.name for t in inputs if t.default is not None}
        yield from (name for name in read if name in made or name not in others)
        yield from (name for name in made if name not in read)

    def _wide(self) -> Code | None:
        """Return the dtype name for everything but products, if products have another."""
        precision = self.precision
        named = precision.has_products and (precision.broad or WIDE.id in precision.names)
        return WIDE if named else None

    def _filled(self, lines: Sequence[Line], t: Tensor, name: str) -> list[Line]:
        """Return the lines after one that fills the tensor if it is None, under ``name``."""
        self.filled.append(t)
        reading = [line.needs for line in lines if name in names_in(line.code)]
        needs = tuple(x.name for x in self.op.inputs if any(x.name in own for own in reading))
        shape: Code = Name(f"{t.name}_shape") if needs else shape_of_absent(self.op, t)
        number = Literal(constant_text(t.default))
        dtype = LOW if t.name in self.precision.narrow else self._wide()
        dtype = DTYPES.get(t.kind, dtype)
        constant = expanded(self.like, number, shape, dtype)
        whole = Conditional(is_none(t.name), constant, Name(t.name))
        made = list(lines)
        # In a forward, insert it first: later lines may reshape the inputs whose shape it reads.
        at = next((n for n, x in enumerate(made) if needs and name in names_in(x.code)), 0)
        made.insert(at, Line(name, whole, kept=name == t.name, needs=needs))
        return made


def _simplified_line(
    absence: Absence, line: Line, t: Tensor, whole: Code | None
) -> tuple[Line, Code | Uniform]:
    """Return the line, and its simplified code without t; it reads ``whole`` if it needs t."""
    try:
        return line, absence.of_line(line.code)
    except TensorNeeded:
        if whole is None or t.name not in names_in(line.code):
            raise
        line = replace(line, code=replaced(line.code, {Name(t.name): whole}))
        return line, absence.of_line(line.code)


def _cast_once(code: Code) -> Code:
    """Return ``a.to(d) if c else b.to(d)`` as ``(a if c else b).to(d)``."""
    match code:
        case Conditional(test, MethodCall(a, "to", given), MethodCall(b, "to", other)) if (
            given == other
        ):
            return MethodCall(Conditional(test, a, b), "to", given)
    return code


@dataclass(frozen=True)
class _Choice:
    """Lines that branch on whether a tensor is None."""

    tensor: Tensor
    absence: Absence
    optional: set[str]
    taken: set[str]

    def lines(self, line: Line, found: Code | Uniform) -> list[Line]:
        """Return the line, preceded by a line for each conditional part."""
        made = self._lines(line, found)
        return [replace(x, code=_cast_once(x.code), needs=line.needs) for x in made]

    def _lines(self, line: Line, found: Code | Uniform) -> list[Line]:
        code, test = line.code, is_none(self.tensor.name)
        if isinstance(found, Uniform):
            value = found.value if isinstance(found.value, Code) else NONE
            # The number, or the tensor that replaces one, has axes of its own.
            whole = replace(line, code=Conditional(test, value, code), type=None)
            if value == code:
                return [line]
            return [whole] if _fits(whole) else self._shortened(whole, value)
        if found == code:
            return [line]
        sites = {site: left for site, left in self.absence.sites(code) if left != site}
        others = self.optional - {self.tensor.name}
        chooses = has_choice(code)
        whole = replace(line, code=Conditional(test, found, code))
        alone = list(sites) == [code] or not (chooses or others.intersection(names_in(code)))
        shorter = self._shortened(whole, found) if list(sites) == [code] else []
        if shorter and _is_one_line(shorter[-1]) and not _is_one_line(whole):
            return shorter
        if alone and _fits(whole):
            return [whole]
        if shorter:
            return shorter
        before: list[Line] = []
        new: dict[Code, Code] = {}
        for site, left in sites.items():
            if chooses:
                new[site] = Conditional(test, left, site)
                continue
            part = Line(numbered(VALUE, self.taken), Conditional(test, left, site), kept=False)
            before += [part] if _fits(part) else self._shortened(part, left)
            new[site] = Name(part.name)
        return [*before, replace(line, code=replaced(code, new))]

    def _shortened(self, line: Line, found: Code) -> list[Line]:
        """Return the conditional with a name for the largest expression in both branches."""
        assert isinstance(line.code, Conditional)
        there = set(subexpressions(line.code.other))
        both = [c for c in subexpressions(found) if c in there]
        shared = [c for c in both if c is found or not is_brief(c)]
        if isinstance(found, Name) or not shared:
            return [line]
        largest = max(shared, key=lambda c: len(text(c)))
        part = Line(numbered(VALUE, self.taken), largest, kept=False)
        return [part, replace(line, code=replaced(line.code, {largest: Name(part.name)}))]


def _optional_terms_last(lines: Sequence[Line], optional: set[str]) -> list[Line]:
    """Move operands that depend only on optional tensors to the end of sums and products."""
    alone = set(optional)
    made = []
    for line in lines:
        made.append(replace(line, code=optional_operands_last(line.code, alone)))
        if comes_of(line.code, alone):
            alone.add(line.name)
        elif line.name not in optional:
            alone.discard(line.name)
    return made


def _default_number(t: Tensor) -> Number:
    """Return the number that None means."""
    match t.default:
        case Num(value):
            return value
        case Fraction() | int() as value:
            return Fraction(value)
    raise TensorNeeded


def _is_pair(code: Code) -> bool:
    """True for an extremum with its position, a pair that has no shape."""
    if isinstance(code, Conditional):
        return _is_pair(code.then) or _is_pair(code.other)
    return isinstance(code, MethodCall) and code.name in ("max", "min") and bool(code.args)


def _may_be_none(code: Code) -> bool:
    """True for a choice of which one branch is None."""
    return isinstance(code, Conditional) and NONE in (code.then, code.other)


def _is_one_line(line: Line) -> bool:
    return fits(f"{line.name} = ", line.code)


def _fits(line: Line) -> bool:
    return not is_long(f"{line.name} = ", line.code)

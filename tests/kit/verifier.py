"""What holds between two passes: closed indices, names written once, names known, lines typed."""

from collections.abc import Iterable, Iterator, Sequence

from derive.algebra.expr import Expr, Index, Size, accesses, free_indices, walk
from derive.algebra.poly import Poly, atom
from derive.calculus.lets import Let
from derive.calculus.unit import Unit
from derive.notation.operation import Operation
from derive.program.argument_types import SizeFormulas, backward_types, forward_types
from derive.program.cse import Line
from derive.program.program import Program
from derive.program.shape_rules import TensorType, formula
from derive.program.torch_ir import Code, Dim, names_in, subexpressions, text
from derive.program.types import ABSENT, Types


def faults_of_unit(unit: Unit) -> list[str]:
    """The faults of the definitions and formulas of a unit."""
    op, backward = unit.operation, unit.backward
    formulas = [a.as_let() for a in (*backward.adjoints, *backward.gradients)]
    known = {x.name for x in (*op.inputs, *op.parameters, *op.equations)}
    known |= {cotangent for _, cotangent in backward.cotangents}
    lets = list(unit.lets)
    found = _written_twice(let.name for let in (*lets, *formulas))
    for let in lets:
        found += _faults_of_let(let, known | {x.name for x in lets})
    known |= {x.name for x in lets}
    order = [*formulas]
    for let in order:
        found += _faults_of_let(let, known | {x.name for x in order})
    return found


def _written_twice(names: Iterable[str]) -> list[str]:
    every = list(names)
    return [f"{name} is written twice" for name in sorted({n for n in every if every.count(n) > 1})]


def _faults_of_let(let: Let, known: set[str]) -> list[str]:
    parts = [let.body] if let.condition is None else [let.body, let.condition]
    bound = {*let.formals, *let.binders}
    free = {i for part in parts for i in free_indices(part)} - bound
    found = [f"{let.name} has the free index {i.name}" for i in free if isinstance(i, Index)]
    read = {a.tensor for part in parts for e in walk(part) for a in accesses(e)}
    return found + [f"{let.name} reads {name}" for name in sorted(read - known)]


HELPERS = {"ctx", "torch", "math", "low", "wide", "dtype"}


def faults_of_program(program: Program) -> list[str]:
    """The faults of the bodies of a program."""
    shapes = {f"{name}_shape" for name in (*program.inputs, *program.kept_shapes)}
    given = {*program.inputs, *program.parameters} | HELPERS
    kept = {line.name for line in program.setup} | shapes
    back = {s.name for s in program.saved} | {*program.kept_parameters, *program.pulled.values()}
    back |= {c for _, c in program.cotangents if c is not None} | HELPERS | kept
    found = _faults_of_lines([(x.name, x.code) for x in program.forward], given)
    for body in (program.backward, program.first_order):
        found += _faults_of_lines([(x.name, x.code) for x in body], back)
    made = {line.name for line in program.forward}
    found += [f"{name} is not computed" for name in program.outputs if name not in made]
    if program.backward:
        last = {x.name for x in program.backward}
        found += [f"{n} is not computed" for n in program.gradients.values() if n not in last]
    return found


def _faults_of_lines(lines: Sequence[tuple[str, Code]], given: set[str]) -> list[str]:
    known, found = set(given), []
    for name, code in lines:
        found += [f"{name} reads {n}" for n in dict.fromkeys(names_in(code)) if n not in known]
        sizes = [part for part in subexpressions(code) if isinstance(part, Dim)]
        found += [f"{name} has the open size {size.extent}" for size in sizes]
        known.add(name)
    return found


def faults_of_types(op: Operation, program: Program, optional: Sequence[str] = ()) -> list[str]:
    """The lines of the bodies without a type, or with one that is not that of the code.

    The optional tensors are all given, one of them absent, or all.
    """
    found: list[str] = []
    for absent in dict.fromkeys(((), *((name,) for name in optional), tuple(optional))):
        gone = dict.fromkeys(absent, ABSENT)
        for lines in (program.forward, program.composed):
            types = forward_types(op)
            types.known |= gone
            found += _faults_of_types(op, types, lines, absent)
        for body in (program.backward, program.first_order):
            types = backward_types(op, program)
            types.known |= gone
            found += _faults_of_types(op, types, body, absent)
    return found


def _faults_of_types(
    op: Operation, types: Types, lines: Sequence[Line], absent: Sequence[str]
) -> Iterator[str]:
    sizes = SizeFormulas(op)
    for line in lines:
        if line.needs and set(line.needs) <= set(absent):
            continue
        value, where = types.of(line.code), f"{line.name} = {text(line.code)}, without {absent}"
        if value is None or (isinstance(value, TensorType) and value.kind is None):
            yield f"{where} has no type"
        if line.type is not None and isinstance(value, TensorType):
            if not _is_same(sizes, line.type, value):
                yield f"{where} is {value}, not {line.type}"
        types.run([line])


def _is_same(sizes: SizeFormulas, one: TensorType, other: TensorType) -> bool:
    """True if the types are equal, or become so where sizes are replaced by what they follow from.

    A size may follow from others, and these from it.
    """

    def opened(e: Expr) -> Poly:
        defined = sizes.defined.get(e.extent) if isinstance(e, Size) else None
        return atom(e) if defined is None else defined

    def forms(n: Poly) -> set[Poly]:
        found = [n]
        for _ in range(_STEPS):
            found.append(formula(found[-1], opened))
        return set(found)

    if one.kind != other.kind or len(one.shape) != len(other.shape):
        return False
    pairs = zip(one.shape, other.shape, strict=True)
    return all(a is b or forms(a) & forms(b) for a, b in pairs)


_STEPS = 3

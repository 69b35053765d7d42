"""The cost of an operation's code, as formulas in the sizes.

- flops: 2 for each product in a contraction, 1 for each element that any other operation computes
  or a reduction reads; 0 for data movement.
- passes: operations that read or write a tensor with as many axes as the largest input or output,
  once each. A view is no operation.
- the largest intermediate: the most elements that an operation writes, results excluded.
- saved bytes: tensors saved for the backward, floats counted as float32.

An axis of fixed size does not count as an axis, and a group counts as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from derive.algebra.expr import Access, Expr, Index, free_indices, walk
from derive.algebra.poly import ZERO, Poly, add, scale
from derive.cost.flop_trace import ComputedTensor, Step, Trace
from derive.cost.size_formula import Amount, covers, degree
from derive.notation.operation import Operation
from derive.program.argument_types import (
    SizeFormulas,
    backward_values,
    given_values,
    result_types,
    tensor_types,
)
from derive.program.cse import Line
from derive.program.program import Program
from derive.program.shape_rules import TensorType, elements
from derive.program.torch_ir import names_in

_BYTES = {"float": 4, "int": 8, "bool": 1}


@dataclass(frozen=True)
class Work:
    """The cost of one direction, forward or backward.

    ``flops``: floating-point operations; ``contracted``: those in contractions. ``passes``:
    operations on tensors with as many axes as the largest input or output. ``largest``: the element
    counts of the largest intermediates; several, if the sizes decide which one is the largest.
    """

    flops: Amount
    contracted: Amount
    passes: int
    largest: tuple[Amount, ...]


@dataclass(frozen=True)
class Wide:
    """An intermediate with more axes than anything in the equations, and the equation it is for."""

    owner: str
    size: Amount
    axes: int


@dataclass(frozen=True)
class Costs:
    """The cost of the generated code: forward, backward (all gradients), and saved tensors."""

    letters: tuple[str, ...]
    forward: Work
    backward: Work
    saved: tuple[tuple[str, Amount], ...]
    """(tensor, its bytes)."""
    own: tuple[str, ...]
    """The saved tensors that are neither inputs nor outputs: memory held for the backward alone."""
    wide: tuple[Wide, ...]
    follows: tuple[tuple[str, Amount], ...]
    """Sizes that follow from others, in order."""

    @property
    def saved_bytes(self) -> Amount:
        """The bytes of all saved tensors."""
        return self._total(name for name, _ in self.saved)

    @property
    def own_bytes(self) -> Amount:
        """The bytes of the saved tensors that are neither inputs nor outputs."""
        return self._total(self.own)

    def _total(self, names: Iterable[str]) -> Amount:
        held = dict(self.saved)
        return Amount(add(ZERO, *(held[name].value for name in names)), self.letters)

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return these sizes, and all sizes that follow from them."""
        found = dict(given)
        for letter, size in self.follows:
            if letter not in found and size.needs() <= set(found):
                found[letter] = size.at(found)
        return found


def costs_of(op: Operation, program: Program) -> Costs:
    """Return the costs of one option, by abstract execution of its code."""
    sizes, letters = SizeFormulas(op), _size_letters(op)
    types, inputs = tensor_types(op), [t.name for t in op.inputs]
    forward = forward_trace(op)
    forward.run(program.forward)
    results = result_types(op, program)
    available = types | results
    backward = backward_trace(op, program)
    lines, gradients = program.backward, program.gradients.values()
    backward.run(lines)
    known = {e.name for e in op.equations}
    full = max(_rank(available[name].shape) for name in (*inputs, *results))
    need = max(full, *(_rank(t.shape) for t in types.values()), *_written_ranks(op, sizes))
    pulled = {*gradients, *(line.name for line in lines if line.name.startswith("grad_"))}
    wide = [*_wide(forward.steps, program.forward, known, need, letters)]
    wide += _wide(backward.steps, lines, pulled, need, letters)
    held = {s.name: available[s.name] for s in program.saved}
    return Costs(
        letters,
        _work(forward, program.outputs, full, letters),
        _work(backward, gradients, full, letters),
        tuple((name, Amount(_bytes(t), letters)) for name, t in held.items()),
        tuple(name for name in held if name not in (*inputs, *program.outputs)),
        () if op.stable else tuple(dict.fromkeys(wide)),
        tuple((name, Amount(size, letters)) for name, size in sizes.defined.items()),
    )


def forward_trace(op: Operation) -> Trace:
    """Return a trace with the inputs of the forward."""
    return Trace(SizeFormulas(op).letters, given_values(op))


def backward_trace(op: Operation, program: Program) -> Trace:
    """Return a trace with the inputs of the backward."""
    return Trace(SizeFormulas(op).letters, backward_values(op, program))


def _bytes(t: TensorType) -> Poly:
    return scale(elements(t.shape), _BYTES[t.kind or "float"])


def _rank(shape: Iterable[Poly]) -> int:
    """The number of axes of a tensor with this shape."""
    return degree(elements(shape))


def _size_letters(op: Operation) -> tuple[str, ...]:
    """The letters of sizes in order of presentation: outputs first, then all others."""
    outputs = [i for e in op.equations if e.name in op.outputs for i in e.axes]
    inputs = [i for t in op.inputs for i in t.axes]
    axes = (*outputs, *inputs, *(i for e in op.equations for i in e.axes))
    found = [i.extent for axis in axes for i in walk(axis) if isinstance(i, Index)]
    return tuple(dict.fromkeys((*found, *(e.name for e in op.extents))))


# -------------------------------------------------------------------- sums over the steps


def _work(trace: Trace, results: Iterable[str], full: int, letters: tuple[str, ...]) -> Work:
    steps = trace.steps
    found = (trace.known[name] for name in results)
    ends = {x.step for x in found if isinstance(x, ComputedTensor)}
    between = (elements(s.result) for n, s in enumerate(steps) if n not in ends)
    return Work(
        Amount(add(ZERO, *(s.flops for s in steps)), letters),
        Amount(add(ZERO, *(s.flops for s in steps if s.contracts)), letters),
        sum(any(_rank(x) >= full for x in (*s.reads, s.result)) for s in steps),
        _largest(between, letters),
    )


def _largest(found: Iterable[Poly], letters: tuple[str, ...]) -> tuple[Amount, ...]:
    """The maximal sizes: those that no other size covers for all values of the letters."""
    distinct = list(dict.fromkeys(p for p in found if p.terms))
    kept = [p for p in distinct if not any(covers(q, p) for q in distinct if q is not p)]
    kept.sort(key=lambda p: (-degree(p), str(Amount(p, letters))))
    return tuple(Amount(p, letters) for p in kept)


# -------------------------------------------------------------------- intermediates of many axes


def _written_ranks(op: Operation, sizes: SizeFormulas) -> Iterable[int]:
    """The number of axes of each condition and of each read."""
    for e in chain.from_iterable(walk(equation.body) for equation in op.equations):
        written: Expr | None = e if isinstance(e, Access) else getattr(e, "condition", None)
        if written is not None:
            yield _rank(sizes.shape(free_indices(written)))


def _wide(
    steps: Iterable[Step],
    lines: Sequence[Line],
    owners: set[str],
    need: int,
    letters: tuple[str, ...],
) -> Iterable[Wide]:
    """The intermediates with more axes than ``need``; a contraction writes only its result."""
    for s in steps:
        size = elements(s.result)
        if degree(size) > need and not s.contracts:
            yield Wide(_owner(s.line, lines, owners), Amount(size, letters), need)


def _owner(name: str, lines: Sequence[Line], owners: set[str]) -> str:
    """The equation or gradient that a line is computed for."""
    wanted = {name}
    for line in lines:
        if line.name in owners and (line.name in wanted or wanted & set(names_in(line.code))):
            return line.name
        if wanted & set(names_in(line.code)):
            wanted.add(line.name)
    return name

"""What the code of an operation costs, as formulas in the sizes.

- flops: 2 for each product that a contraction sums, 1 for each element that any other operation
  computes or a reduction takes in; moving elements is none.
- passes: operations that read or write a tensor of as many axes as the largest input or output,
  once each. A view is no operation.
- the largest intermediate: the most elements that an operation writes, but for results.
- saved bytes: of what is kept for the backward, in float32. Only inputs and outputs are.

An axis of fixed size is none here, and a group is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from derive.algebra.amount import Amount, covers, degree, floor_divided, size_of, whole
from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Composite,
    Expr,
    Index,
    Mul,
    Num,
    Param,
    Size,
    free_indices,
    walk,
)
from derive.algebra.poly import ONE, ZERO, Poly, add, constant, mul, scale
from derive.lowering.program import Program
from derive.lowering.steps import Shaped, Step, elements
from derive.lowering.tidy import Line, names_in
from derive.lowering.trace import Trace
from derive.notation.operation import AxisOf, Extent, KeepDim, Operation, SizeOf

__all__ = ["Costs", "Wide", "Work", "costs_of"]

_BYTES = {"float": 4, "int": 8, "bool": 1}


@dataclass(frozen=True)
class Work:
    """One direction. ``contracted`` is the part of ``flops`` that contractions do.

    ``largest`` has the sizes that no other intermediate exceeds whatever the letters are.
    """

    flops: Amount
    contracted: Amount
    passes: int
    largest: tuple[Amount, ...]


@dataclass(frozen=True)
class Wide:
    """An intermediate of more axes than anything in the equations has, and whose it is."""

    owner: str
    size: Amount
    axes: int


@dataclass(frozen=True)
class Costs:
    """Forward, backward with every gradient asked for, and what is kept between the two."""

    letters: tuple[str, ...]
    forward: Work
    backward: Work
    saved: tuple[tuple[str, Amount], ...]
    """(tensor, its bytes)."""
    own: tuple[str, ...]
    """Those of them that are neither inputs nor outputs: memory that nothing else holds."""
    wide: tuple[Wide, ...]
    follows: tuple[tuple[str, Amount], ...]
    """Sizes that follow from others, in order."""

    @property
    def saved_bytes(self) -> Amount:
        """The bytes of all that is saved."""
        return self._total(name for name, _ in self.saved)

    @property
    def own_bytes(self) -> Amount:
        """The bytes of what is saved and is neither an input nor an output."""
        return self._total(self.own)

    def _total(self, names: Iterable[str]) -> Amount:
        held = dict(self.saved)
        return Amount(add(ZERO, *(held[name].value for name in names)), self.letters)

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """These sizes, and those that follow from them."""
        found = dict(given)
        for letter, size in self.follows:
            if letter not in found and size.needs() <= set(found):
                found[letter] = size.at(found)
        return found


def costs_of(op: Operation, program: Program) -> Costs:
    """Follow the code of one option."""
    sizes = _Sizes(op)
    letters = _letters(op)
    inputs = {t.name: Shaped(tuple(map(sizes.axis, t.axes)), t.kind) for t in op.inputs}
    known = {e.name: Shaped(tuple(sizes.axis(i) for i in e.axes), e.kind) for e in op.equations}
    arguments = {**inputs, **_parameters(op)}
    forward = Trace(sizes.formulas, values=dict(arguments))
    forward.run(program.forward, known)
    outputs = {name: forward.values[name] for name in program.outputs}
    at_hand = {**arguments, **outputs}
    setup = Trace(sizes.formulas, values=dict(at_hand))
    setup.run(program.setup, {})
    values = {name: setup.values.get(name) for name in program.kept_groups}
    values |= {s.name: at_hand[s.name] for s in program.saved}
    values |= {name: at_hand[name] for name in program.kept_parameters}
    values |= {f"{name}_shape": inputs[name].shape for name in program.kept_shapes}
    values |= {c: outputs[o] for o, c in program.cotangents if c is not None}
    backward = Trace(sizes.formulas, values=values)
    lines = [entry.line for entry in program.backward]
    gradients = set(program.gradients.values())
    backward.run(lines, {name: inputs[t] for t, name in program.gradients.items()})
    ends = (*inputs.values(), *outputs.values())
    full = max(degree(elements(x.shape)) for x in ends)
    need = max(full, _written(op, known))
    wide = (
        *_wide(forward.steps, program.forward, set(known), need, letters),
        *_wide(backward.steps, lines, {*gradients, *_adjoints(lines)}, need, letters),
    )
    return Costs(
        letters,
        _work(forward, program.outputs, full, letters),
        _work(backward, program.gradients.values(), full, letters),
        tuple((s.name, _bytes(at_hand[s.name], letters)) for s in program.saved),
        tuple(s.name for s in program.saved if s.name not in (*inputs, *outputs)),
        () if op.stable else tuple(dict.fromkeys(wide)),
        tuple((e.name, Amount(sizes.formula(e), letters)) for e in op.extents if e.size),
    )


def _bytes(x: Shaped, letters: tuple[str, ...]) -> Amount:
    return Amount(scale(elements(x.shape), _BYTES[x.kind]), letters)


class _Sizes:
    """Sizes as formulas: what is fixed is a number, a composite axis is a product."""

    def __init__(self, op: Operation) -> None:
        self._extents = {e.name: e for e in op.extents}
        self.formulas: dict[Poly, Poly] = {}
        for e in op.extents:
            if isinstance(e.size, Add | Call):
                self.formulas[self._formula(e.size)] = size_of(e.name)

    def formula(self, e: Extent) -> Poly:
        """What the size of an extent is, in other sizes."""
        assert e.size is not None
        return self._formula(e.size)

    def axis(self, axis: Expr) -> Poly:
        """The size of an axis."""
        match axis:
            case Index():
                return self._letter(axis.extent)
            case Composite(args):
                return mul(ONE, *(self.axis(part) for part in args))
        return ONE

    def _letter(self, name: str) -> Poly:
        size = self._extents[name].size
        if isinstance(size, Num):
            return constant(size.value)
        return self._formula(size) if isinstance(size, Mul) else size_of(name)

    def _formula(self, e: Expr) -> Poly:
        match e:
            case Size(name):
                return self._letter(name)
            case Add(args):
                return add(*map(self._formula, args))
            case Mul(args):
                return mul(*map(self._formula, args))
            case Call("floordiv", (a, b)):
                return floor_divided(self._formula(a), self._formula(b))
            case Call(function, args):
                return whole(Call(function, tuple(map(self._formula, args))))
        return whole(e)


def _letters(op: Operation) -> tuple[str, ...]:
    """The letters of sizes as a reader meets them: those of outputs, then of all else."""
    outputs = [i for e in op.equations if e.name in op.outputs for i in e.axes]
    inputs = [i for t in op.inputs for i in t.axes]
    axes = (*outputs, *inputs, *(i for e in op.equations for i in e.axes))
    found = [i.extent for axis in axes for i in walk(axis) if isinstance(i, Index)]
    return tuple(dict.fromkeys((*found, *(e.name for e in op.extents))))


def _parameters(op: Operation) -> dict[str, object]:
    """Positions as they are where a group is one axis, sizes, and flags that are not set."""
    found: dict[str, object] = {}
    for p in op.parameters:
        match p:
            case AxisOf(name, index):
                home = next(t.axes for t in op.inputs if index in t.axes)
                found[name] = constant(home.index(index))
            case KeepDim(name):
                found[name] = False
            case SizeOf(name, extent):
                found[name] = size_of(extent)
            case _:
                found[p.name] = whole(Param(p.name)) if getattr(p, "integer", False) else None
    return found


# -------------------------------------------------------------------- sums over the steps


def _work(trace: Trace, results: Iterable[str], full: int, letters: tuple[str, ...]) -> Work:
    steps = trace.steps
    ends = {trace.values[name].made for name in results}
    between = (elements(s.result.shape) for n, s in enumerate(steps) if n not in ends)
    contracted = add(ZERO, *(s.flops for s in steps if s.contracts))
    return Work(
        Amount(add(ZERO, *(s.flops for s in steps)), letters),
        Amount(contracted, letters),
        sum(any(degree(elements(x.shape)) >= full for x in (*s.reads, s.result)) for s in steps),
        _largest(between, letters),
    )


def _largest(found: Iterable[Poly], letters: tuple[str, ...]) -> tuple[Amount, ...]:
    """The sizes that no other one is at least as large as for all values of the letters."""
    distinct = list(dict.fromkeys(p for p in found if p.terms))
    kept = [p for p in distinct if not any(covers(q, p) for q in distinct if q is not p)]
    kept.sort(key=lambda p: (-degree(p), str(Amount(p, letters))))
    return tuple(Amount(p, letters) for p in kept)


# -------------------------------------------------------------------- intermediates of many axes


def _written(op: Operation, known: Mapping[str, Shaped]) -> int:
    """The most axes of an equation, of a condition or of what is read in one place."""
    sizes = _Sizes(op)
    found = [degree(elements(x.shape)) for x in known.values()]
    for e in chain.from_iterable(walk(equation.body) for equation in op.equations):
        written: Expr | None = e if isinstance(e, Access) else getattr(e, "condition", None)
        if written is not None:
            found.append(degree(elements(map(sizes.axis, free_indices(written)))))
    return max(found)


def _wide(
    steps: Iterable[Step],
    lines: Sequence[Line],
    owners: set[str],
    need: int,
    letters: tuple[str, ...],
) -> Iterable[Wide]:
    """What has more axes than ``need``; a contraction writes only what its result has."""
    for s in steps:
        size = elements(s.result.shape)
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


def _adjoints(lines: Sequence[Line]) -> set[str]:
    """The names in the backward that a reader knows."""
    return {line.name for line in lines if line.name.startswith("grad_")}

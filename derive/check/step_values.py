"""Evaluate the steps of a derivation on a sample, and compare each with the one before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from derive.algebra.expr import Expr, Index, Reduce, accesses, walk
from derive.algebra.interpret import array
from derive.check import oracle
from derive.check.samples import Sample, cases, sample
from derive.errors import DeriveError
from derive.notation.operation import Number, Operation, SizeOf
from derive.reports.formula import DerivationStep
from derive.reports.result import Derivation, steps_of

_MOST_WORK = 1_500_000
"""Nodes of a formula that are evaluated for a step on a page, a few tenths of a second."""


class StepValues:
    """Arrays of all that the formulas of a derivation read, each computed when first asked for.

    ``most`` bounds the work of a formula; one that needs more raises a `TooMuchWork`.
    """

    def __init__(self, op: Operation, d: Derivation, made: Sample, most: int | None = None) -> None:
        self.most = most
        self.sizes = oracle.sizes(op, made.tensors, made.parameters)
        self.numbers: dict[str, Any] = {}
        for p in op.parameters:
            if isinstance(p, Number):
                self.numbers[p.name] = made.parameters[p.name]
            elif isinstance(p, SizeOf):
                self.numbers[p.name] = self.sizes[p.extent]
        rng = np.random.default_rng(4)
        arrays = oracle.run(op, made.tensors, made.parameters)
        self.found: dict[tuple[Any, ...], Any] = {}
        self.known: dict[str, Any] = {**made.tensors, **arrays}
        for output, name in d.cotangents:
            self.known[name] = rng.uniform(0.5, 1.5, arrays[output].shape)
        formulas = (*d.step_definitions, *d.definitions, *d.adjoints, *d.gradients.values())
        self.bodies = {f.name: (f.axes, f.body) for f in formulas}
        # An adjoint that has no formula, being opened, is what its own last step says.
        for step in steps_of(d):
            if step.name not in {f.name for f in formulas}:
                self.bodies[step.name] = (step.axes, step.after)

    def of(self, axes: tuple[Expr, ...], e: Expr) -> Any:
        """Return the array of e; what a step ends with serves the next, which starts from it."""
        if (axes, e) not in self.found:
            self.found[axes, e] = self._computed(axes, e)
        return self.found[axes, e]

    def _computed(self, axes: tuple[Expr, ...], e: Expr) -> Any:
        if self.most is not None and self._work(axes, e) > self.most:
            raise TooMuchWork(f"{e} has too many terms")
        for access in accesses(e):
            if access.tensor not in self.known:
                self.known[access.tensor] = self.of(*self.bodies[access.tensor])
        return array(axes, e, self.known, self.sizes, self.numbers)

    def _work(self, axes: Sequence[Expr], e: Expr) -> int:
        """Return the number of nodes that an evaluation by loops visits."""
        over = [i for axis in axes for i in walk(axis) if isinstance(i, Index)]
        return self._positions(over) * self._visits(e)

    def _visits(self, e: Expr) -> int:
        inside = 1 + sum(map(self._visits, e.parts()))
        return self._positions(e.indices) * inside if isinstance(e, Reduce) else inside

    def _positions(self, indices: Sequence[Index]) -> int:
        return prod(oracle.positions(self.sizes[i.extent]) for i in indices)


class TooMuchWork(DeriveError):
    """A formula would take too long to evaluate by loops."""

    kind = "over-limit"


def verdicts(op: Operation, d: Derivation) -> Iterator[bool | None]:
    """Yield for each of the steps whether its formula equals the one before it on a sample.

    None stands for a step that is not evaluated: it takes too long, or the operation has no
    sample with finite values.
    """
    steps = steps_of(d)
    try:
        case = next(c for c in cases(op) if c.option == d.option)
        values = StepValues(op, d, sample(op, case), _MOST_WORK)
    except DeriveError:
        yield from (None for _ in steps)
        return
    for step in steps:
        yield _holds(values, step)


def _holds(values: StepValues, step: DerivationStep) -> bool | None:
    try:
        before, after = (values.of(step.axes, e) for e in (step.before, step.after))
    except (DeriveError, KeyError, IndexError, ValueError, ZeroDivisionError):
        return None
    return bool(np.allclose(after, before, rtol=1e-10, atol=1e-12, equal_nan=True))

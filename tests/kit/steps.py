"""The steps of a derivation, and arrays of all that they read."""

from __future__ import annotations

from typing import Any

import numpy as np
from kit.equations import numbers
from kit.once import sample

from derive.algebra.expr import Expr, accesses, free_indices
from derive.algebra.interpret import array
from derive.check import oracle
from derive.check.samples import cases
from derive.reports.formula import DerivationStep
from derive.reports.result import Derivation


class Values:
    """Arrays of all that the formulas of a derivation read, computed when first asked for."""

    def __init__(self, op: Any, option: str | None, d: Derivation) -> None:
        case = next(c for c in cases(op) if c.option == option)
        made = sample(op, case)
        self.sizes = oracle.sizes(op, made.tensors, made.parameters)
        self.numbers = numbers(op, made.parameters, self.sizes)
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
        """The array of e; that of what a step ends with serves the next, which starts from it."""
        if (axes, e) not in self.found:
            self.found[axes, e] = self._computed(axes, e)
        return self.found[axes, e]

    def _computed(self, axes: tuple[Expr, ...], e: Expr) -> Any:
        for access in accesses(e):
            if access.tensor not in self.known:
                self.known[access.tensor] = self.of(*self.bodies[access.tensor])
        return array(axes, e, self.known, self.sizes, self.numbers)


def letters(axes: tuple[Expr, ...]) -> frozenset[Expr]:
    """The indices on the left, those of composite axes included."""
    return frozenset(i for axis in axes for i in free_indices(axis))


def steps_of(d: Derivation) -> list[DerivationStep]:
    return [*d.rewritten, *(s for f in (*d.adjoints, *d.gradients.values()) for s in f.steps)]

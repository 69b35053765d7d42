"""What a derivation shows: each gradient as a formula, with the steps that lead to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from derive.algebra.expr import Expr
from derive.cost.costs import Costs
from derive.report.sheet import Sheet, as_html, as_latex, as_text, titled
from derive.show.formula import equation, sides
from derive.show.typeset import in_display


@dataclass(frozen=True, repr=False)
class DerivationStep:
    """``name[axes] = before = after``: one line of a derivation and the identity it uses.

    ``before`` and ``after`` are equal for all values; where a step only introduces a formula
    they are the same.
    """

    name: str
    axes: tuple[Expr, ...]
    rule: str
    states: str
    before: Expr
    after: Expr

    def text(self, style: str = "unicode") -> str:
        """The formula after the step."""
        return equation(self.name, self.axes, self.after, style)

    def __str__(self) -> str:
        return f"{self.text()}    ({self.rule}: {self.states})"

    def __repr__(self) -> str:
        return f"DerivationStep({self.rule!r}, {self.text()!r})"


@dataclass(frozen=True, repr=False)
class Formula:
    """``name[axes] = body`` in the form that an expert would write."""

    name: str
    axes: tuple[Expr, ...]
    body: Expr
    told: Callable[[], tuple[DerivationStep, ...]] = field(default=tuple, compare=False)

    @cached_property
    def steps(self) -> tuple[DerivationStep, ...]:
        """What leads to the formula, told when it is asked for."""
        return self.told()

    def __str__(self) -> str:
        return equation(self.name, self.axes, self.body, "unicode")

    def __repr__(self) -> str:
        return f"Formula({str(self)!r})"

    def _repr_latex_(self) -> str:
        return rf"$\displaystyle {self.latex()}$"

    def _repr_html_(self) -> str:
        return self.mathml()

    def latex(self) -> str:
        """The equation in LaTeX."""
        return equation(self.name, self.axes, self.body, "latex")

    def mathml(self) -> str:
        """The equation in MathML."""
        return equation(self.name, self.axes, self.body, "mathml")

    def sides(self, style: str) -> tuple[str, str]:
        """What stands on the left and on the right in ``unicode``, ``latex`` or ``mathml``."""
        return sides(self.name, self.axes, self.body, style)

    def sympy(self) -> Any:
        """The body as a SymPy expression."""
        from derive.notation.to_sympy import to_sympy

        return to_sympy(self.body)


@dataclass(frozen=True)
class Cost(Costs):
    """What the emitted code does: formulas in the sizes, and what the backward is made of.

    ``operations`` counts elementwise operations and reductions of the backward, ``contractions``
    its matrix products and einsums, ``lines`` its statements.

    >>> str(derivation(parse("C[i,j] = sum[k](A[i,k]*B[k,j])")).cost.forward.flops)
    '2·i·j·k'
    """

    operations: int
    contractions: int
    lines: int


@dataclass(frozen=True)
class Formulas:
    """The backward of one operation, or of one option where it has a choice.

    ``equations`` is the operation as given, ``definitions`` what the engine named besides (a
    logsumexp, a winner), ``adjoints`` the cotangents of equations that are kept by name, and
    ``gradients`` has one formula for each name that was asked for.
    """

    name: str
    option: str | None
    cotangents: tuple[tuple[str, str], ...]
    """(output, the name of its cotangent)."""
    equations: tuple[Formula, ...]
    definitions: tuple[Formula, ...]
    adjoints: tuple[Formula, ...]
    gradients: Mapping[str, Formula]


Told = Callable[[], tuple[tuple[DerivationStep, ...], tuple[Formula, ...]]]
"""Finds the steps of an operation, and all names that are read in any step."""


@dataclass(frozen=True, repr=False, eq=False)
class Tangents(Mapping[str, Formula]):
    """Forward mode: the tangent of each output, and of equations whose tangent has a name.

    ``given`` has (input, the name of its tangent). Printed, it is what ``derive show --tangent``
    prints, and in a notebook the same as formulas.
    """

    name: str
    option: str | None
    given: tuple[tuple[str, str], ...]
    equations: tuple[Formula, ...]
    definitions: tuple[Formula, ...]
    formulas: Mapping[str, Formula]
    """By output or equation, in the order in which they are computed."""
    told: Told

    @cached_property
    def _told(self) -> tuple[tuple[DerivationStep, ...], tuple[Formula, ...]]:
        return self.told()

    @property
    def rewritten(self) -> tuple[DerivationStep, ...]:
        """Equations in the stable form that is differentiated, if it is another."""
        return self._told[0]

    def __getitem__(self, name: str) -> Formula:
        return self.formulas[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.formulas)

    def __len__(self) -> int:
        return len(self.formulas)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        option = "" if self.option is None else f", {self.option!r}"
        return f"Tangents({self.name!r}{option}, of: {', '.join(self)})"

    def _repr_html_(self) -> str:
        return as_html(self._sheet(False))

    def text(self, steps: bool = False) -> str:
        """The formulas in Unicode, with the steps that lead to them if they are asked for."""
        return as_text(self._sheet(steps))

    def latex(self, steps: bool = False) -> str:
        """The same as the body of a LaTeX document that uses amsmath."""
        return as_latex(self._sheet(steps))

    def _sheet(self, steps: bool) -> Sheet:
        moves = bool(self.formulas)
        return Sheet(
            title=titled(self.name, self.option),
            equations=self.equations,
            named=self._told[1] if steps else self.definitions,
            heading="tangents" if moves else "no output has a tangent",
            symbols=[(own, "the tangent of", t) for t, own in self.given if moves],
            results=tuple(self.values()),
            has_steps=steps,
            rewritten=self.rewritten if steps else (),
        )


@dataclass(frozen=True, repr=False)
class Derivation(Formulas):
    """The backward with its steps: those of each formula, and of the operation before them.

    Printed, it is what ``derive show`` prints, and in a notebook the same as formulas. Steps and
    cost are found when they are asked for.
    """

    told: Told
    made: Callable[[], tuple[tuple[tuple[str, str, str], ...], tuple[str, ...], Cost]]
    moved: Callable[[], Tangents]

    @property
    def rewritten(self) -> tuple[DerivationStep, ...]:
        """Equations in the stable form that is computed and differentiated, if it is another."""
        return self._told[0]

    @property
    def step_definitions(self) -> tuple[Formula, ...]:
        """``definitions``, and those that only steps read."""
        return self._told[1]

    @property
    def recognised(self) -> tuple[tuple[str, str, str], ...]:
        """(equation, pattern that its code was made by, the identity that this states)."""
        return self._made[0]

    @property
    def saved(self) -> tuple[str, ...]:
        """The names of what the backward keeps from the forward."""
        return self._made[1]

    @property
    def cost(self) -> Cost:
        """What the code costs."""
        return self._made[2]

    @cached_property
    def tangents(self) -> Tangents:
        """Forward mode, found when it is asked for: ``tangents["S"]`` is d_S of an output S."""
        return self.moved()

    @cached_property
    def _told(self) -> tuple[tuple[DerivationStep, ...], tuple[Formula, ...]]:
        return self.told()

    @cached_property
    def _made(self) -> tuple[tuple[tuple[str, str, str], ...], tuple[str, ...], Cost]:
        return self.made()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        option = "" if self.option is None else f", {self.option!r}"
        return f"Derivation({self.name!r}{option}, gradients: {', '.join(self.gradients)})"

    def _repr_latex_(self) -> str:
        every = (*self.equations, *self.definitions, *self.adjoints, *self.gradients.values())
        return in_display(f.sides("latex") for f in every)

    def _repr_html_(self) -> str:
        return as_html(self._sheet(False))

    def text(self, steps: bool = False) -> str:
        """The formulas in Unicode, with the steps that lead to them if they are asked for."""
        return as_text(self._sheet(steps))

    def latex(self, steps: bool = False) -> str:
        """The same as the body of a LaTeX document that uses amsmath."""
        return as_latex(self._sheet(steps))

    def _sheet(self, steps: bool) -> Sheet:
        saved = ", ".join(self.saved) or "nothing"
        cost = f"{self.cost.operations} operations, {self.cost.contractions} contractions"
        return Sheet(
            title=titled(self.name, self.option),
            equations=self.equations,
            named=self.step_definitions if steps else self.definitions,
            heading="gradients" if self.cotangents else "no output has a gradient",
            symbols=[(name, "=", f"∂L/∂{output}") for output, name in self.cotangents],
            results=(*self.adjoints, *self.gradients.values()),
            foot=f"saved for backward: {saved}; backward: {cost}",
            has_steps=steps,
            rewritten=self.rewritten if steps else (),
            recognised=self.recognised if steps else (),
        )

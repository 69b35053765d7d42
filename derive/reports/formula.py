"""A formula, and the steps that lead to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from derive.algebra.expr import Expr
from derive.show.formula import equation, sides


@dataclass(frozen=True, repr=False)
class DerivationStep:
    """One step of a derivation: ``name[axes] = before = after``, by the identity ``rule``.

    ``states`` writes the identity as a formula. ``before`` and ``after`` are equal for all values;
    a step that only introduces a formula has the same expression in both.
    """

    name: str
    axes: tuple[Expr, ...]
    rule: str
    states: str
    before: Expr
    after: Expr

    def text(self, style: str = "unicode") -> str:
        """Return the formula after the step, in "unicode" or "latex"."""
        return equation(self.name, self.axes, self.after, style)

    def __str__(self) -> str:
        return f"{self.text()}    ({self.rule}: {self.states})"

    def __repr__(self) -> str:
        return f"DerivationStep({self.rule!r}, {self.text()!r})"


@dataclass(frozen=True, repr=False)
class Formula:
    """An equation ``name[axes] = body``. ``str(formula)`` is its text in Unicode.

    A notebook shows it as mathematics.

    >>> import derive
    >>> op = derive.parse("y[n] = x[n]**2")
    >>> formula = derive.derivation(op).gradients["x"]
    >>> print(formula)
    grad_x[n] = 2·G[n]·x[n]
    >>> formula.sympy()
    2*G[n]*x[n]
    >>> [step.rule for step in formula.steps]
    ['partial derivative of y', 'chain rule', 'contract delta', 'factor']
    """

    name: str
    axes: tuple[Expr, ...]
    body: Expr
    told: Callable[[], tuple[DerivationStep, ...]] = field(default=tuple, compare=False)

    @cached_property
    def steps(self) -> tuple[DerivationStep, ...]:
        """The steps that lead to the formula, computed on first access."""
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
        """Return the equation in LaTeX."""
        return equation(self.name, self.axes, self.body, "latex")

    def mathml(self) -> str:
        """Return the equation in MathML."""
        return equation(self.name, self.axes, self.body, "mathml")

    def sides(self, style: str) -> tuple[str, str]:
        """Return the left and the right side in "unicode", "latex" or "mathml"."""
        return sides(self.name, self.axes, self.body, style)

    def sympy(self) -> Any:
        """Return the body as a SymPy expression."""
        from derive.notation.to_sympy import to_sympy

        return to_sympy(self.body)

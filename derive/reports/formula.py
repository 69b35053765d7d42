"""A formula, and the steps that lead to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import ndiff
from functools import cached_property
from html import escape
from typing import Any

from derive.algebra.expr import Access, Expr, Guard, Index, Reduce, Where
from derive.algebra.factor import to_tree
from derive.algebra.squares import in_plain_nodes
from derive.algebra.substitution import replace, substitute
from derive.calculus.alpha_renaming import renamed
from derive.calculus.lets import Let
from derive.calculus.unit import Unit
from derive.errors import LimitError, LoweringError
from derive.notation.operation import Operation
from derive.program.cse import Line
from derive.program.program import Program
from derive.program.torch_ir import text
from derive.show.formula import equation, sides
from derive.show.line_breaks import Parts, in_display
from derive.show.tables import in_markdown
from derive.show.typeset import Style, identity_in_latex


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

    @property
    def parts(self) -> Parts:
        """Name, axes and expression after the step."""
        return self.name, self.axes, self.after

    def _repr_latex_(self) -> str:
        return in_display([self.parts])

    def _repr_markdown_(self) -> str:
        identity = f"{in_markdown(self.rule)}: ${identity_in_latex(self.states)}$"
        return f"{identity}\n\n{self._repr_latex_()}"

    def _repr_html_(self) -> str:
        formula = equation(*self.parts, "mathml")
        return f"<p>{escape(self.rule)}: {escape(self.states)}</p>\n<div>{formula}</div>"


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
    ['partial derivative of y', 'chain rule', 'contract delta']
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
        return equation(*self.parts)

    def __repr__(self) -> str:
        return f"Formula({str(self)!r})"

    def _repr_latex_(self) -> str:
        return rf"$\displaystyle {self.latex()}$"

    _repr_markdown_ = _repr_latex_

    @property
    def parts(self) -> Parts:
        """Name, axes and body."""
        return self.name, self.axes, self.body

    def latex(self) -> str:
        """Return the equation in LaTeX."""
        return equation(*self.parts, "latex")

    def mathml(self) -> str:
        """Return the equation in MathML."""
        return equation(*self.parts, "mathml")

    _repr_html_ = mathml

    def sides(self, style: str | Style) -> tuple[str, str]:
        """Return the left and the right side in "unicode", "latex", "mathml" or a style."""
        return sides(self.name, self.axes, self.body, style)

    def sympy(self) -> Any:
        """Return the body as a SymPy expression."""
        from derive.notation.sympy_form import to_sympy

        return to_sympy(self.body)


# -------------------------------------------------------------------------------- error translation
# Translate errors of the engine into the names of the user.


@contextmanager
def translating_errors(op: Operation, display_names: Mapping[str, str]) -> Iterator[None]:
    """Re-raise lowering and limit errors with the user's names and equations."""
    try:
        yield
    except LimitError as error:
        raise LimitError(_in_given_names(error.text, display_names)) from None
    except LoweringError as error:
        message = _in_given_names(error.text, display_names)
        equations = "".join(f"\n  {Formula(e.name, e.axes, e.body)}" for e in op.equations)
        raise LoweringError(f"{op.name}: {message}\nin{equations}", kind=error.kind) from None


def inlined(e: Expr, named: Mapping[str, Formula], deep: bool = True) -> Expr:
    """Return e with formulas in place of their names; with ``deep``, in the formulas too."""

    def opened(part: Expr) -> Expr | None:
        found = named.get(part.tensor) if isinstance(part, Access) else None
        if found is None or not all(isinstance(axis, Index) for axis in found.axes):
            return None
        assert isinstance(part, Access)
        pairs = zip(found.axes, part.positions, strict=True)
        inside = substitute(found.body, {a: p for a, p in pairs if isinstance(a, Index)})
        return inlined(inside, named) if deep else inside

    return replace(e, opened)


def _in_given_names(message: str, display_names: Mapping[str, str]) -> str:
    return re.sub(r"@?\b[tpie]\d{3,}(~\w+)?\b", lambda m: display_names.get(m[0], m[0]), message)


# -------------------------------------------------------------------------------------- pass report
# The passes of an operation as text: the formulas and lines that each of them changed.


@dataclass(frozen=True)
class PassReport:
    """A pass, and the lines of text before and after it."""

    name: str
    states: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    body: str = ""
    """The body of the code to which it was applied."""

    @property
    def changed(self) -> tuple[str, ...]:
        """The lines that differ: ``- gone`` and ``+ new``."""
        return tuple(line for line in ndiff(self.before, self.after) if line[0] in "+-")

    def __str__(self) -> str:
        where = f" ({self.body})" if self.body else ""
        lines = [f"{self.name}{where}: {self.states}"]
        return "\n".join([*lines, *(f"  {line}" for line in self.changed)])


def unit_lines(unit: Unit) -> tuple[str, ...]:
    """Return the equations of a unit, then its adjoints and gradients."""
    shown = unit.shown_names

    def display_name(name: str) -> str:
        bare = name.rstrip("'")
        return shown.get(bare, bare) + name[len(bare) :]

    lets = list(unit.lets)
    if not lets:
        bodies = [(e.name, e.axes, e.body) for e in unit.operation.equations]
    else:
        bodies = [(let.name, let.formals, _tree(let)) for let in lets]
    every = (*unit.backward.adjoints, *unit.backward.gradients)
    bodies += [(a.name, a.formals, to_tree(a.body)) for a in every]
    return tuple(str(_formula(*body, display_name)) for body in bodies)


def _tree(let: Let) -> Expr:
    body, condition = to_tree(let.body), let.condition and to_tree(let.condition)
    return body if let.kind == "sum" else Reduce(let.kind, let.binders, body, condition)


def _formula(
    name: str, axes: Sequence[Expr], body: Expr, display_name: Callable[[str], str]
) -> Formula:
    own = tuple(renamed(axis, display_name) for axis in axes)
    tree = in_plain_nodes(_with_guards(body))
    return Formula(display_name(name), own, renamed(tree, display_name))


def _with_guards(e: Expr) -> Expr:
    """Return the tree with each guard as a choice, since formulas print its operand alone."""
    mapped: Expr = e.map(_with_guards)
    if isinstance(mapped, Guard):
        return Where(mapped.condition, mapped.position, mapped.elsewhere)
    return mapped


def body_reports(program: Program) -> Iterator[PassReport]:
    """Yield the passes over the lines of each body."""
    for body, log in program.log.items():
        for entry in log:
            before, after = _code_lines(entry.before), _code_lines(entry.after)
            yield PassReport(entry.name, entry.states, before, after, body)


def program_lines(program: Program) -> tuple[str, ...]:
    """Return the lines of all bodies of a program."""
    bodies: dict[str, Sequence[Line]] = {
        "forward": program.forward,
        "backward": program.backward,
        "first order": program.first_order,
    }
    return tuple(f"{body}: {x}" for body, lines in bodies.items() for x in _code_lines(lines))


def _code_lines(lines: Sequence[Line]) -> tuple[str, ...]:
    return tuple(f"{line.name} = {text(line.code)}" for line in lines)

"""The passes of an operation as text: the formulas and lines that each of them changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import ndiff

from derive.algebra.expr import Expr, Guard, Reduce, Where
from derive.algebra.to_tree import to_tree
from derive.calculus.alpha_renaming import renamed
from derive.calculus.lets import Let
from derive.calculus.unit import Unit
from derive.program.cse import Line
from derive.program.program import Program
from derive.program.torch_ir import text
from derive.reports.formula import Formula


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
    return Formula(display_name(name), own, renamed(_with_guards(body), display_name))


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
        "backward": [x.line for x in program.backward],
        "first order": [x.line for x in program.first_order],
    }
    return tuple(f"{body}: {x}" for body, lines in bodies.items() for x in _code_lines(lines))


def _code_lines(lines: Sequence[Line]) -> tuple[str, ...]:
    return tuple(f"{line.name} = {text(line.code)}" for line in lines)

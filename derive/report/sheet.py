"""A derivation as one text, as a piece of LaTeX and as HTML: equations first, then gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from derive.show.typeset import aligned, name_in_latex, plain, stated

if TYPE_CHECKING:
    from derive.report.result import Derivation, DerivationStep, Formula


def as_text(d: Derivation, steps: bool = False) -> str:
    """A formula a line."""
    lines = [_title(d), "", *(f"  {f}" for f in d.equations)]
    named = _named(d, steps)
    if named:
        lines += ["", "where", *(f"  {f}" for f in named)]
    cotangents = ", ".join(f"{name} = ∂L/∂{output}" for output, name in d.cotangents)
    lines += ["", _heading(d, cotangents), *(f"  {f}" for f in _results(d)), "", _foot(d)]
    if steps:
        if d.rewritten:
            lines += ["", "equations in a stable form"]
        for step in d.rewritten:
            lines += [f"  {step.states}", f"     {step.text()}"]
        for formula in _results(d):
            lines += ["", f"steps of {formula.name}"]
            for n, step in enumerate(formula.steps, 1):
                lines += [f"  {n}. {step.rule}: {step.states}", f"     {step.text()}"]
        if d.recognised:
            lines += ["", "patterns of the code"]
        lines += [f"  {name}: {pattern}: {states}" for name, pattern, states in d.recognised]
    return "\n".join(lines)


def as_latex(d: Derivation, steps: bool = False) -> str:
    """The body of a LaTeX document that uses amsmath."""
    parts = [rf"\paragraph{{{plain(_title(d))}}}", _display(d.equations)]
    named = _named(d, steps)
    if named:
        parts += ["where", _display(named)]
    cotangents = ", ".join(
        rf"${name_in_latex(name)} = {name_in_latex(f'∂L/∂{output}')}$"
        for output, name in d.cotangents
    )
    parts += [_heading(d, cotangents), _display(_results(d)), plain(_foot(d))]
    if steps:
        if d.rewritten:
            parts += ["equations in a stable form", _listed(d.rewritten)]
        for formula in _results(d):
            parts += [f"steps of {plain(formula.name)}", _listed(formula.steps)]
    return "\n\n".join(filter(None, parts))


def as_html(d: Derivation) -> str:
    """Headings, and formulas in MathML."""
    cotangents = ", ".join(f"{name} = ∂L/∂{output}" for output, name in d.cotangents)
    parts = [f"<h4>{escape(_title(d))}</h4>", *_mathml(d.equations)]
    if d.definitions:
        parts += ["<p>where</p>", *_mathml(d.definitions)]
    parts += [f"<p>{escape(_heading(d, cotangents))}</p>", *_mathml(_results(d))]
    return "\n".join([*parts, f"<p>{escape(_foot(d))}</p>"])


def _title(d: Derivation) -> str:
    return d.name if d.option is None else f"{d.name} ({d.option})"


def _named(d: Derivation, steps: bool) -> tuple[Formula, ...]:
    return d.step_definitions if steps else d.definitions


def _results(d: Derivation) -> tuple[Formula, ...]:
    return (*d.adjoints, *d.gradients.values())


def _heading(d: Derivation, cotangents: str) -> str:
    return f"gradients, {cotangents}" if cotangents else "no output has a gradient"


def _foot(d: Derivation) -> str:
    saved = ", ".join(d.saved) or "nothing"
    cost = f"{d.cost.operations} operations, {d.cost.contractions} contractions"
    return f"saved for backward: {saved}; backward: {cost}"


def _display(formulas: Sequence[Formula]) -> str:
    return aligned(f.sides("latex") for f in formulas) if formulas else ""


def _listed(steps: Sequence[DerivationStep]) -> str:
    """The steps of a formula, numbered."""
    items = [
        rf"  \item {plain(step.rule)}: ${stated(step.states)}$"
        f"\n    \\[ {step.text('latex')} \\]"
        for step in steps
    ]
    return "\n".join([r"\begin{enumerate}", *items, r"\end{enumerate}"]) if items else ""


def _mathml(formulas: Iterable[Formula]) -> Iterator[str]:
    for f in formulas:
        yield f"<div>{f.mathml()}</div>"

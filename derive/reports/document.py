"""Documents of formulas as text, LaTeX and HTML: equations first, then derived formulas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from derive.show.typeset import aligned, identity_in_latex, name_in_latex, plain

if TYPE_CHECKING:
    from derive.reports.formula import DerivationStep, Formula


@dataclass(frozen=True)
class Document:
    """The content of a document, in order; the steps are empty unless requested."""

    title: str
    equations: Sequence[Formula]
    named: Sequence[Formula]
    """Definitions introduced by the engine."""
    heading: str
    symbols: Sequence[tuple[str, str, str]]
    """Symbols after the heading: (symbol, relation, meaning), the relation = or words."""
    results: Sequence[Formula]
    foot: str = ""
    has_steps: bool = False
    rewritten: Sequence[DerivationStep] = ()
    recognised: Sequence[tuple[str, str, str]] = ()


def titled(name: str, option: str | None) -> str:
    """Return the name of an operation, with the option of its choice in parentheses."""
    return name if option is None else f"{name} ({option})"


def as_text(s: Document) -> str:
    """Return the document as text, one formula a line."""
    lines = [s.title, "", *(f"  {f}" for f in s.equations)]
    if s.named:
        lines += ["", "where", *(f"  {f}" for f in s.named)]
    lines += ["", _sheet_heading(s), *(f"  {f}" for f in s.results)]
    lines += ["", s.foot] if s.foot else []
    if s.rewritten:
        lines += ["", "equations in a stable form"]
    for step in s.rewritten:
        lines += [f"  {step.states}", f"     {step.text()}"]
    for formula in s.results if s.has_steps else ():
        lines += ["", f"steps of {formula.name}"]
        for n, step in enumerate(formula.steps, 1):
            lines += [f"  {n}. {step.rule}: {step.states}", f"     {step.text()}"]
    if s.recognised:
        lines += ["", "patterns of the code"]
    lines += [f"  {name}: {pattern}: {states}" for name, pattern, states in s.recognised]
    return "\n".join(lines)


def as_latex(s: Document) -> str:
    """Return the body of a LaTeX document that uses amsmath."""
    parts = [rf"\paragraph{{{plain(s.title)}}}", _display(s.equations)]
    if s.named:
        parts += ["where", _display(s.named)]
    heading = ", ".join([s.heading, *(_in_latex(*symbol) for symbol in s.symbols)])
    parts += [heading, _display(s.results), plain(s.foot)]
    if s.rewritten:
        parts += ["equations in a stable form", _numbered_steps(s.rewritten)]
    for formula in s.results if s.has_steps else ():
        parts += [f"steps of {plain(formula.name)}", _numbered_steps(formula.steps)]
    return "\n\n".join(filter(None, parts))


def as_html(s: Document) -> str:
    """Return headings, and formulas in MathML."""
    parts = [f"<h4>{escape(s.title)}</h4>", *_mathml(s.equations)]
    if s.named:
        parts += ["<p>where</p>", *_mathml(s.named)]
    parts += [f"<p>{escape(_sheet_heading(s))}</p>", *_mathml(s.results)]
    return "\n".join([*parts, *([f"<p>{escape(s.foot)}</p>"] if s.foot else [])])


def _sheet_heading(s: Document) -> str:
    return ", ".join([s.heading, *(" ".join(symbol) for symbol in s.symbols)])


def _in_latex(symbol: str, relation: str, what: str) -> str:
    name, meaning = name_in_latex(symbol), name_in_latex(what)
    return f"${name} = {meaning}$" if relation == "=" else f"${name}$ {relation} ${meaning}$"


def _display(formulas: Sequence[Formula]) -> str:
    return aligned(f.sides("latex") for f in formulas) if formulas else ""


def _numbered_steps(steps: Sequence[DerivationStep]) -> str:
    """Return the steps of a formula as a numbered list."""
    items = [
        rf"  \item {plain(step.rule)}: ${identity_in_latex(step.states)}$"
        f"\n    \\[ {step.text('latex')} \\]"
        for step in steps
    ]
    return "\n".join([r"\begin{enumerate}", *items, r"\end{enumerate}"]) if items else ""


def _mathml(formulas: Iterable[Formula]) -> Iterator[str]:
    for f in formulas:
        yield f"<div>{f.mathml()}</div>"

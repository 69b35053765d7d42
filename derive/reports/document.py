"""Documents of formulas as text, LaTeX, Markdown and HTML: equations, then what is derived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import indent

from derive.reports.formula import DerivationStep, Formula
from derive.show.line_breaks import Parts, aligned, in_display
from derive.show.tables import in_markdown
from derive.show.typeset import identity_in_latex, name_in_latex, plain


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


# --------------------------------------------------------------------------------------------- text


def as_text(s: Document) -> str:
    """Return the document as text, one formula a line."""
    lines = [s.title, "", *(f"  {f}" for f in s.equations)]
    if s.named:
        lines += ["", "where", *(f"  {f}" for f in s.named)]
    heading = ", ".join([s.heading, *(" ".join(symbol) for symbol in s.symbols)])
    lines += ["", heading, *(f"  {f}" for f in s.results)]
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


# -------------------------------------------------------------------------------------------- LaTeX

_PREAMBLE = r"""\documentclass[fleqn]{article}
\usepackage[a4paper,margin=2.5cm]{geometry}
\usepackage{amsmath}
\setlength{\mathindent}{1em}
\allowdisplaybreaks
\setlength{\parindent}{0pt}
\setlength{\parskip}{\smallskipamount}
\begin{document}"""


def as_latex(s: Document) -> str:
    """Return the body of a LaTeX document that uses amsmath."""
    return _body(s, r"\paragraph{%s}", "%s", plain, aligned, _numbered_steps)


def as_article(documents: Iterable[Document]) -> str:
    """Return a whole LaTeX document, with a section for each."""
    words = r"\section*{%s}", r"\subsection*{%s}", plain, aligned, _numbered_steps
    sections = [_body(s, *words) for s in documents]
    return "\n\n".join([_PREAMBLE, *sections, r"\end{document}"])


def _body(
    s: Document,
    title: str,
    subtitle: str,
    text: Callable[[str], str],
    display: Callable[[Iterable[Parts]], str],
    listed: Callable[[Sequence[DerivationStep]], Iterable[str]],
) -> str:
    """Return the document in LaTeX or Markdown, whose text, formulas and steps are written so."""

    def shown(formulas: Sequence[Formula]) -> str:
        return display(f.parts for f in formulas) if formulas else ""

    parts = [title % text(s.title), shown(s.equations)]
    if s.named:
        parts += ["where", shown(s.named)]
    heading = ", ".join([s.heading, *(_in_latex(*symbol) for symbol in s.symbols)])
    parts += [heading, shown(s.results), text(s.foot)]
    if s.rewritten:
        parts += [subtitle % "equations in a stable form", *listed(s.rewritten)]
    for formula in s.results if s.has_steps else ():
        parts += [subtitle % f"steps of {text(formula.name)}", *listed(formula.steps)]
    return "\n\n".join(filter(None, parts))


def _in_latex(symbol: str, relation: str, what: str) -> str:
    name, meaning = name_in_latex(symbol), name_in_latex(what)
    return f"${name} = {meaning}$" if relation == "=" else f"${name}$ {relation} ${meaning}$"


def _numbered_steps(steps: Sequence[DerivationStep]) -> Iterable[str]:
    items = [
        rf"  \item {plain(step.rule)}: ${identity_in_latex(step.states)}$"
        f"\n{indent(aligned([step.parts]), '    ')}"
        for step in steps
    ]
    return ["\n".join([r"\begin{enumerate}", *items, r"\end{enumerate}"])] if items else []


# ----------------------------------------------------------------------------------------- Markdown


def as_markdown(s: Document) -> str:
    """Return the document as Markdown, with formulas between dollar signs."""
    return _body(s, "## %s", "### %s", in_markdown, in_display, _listed_steps)


def _listed_steps(steps: Sequence[DerivationStep]) -> Iterable[str]:
    for n, step in enumerate(steps, 1):
        number = f"{n}. "
        text = f"{in_markdown(step.rule)}: ${identity_in_latex(step.states)}$"
        yield number + indent(f"{text}\n\n{in_display([step.parts])}", " " * len(number)).lstrip()


# --------------------------------------------------------------------------------------------- HTML


def as_html(s: Document) -> str:
    """Return headings, and formulas in MathML."""
    heading = ", ".join([s.heading, *(" ".join(symbol) for symbol in s.symbols)])
    parts = [f"<h4>{escape(s.title)}</h4>", *_mathml(s.equations)]
    if s.named:
        parts += ["<p>where</p>", *_mathml(s.named)]
    parts += [f"<p>{escape(heading)}</p>", *_mathml(s.results)]
    return "\n".join([*parts, *([f"<p>{escape(s.foot)}</p>"] if s.foot else [])])


def _mathml(formulas: Iterable[Formula]) -> Iterable[str]:
    return (f"<div>{f.mathml()}</div>" for f in formulas)

"""The results of `derive.derivation`: gradients, tangents and cost as formulas, with steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

from derive.cost.costs import Costs
from derive.reports.formula import DerivationStep, Formula
from derive.show.typeset import aligned, identity_in_latex, in_display, name_in_latex, plain

# ----------------------------------------------------------------------------------------- document
# Documents of formulas as text, LaTeX and HTML: equations first, then derived formulas.


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


# ------------------------------------------------------------------------------------------- result


@dataclass(frozen=True)
class Cost(Costs):
    """The cost of the generated code, as formulas in the sizes of the indices.

    ``forward`` and ``backward`` have ``flops``, ``passes`` and ``largest`` intermediate; the
    backward computes all gradients. A matrix product counts 2 flops per summed product, any other
    operation 1 flop per element. ``saved_bytes`` is the memory that the backward keeps, in float32.

    ``operations`` is the number of elementwise operations and reductions of the backward,
    ``contractions`` that of its matrix products and einsums, ``lines`` that of its statements.

    >>> import derive
    >>> cost = derive.derivation(derive.parse("C[i,j] = sum[k](A[i,k]*B[k,j])")).cost
    >>> str(cost.forward.flops), str(cost.saved_bytes)
    ('2·i·j·k', '4·i·k + 4·j·k')
    >>> cost.backward.flops.at({"i": 2, "j": 3, "k": 5})
    120
    """

    operations: int
    contractions: int
    lines: int


@dataclass(frozen=True)
class Formulas:
    """The backward of one operation, or of one option of its choice parameter.

    Attributes:
        name: the name of the operation.
        option: the option, or None without a choice.
        cotangents: pairs of an output and the name of its cotangent.
        equations: the equations as given.
        definitions: further tensors that the engine named, such as a logsumexp.
        adjoints: the cotangents of equations that are computed on their own.
        gradients: a `Formula` for each name that was requested.
    """

    name: str
    option: str | None
    cotangents: tuple[tuple[str, str], ...]
    """(output, the name of its cotangent)."""
    equations: tuple[Formula, ...]
    definitions: tuple[Formula, ...]
    adjoints: tuple[Formula, ...]
    gradients: Mapping[str, Formula]
    printed: Callable[[], tuple[Formula, ...]]

    @cached_property
    def shown(self) -> tuple[Formula, ...]:
        """Adjoints and gradients as `text` prints them.

        A sum divided by a size is a mean, and sums with common factors are merged. A sum that an
        integer tensor selects from is a gather, 0 where the position is out of range. Indices have
        the letters of the operation. Another gradient, or an equation that is a power, is
        referred to by name where that is shorter.
        """
        return self.printed()


Told = Callable[[], tuple[tuple[DerivationStep, ...], tuple[Formula, ...]]]
"""Computes the steps of an operation, and all names that the steps read."""


class _Printed:
    """What a result of formulas and their steps prints: text, LaTeX and HTML."""

    told: Told

    @cached_property
    def _told(self) -> tuple[tuple[DerivationStep, ...], tuple[Formula, ...]]:
        return self.told()

    @property
    def rewritten(self) -> tuple[DerivationStep, ...]:
        """The steps that rewrite the equations in a stable form before differentiation."""
        return self._told[0]

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return as_html(self._sheet(False))

    def text(self, steps: bool = False) -> str:
        """Return the formulas in Unicode; with ``steps``, also the steps that lead to them."""
        return as_text(self._sheet(steps))

    def latex(self, steps: bool = False) -> str:
        """Return the same as the body of a LaTeX document with amsmath."""
        return as_latex(self._sheet(steps))

    def _sheet(self, steps: bool) -> Document:
        raise NotImplementedError


@dataclass(frozen=True, repr=False, eq=False)
class Tangents(_Printed, Mapping[str, Formula]):
    """Forward-mode derivatives: a mapping from each output to the `Formula` of its tangent.

        d_Y[n] = Sum_A Sum_i dY[n]/dA[i] * d_A[i]

    ``given`` pairs each input with the name of its tangent. ``str(tangents)`` is what
    ``derive show --tangent`` prints.

    >>> import derive
    >>> tangents = derive.derivation(derive.parse("C[i,j] = sum[k](A[i,k]*B[k,j])")).tangents
    >>> print(tangents["C"])
    d_C[i,j] = Σₖ d_A[i,k]·B[k,j] + Σₖ d_B[k,j]·A[i,k]
    """

    name: str
    option: str | None
    given: tuple[tuple[str, str], ...]
    equations: tuple[Formula, ...]
    definitions: tuple[Formula, ...]
    formulas: Mapping[str, Formula]
    """By output or equation, in order of computation."""
    told: Told

    def __getitem__(self, name: str) -> Formula:
        return self.formulas[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.formulas)

    def __len__(self) -> int:
        return len(self.formulas)

    def __repr__(self) -> str:
        option = "" if self.option is None else f", {self.option!r}"
        return f"Tangents({self.name!r}{option}, of: {', '.join(self)})"

    def _sheet(self, steps: bool) -> Document:
        moves = bool(self.formulas)
        return Document(
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
class Derivation(_Printed, Formulas):
    """The gradients of an operation with their steps, cost and tangents; see `derive.derivation`.

    ``str(d)`` is what ``derive show`` prints, and a notebook shows the formulas. Steps, cost and
    tangents are computed on first access.

    >>> import derive
    >>> d = derive.derivation(derive.parse("S[k] = exp(A[k]) / sum[l](exp(A[l]))"))
    >>> print(d.gradients["A"])
    grad_A[k] = S[k]·(G[k] − Σₖ′ G[k′]·S[k′])
    >>> d.saved
    ('S',)
    """

    told: Told
    made: Callable[[], tuple[tuple[tuple[str, str, str], ...], tuple[str, ...], Cost]]
    moved: Callable[[], Tangents]

    @property
    def step_definitions(self) -> tuple[Formula, ...]:
        """``definitions``, and further tensors that only the steps use."""
        return self._told[1]

    @property
    def recognised(self) -> tuple[tuple[str, str, str], ...]:
        """Triples (equation, lowering pattern of its code, the identity of the pattern)."""
        return self._made[0]

    @property
    def saved(self) -> tuple[str, ...]:
        """The names of the tensors that the forward saves for the backward."""
        return self._made[1]

    @property
    def cost(self) -> Cost:
        """The `Cost` of the generated code."""
        return self._made[2]

    @cached_property
    def tangents(self) -> Tangents:
        """The forward-mode derivatives, a `Tangents` mapping by output."""
        return self.moved()

    @cached_property
    def _made(self) -> tuple[tuple[tuple[str, str, str], ...], tuple[str, ...], Cost]:
        return self.made()

    def __repr__(self) -> str:
        option = "" if self.option is None else f", {self.option!r}"
        return f"Derivation({self.name!r}{option}, gradients: {', '.join(self.gradients)})"

    def _repr_latex_(self) -> str:
        every = (*self.equations, *self.definitions, *self.shown)
        return in_display(f.sides("latex") for f in every)

    def _sheet(self, steps: bool) -> Document:
        saved = ", ".join(self.saved) or "nothing"
        cost = f"{self.cost.operations} operations, {self.cost.contractions} contractions"
        return Document(
            title=titled(self.name, self.option),
            equations=self.equations,
            named=self.step_definitions if steps else self.definitions,
            heading="gradients" if self.cotangents else "no output has a gradient",
            symbols=[(name, "=", f"∂L/∂{output}") for output, name in self.cotangents],
            results=self.shown,
            foot=f"saved for backward: {saved}; backward: {cost}",
            has_steps=steps,
            rewritten=self.rewritten if steps else (),
            recognised=self.recognised if steps else (),
        )


def steps_of(d: Derivation) -> list[DerivationStep]:
    """Return all steps of a derivation, in order."""
    return [*d.rewritten, *(s for f in (*d.adjoints, *d.gradients.values()) for s in f.steps)]

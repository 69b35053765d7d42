"""The results of `derive.derivation`: gradients, tangents and cost as formulas, with steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from derive.cost.costs import Costs
from derive.notation.advice import plural
from derive.reports.document import (
    Document,
    as_article,
    as_html,
    as_latex,
    as_markdown,
    as_text,
    titled,
)
from derive.reports.formula import DerivationStep, Formula
from derive.show.line_breaks import in_display


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
    """What a result of formulas and their steps prints: text, LaTeX, Markdown and HTML."""

    told: Told

    @cached_property
    def _told(self) -> tuple[tuple[DerivationStep, ...], tuple[Formula, ...]]:
        return self.told()

    @property
    def rewritten(self) -> tuple[DerivationStep, ...]:
        """The steps that rewrite the equations in a stable form before differentiation."""
        return self._told[0]

    def _repr_html_(self) -> str:
        return as_html(self.document(False))

    def _repr_latex_(self) -> str:
        sheet = self.document(False)
        return in_display(f.parts for f in (*sheet.equations, *sheet.named, *sheet.results))

    def text(self, steps: bool = False) -> str:
        """Return the formulas in Unicode; with ``steps``, also the steps that lead to them."""
        return as_text(self.document(steps))

    __str__ = text

    def latex(self, steps: bool = False) -> str:
        """Return the same as the body of a LaTeX document with amsmath."""
        return as_latex(self.document(steps))

    def article(self, steps: bool = False) -> str:
        """Return the same as a whole LaTeX article; any LaTeX has the packages that it uses."""
        return as_article([self.document(steps)])

    def markdown(self, steps: bool = False) -> str:
        """Return the same as Markdown with mathematics in dollar signs."""
        return as_markdown(self.document(steps))

    _repr_markdown_ = markdown

    def document(self, steps: bool) -> Document:
        """Return the formulas, and with ``steps`` their steps, in the order of a document."""
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

    def document(self, steps: bool) -> Document:
        """Return the tangents, and with ``steps`` their steps, in the order of a document."""
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

    def document(self, steps: bool) -> Document:
        """Return the gradients, and with ``steps`` their steps, in the order of a document."""
        saved = ", ".join(self.saved) or "nothing"
        cost = f"{plural(self.cost.operations, 'operation')}, "
        cost += plural(self.cost.contractions, "contraction")
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

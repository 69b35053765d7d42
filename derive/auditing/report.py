"""The result of an audit: a row for each input, and hints to mend the backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from derive.show.tables import Note, Table, Tabular

_LINES = 12
"""Up to this many derived formulas are printed in full."""


@dataclass(frozen=True)
class InputVerdict:
    """The gradient in one input: right, or what is wrong with it and where.

    ``right`` is False where backward silently gives other numbers at the structure of the
    examples; ``wrong`` says which. ``fragile`` says where it is right at the examples, but not at
    other sizes or values that the forward accepts. ``constant`` says why it is not judged.

    The input ``jvp`` stands for the Function's own jvp. ``unjudged`` says why that is not judged.
    """

    input: str
    right: bool
    wrong: str = ""
    fragile: str = ""
    constant: str = ""
    unjudged: str = ""

    @property
    def verdict(self) -> str:
        """The verdict: ``right``, ``wrong``, ``fragile``, ``constant`` or ``not judged``."""
        return self.findings[0][0] if self.findings else "right" if self.right else "wrong"

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """What is wrong, what is fragile, and why it is not judged, as far as there is any."""
        kinds = ("wrong", "fragile", "constant", "not judged")
        texts = (self.wrong, self.fragile, self.constant, self.unjudged)
        return tuple((kind, text) for kind, text in zip(kinds, texts, strict=True) if text)


@dataclass(frozen=True)
class Report(Tabular):
    """The verdict on a Function; ``str`` names each input and each mistake.

    A notebook shows the inputs as a table.

    - wrong: silently other numbers at the structure of the examples.
    - fragile: an error, or other numbers at sizes or values that no example has.
    - remarks: kinks and ties, the second backward, conventions.

    ``right`` is False for the first alone.
    """

    name: str
    rows: tuple[InputVerdict, ...]
    remarks: tuple[str, ...] = ()
    formulas: tuple[str, ...] = ()
    counterexample: str = ""
    judged: tuple[str, ...] = ()
    second_order: str = ""
    """``right``, ``wrong``, ``nan``, ``constant``, ``refused``; '' if not judged."""
    fixed: str = field(default="", repr=False)
    """The source of the derived backward, if the operation is known."""
    written: tuple[str, ...] = ()
    """The wrong hand-written gradients as equations, if they can be traced."""
    fragile: tuple[str, ...] = ()
    """Fragile findings about the call as a whole, such as an error in backward."""

    @property
    def right(self) -> bool:
        """True if every gradient is right at the structure of the examples."""
        return all(row.right for row in self.rows)

    @property
    def verdict(self) -> str:
        """The verdict: ``right``, ``fragile`` or ``wrong``."""
        if not self.right:
            return "wrong"
        return "fragile" if self.fragile or any(row.fragile for row in self.rows) else "right"

    def __str__(self) -> str:
        return self.text()

    def text(self, full: bool = False) -> str:
        """Return the report as text; with ``full`` it has all formulas."""
        lines = [f"{self.name}: {self.verdict}"]
        width = max((len(row.input) for row in self.rows), default=0)
        for row in self.rows:
            told = "; ".join(f"{kind}: {text}" for kind, text in row.findings) or row.verdict
            lines.append(f"  {row.input:<{width}}  {told}")
        lines += [f"  fragile: {text}" for text in self.fragile]
        for heading, notes in self._notes(full):
            lines += [heading, *(f"  {line}" for line in notes)]
        if self.judged:
            lines.append(f"judged: {', '.join(self.judged)}")
        return "\n".join(lines)

    def table(self) -> Table:
        """Return a row for each input: its verdict, and what is wrong with it."""
        rows = [
            (row.input, row.verdict, "; ".join(text for _, text in row.findings))
            for row in self.rows
        ]
        rows += [("", "fragile", text) for text in self.fragile]
        notes = [*self._notes(False)]
        notes += [(f"judged: {', '.join(self.judged)}", ())] if self.judged else []
        head = ("input", "verdict", "finding")
        return Table(f"{self.name}: {self.verdict}", head, rows, notes)

    def _notes(self, full: bool) -> Iterator[Note]:
        """Yield what is told below the inputs."""
        if self.counterexample and not self.right:
            yield "smallest counterexample", self.counterexample.splitlines()
        if self.formulas and not self.right:
            yield "derived", self._derived(full)
        if self.written and not self.right:
            yield "written", self.written
        if self.remarks:
            yield "remarks", self.remarks

    def _derived(self, full: bool) -> list[str]:
        """Return the formulas; if there are many, only those of wrong gradients."""
        shown = self.formulas
        if len(shown) > _LINES and not full:
            wrong = tuple(f"grad_{row.input}[" for row in self.rows if not row.right)
            wrong += tuple(f"grad_{row.input} =" for row in self.rows if not row.right)
            shown = tuple(f for f in shown if f.startswith(wrong))
            left = len(self.formulas) - len(shown)
            shown += (f".. {left} more lines: --full shows them",)
        return [*shown]

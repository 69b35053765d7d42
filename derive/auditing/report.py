"""What an audit finds: a row for each input, and what a person needs to mend it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """The gradient in one input: right, or what is wrong with it and where."""

    input: str
    right: bool
    wrong: str = ""


@dataclass(frozen=True)
class Report:
    """The verdict on a Function; ``str`` names each input and each mistake.

    ``remarks`` do not make it wrong: they tell of values where torch's convention is another one,
    of broadcasting that the examples do not ask for, and of the second backward.
    """

    name: str
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()
    formulas: tuple[str, ...] = ()
    counterexample: str = ""
    judged: tuple[str, ...] = ()
    second_order: str = ""
    """``right``, ``wrong``, ``constant``, ``refused``; '' where it is not judged."""
    fixed: str = field(default="", repr=False)
    """The derived backward as source, where the operation is known."""
    written: tuple[str, ...] = ()
    """The hand-written gradients that are wrong, as equations, where they can be read."""

    @property
    def right(self) -> bool:
        """Whether every gradient is right everywhere that was judged."""
        return all(row.right for row in self.rows)

    def __str__(self) -> str:
        lines = [f"{self.name}: {'right' if self.right else 'wrong'}"]
        width = max((len(row.input) for row in self.rows), default=0)
        for row in self.rows:
            told = "right" if row.right else f"wrong: {row.wrong}"
            lines.append(f"  {row.input:<{width}}  {told}")
        if self.counterexample and not self.right:
            lines += ["smallest counterexample", f"  {self.counterexample}"]
        if self.formulas and not self.right:
            lines += ["derived", *(f"  {text}" for text in self.formulas)]
        if self.written and not self.right:
            lines += ["written", *(f"  {text}" for text in self.written)]
        if self.remarks:
            lines += ["remarks", *(f"  {text}" for text in self.remarks)]
        if self.judged:
            lines.append(f"judged: {', '.join(self.judged)}")
        return "\n".join(lines)

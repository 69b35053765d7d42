"""What an audit finds: a row for each input, and what a person needs to mend it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """The verdict on one gradient: ``right``, or ``wrong`` with the mistake and its place."""

    input: str
    right: bool
    wrong: str = ""


@dataclass(frozen=True)
class Report:
    """The verdict of `derive.audit` on a Function. ``str(report)`` names each mistake.

    Attributes:
        name: the name of the Function.
        rows: one `Row` per differentiable input.
        remarks: findings that do not make the Function wrong: another convention than torch's at a
            kink, broadcasting outside of the examples, a wrong second backward.
        formulas: the derived gradients, as equations.
        counterexample: the smallest inputs found at which a gradient is wrong.
        judged: the conditions that were checked.
        second_order: "right", "wrong", "constant" or "refused"; "" if it was not checked.
        fixed: the source of a module with the derived backward; "" if the forward cannot be read.
        written: the wrong hand-written gradients as equations, if they can be read.
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
        """Whether all gradients are right under all conditions that were checked."""
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

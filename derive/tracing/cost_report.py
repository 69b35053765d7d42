"""``derive.report``: which modules run derived code, why the others do not, and both costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from derive.errors import DeriveError
from derive.tracing.call_cost import CallCost, bytes_text


@dataclass(frozen=True)
class Fact:
    """Outcome of one reading; a cost is None if it depends on values."""

    refused: str = ""
    """Reason why the plain function runs; '' if derived code does."""
    plain: CallCost | None = None
    ours: CallCost | None = None


@dataclass(frozen=True)
class Row:
    """Line of a module for one kind of arguments."""

    name: str
    kind: str
    fact: Fact | None
    """None if the module was not called."""
    inside: int = 0
    """Number of submodules that its derived code covers."""

    @property
    def derived(self) -> bool:
        """True if derived code runs."""
        return self.fact is not None and not self.fact.refused

    @property
    def reason(self) -> str:
        """Reason for running the plain function, or what derived code covers."""
        if self.fact is None:
            return "not called yet"
        if self.fact.refused:
            return self.fact.refused
        return f"with the {self.inside} modules inside of it" if self.inside else ""


@dataclass(frozen=True)
class Report:
    """The rows of a table, which ``print`` shows."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        head = ("module", "kind", "runs", "time", "saved", "why")
        cells = [head, *map(_cells, self.rows)]
        widths = [max(len(row[n]) for row in cells) for n in range(len(head) - 1)]
        lines = []
        for row in cells:
            front = "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=False))
            lines.append(f"{front}  {row[-1]}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def _cells(row: Row) -> tuple[str, ...]:
    fact = row.fact or Fact()
    runs = "-" if row.fact is None else "derived" if row.derived else "plain"
    time = saved = ""
    if fact.plain is not None and fact.ours is not None:
        ratio = fact.ours.seconds / max(fact.plain.seconds, 1e-12)
        time = f"{ratio:.2f}"
        saved = f"{bytes_text(fact.plain.saved)} -> {bytes_text(fact.ours.saved)}"
    reason = row.reason.partition("\n")[0]
    return row.name, row.kind, runs, time, saved, reason


def report(target: Any, *args: Any, **named: Any) -> Report:
    """Return a table of what `replace` or `differentiate` did, a row for each reading.

    A row has the module, whether it runs derived code, and why not. ``time`` is the
    ratio of the estimated times of derived and plain code, with the backward. ``saved`` has the
    bytes that each saves for the backward, plain code first.

    Args:
        target: a model that `replace` returned, or a function that `differentiate` did.
        args: if there are any, ``target`` is called with these first.
        named: the same.

    Raises:
        DeriveError: ``target`` is neither.

    >>> import derive, torch
    >>> model = derive.replace(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()))
    >>> [(row.name, row.derived) for row in derive.report(model, torch.ones(2, 3)).rows]
    [('model', True)]
    """
    import torch

    if not (hasattr(target, "known") or hasattr(target, "_derived")):
        raise DeriveError(
            f"{type(target).__name__} is neither a model that derive.replace returned nor a "
            "function that derive.differentiate did"
        )
    if args or named:
        target(*args, **named)
    if not isinstance(target, torch.nn.Module):
        name = getattr(target, "__name__", "function")
        return Report(tuple(_rows_of(target.known, name, "function", 0)))
    return Report(tuple(_rows(target, "model")))


def _rows(module: Any, name: str) -> Iterator[Row]:
    """Yield the rows of a module, and of submodules that its derived code does not cover."""
    known = getattr(module, "_derived", None)
    inside = sum(1 for _ in module.modules()) - 1
    own = [] if known is None else list(_rows_of(known, name, type(module).__name__, inside))
    yield from own
    if own and all(row.derived for row in own):
        return
    for child, part in module.named_children():
        yield from _rows(part, f"{name}.{child}")


def _rows_of(known: Any, name: str, kind: str, inside: int) -> Iterator[Row]:
    if not known.facts:
        yield Row(name, kind, None)
    for fact in known.facts.values():
        yield Row(name, kind, fact, inside)

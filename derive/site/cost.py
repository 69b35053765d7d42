"""The cost of an operation as the pages show it: a table of formulas, and charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from derive.cost.size_formula import Amount
from derive.notation.operation import Operation
from derive.reports.result import Cost
from derive.site.plot import plots


@dataclass(frozen=True)
class CostRow:
    """A line of the table of costs: what, in the forward, in the backward."""

    what: str
    forward: str
    backward: str


@dataclass(frozen=True)
class CostView:
    """The cost of one option: formulas in the sizes, and charts over one size."""

    rows: tuple[CostRow, ...]
    kept: str
    own: str
    plots: tuple[str, ...]


def cost_view(op: Operation, cost: Cost) -> CostView:
    """Return the table and the charts of a cost."""
    return CostView(tuple(_rows(cost)), str(cost.saved_bytes), str(cost.own_bytes), plots(op, cost))


def _rows(cost: Cost) -> Iterator[CostRow]:
    works = cost.forward, cost.backward
    yield CostRow("flops", *(str(w.flops) for w in works))
    yield CostRow("passes over full tensors", *(str(w.passes) for w in works))
    yield CostRow("largest intermediate", *(_most(w.largest) for w in works))


def _most(amounts: Sequence[Amount]) -> str:
    shown = list(dict.fromkeys(map(str, amounts)))
    return f"max({', '.join(shown)})" if len(shown) > 1 else (shown or ["none"])[0]

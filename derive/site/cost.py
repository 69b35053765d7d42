"""The cost of an operation as the pages show it: a table of formulas, and charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derive.cost.size_formula import Amount
from derive.notation.operation import Operation
from derive.reports.result import Cost
from derive.site.plot import plots


def cost_view(op: Operation, cost: Cost) -> dict[str, Any]:
    """Return the table of one option, formulas in the sizes, and its charts over one size."""
    works = cost.forward, cost.backward
    rows = {
        "flops": [str(work.flops) for work in works],
        "passes over full tensors": [str(work.passes) for work in works],
        "largest intermediate": [_most(work.largest) for work in works],
    }
    return {
        "rows": [{"what": x, "forward": f, "backward": b} for x, (f, b) in rows.items()],
        "kept": str(cost.saved_bytes),
        "own": str(cost.own_bytes),
        "plots": plots(op, cost),
    }


def _most(amounts: Sequence[Amount]) -> str:
    shown = list(dict.fromkeys(map(str, amounts)))
    return f"max({', '.join(shown)})" if len(shown) > 1 else (shown or ["none"])[0]

"""Print the table of ``verify``: one row per operation, one column per check, then the errors.

value
│ gradient
│ │ vmap
✓ ✓ -  exp
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from derive.command.console import print_line

if TYPE_CHECKING:
    from derive.check.checks import Check
    from derive.check.invoke import Column

_PASSED, _WRONG, _NOT_ASKED = "✓", "✗", "-"
_STYLES = {_PASSED: "green", _WRONG: "bold red", _NOT_ASKED: "dim"}
_FEW = 20
"""Tables with fewer rows do not repeat the column names."""
_NAMED = 6
"""Operations listed beside a reason."""


def print_verified(
    rows: Sequence[Check], columns: Sequence[Column], verbose: bool, quiet: bool
) -> None:
    """Print the table, the statements and reasons if verbose, and the errors."""
    wrong = [row for row in rows if not row.ok]
    if not quiet:
        _print_table(rows, columns)
        for line in (*_statements(columns), *_reasons(rows)) if verbose else ():
            print_line([(line, "")])
    for row in wrong:
        option = "" if row.option is None else f" ({row.option})"
        text = f"wrong: {row.operation}{option}: {row.check}, {row.case}: {row.detail}"
        print_line([(text, "")])
    if not quiet:
        apart = sum(bool(row.reason) for row in rows)
        total = len(rows) - apart
        more = f"; {apart} not applicable" + ("" if verbose else " (--verbose)") if apart else ""
        print_line([(f"{total - len(wrong)} of {total} checks passed{more}", "")])


def _print_table(rows: Sequence[Check], columns: Sequence[Column]) -> None:
    cells: dict[str, dict[str, list[Check]]] = {}
    for row in rows:
        cells.setdefault(row.operation, {}).setdefault(row.check, []).append(row)
    names = [column.name for column in columns]
    heads = ["│ " * n + name for n, name in enumerate(names)]
    for head in heads:
        print_line([(head, "dim")])
    for operation, checks in cells.items():
        marks = [_mark(checks.get(name, [])) for name in names]
        print_line([*((f"{mark} ", _STYLES[mark]) for mark in marks), (f" {operation}", "")])
    if len(cells) >= _FEW:
        for head in reversed(heads):
            print_line([(head, "dim")])


def _mark(checks: Sequence[Check]) -> str:
    """Return the mark of one check over all cases and options of an operation."""
    if any(not check.ok for check in checks):
        return _WRONG
    return _PASSED if any(not check.reason for check in checks) else _NOT_ASKED


def _statements(columns: Sequence[Column]) -> Iterator[str]:
    width = max(len(column.name) for column in columns)
    for column in columns:
        yield f"{column.name:{width}}  {column.states}"


def _reasons(rows: Sequence[Check]) -> Iterator[str]:
    """Yield each reason why a check does not apply, with the operations."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if row.reason:
            found.setdefault((row.check, row.reason), {})[row.operation] = None
    for (check, reason), operations in found.items():
        named = [*operations][:_NAMED]
        more = f" and {len(operations) - _NAMED} more" if len(operations) > _NAMED else ""
        yield f"- {check}: {reason}: {', '.join(named)}{more}"

"""``derive audit PACKAGE --examples FILE.py``: audit every Function with examples in the file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from derive import __version__
from derive.command.console import count, print_json, shown
from derive.command.objects import mapping_of, named_object, reference_of
from derive.command.parallel import each
from derive.errors import DeriveError

if TYPE_CHECKING:
    from derive.auditing.report import Report

_KEYS = {"examples", "reference", "constants", "once"}


@dataclass(frozen=True)
class Audited:
    """The verdict on one Function of a package, as plain data."""

    name: str
    verdict: str
    text: str
    found: Mapping[str, Any]
    file: str = ""
    line: int = 1

    @property
    def summary(self) -> str:
        """The findings in one line."""
        if self.verdict == "not judged":
            return self.text.partition("cannot be judged: ")[2] or self.text
        rows = [
            f"{row['input']}: {row['wrong'] or row['fragile']}"
            for row in self.found["rows"]
            if row["wrong"] or row["fragile"]
        ]
        return "; ".join([*rows, *self.found["fragile"]])


def audit_package(
    within: str, path: Path, seconds: float, strict: bool, format_: str, json_: bool, quiet: bool
) -> int:
    """Print the findings; return exit code 1 if one is wrong, else 2 if one cannot be judged."""
    import torch  # before the fork, so that the workers have it

    # A thread pool does not survive a fork, and a worker that waits for it would hang.
    torch.set_num_threads(1)
    if format_ not in ("text", "github", "sarif"):
        raise typer.BadParameter("--format is text, github or sarif")
    names = [name for name in mapping_of(path) if _is_within(name, within)]
    if not names:
        text = f"{shown(path)} has no example of a Function in {within}"
        raise DeriveError(text, kind="examples-file")
    found = []
    for name, one in zip(names, each(partial(_audited, path, seconds), names, str, 1), strict=True):
        made = Audited(name, "not judged", str(one), {}) if isinstance(one, DeriveError) else one
        found.append(made)
    if json_:
        print_json([{"function": a.name, **a.found, "verdict": a.verdict} for a in found])
    elif format_ == "sarif":
        print_json(_sarif(found))
    else:
        _print_audited(found, format_ == "github", quiet)
    verdicts = {a.verdict for a in found}
    if "wrong" in verdicts or (strict and "fragile" in verdicts):
        return 1
    return 2 if "not judged" in verdicts else 0


def _is_within(name: str, within: str) -> bool:
    place = name.rpartition(":")[0]
    return within in (".", place) or place.startswith((f"{within}.", f"{within.rstrip('/')}/"))


@cache
def _examples_mapping(path: Path) -> Mapping[str, Any]:
    return mapping_of(path)


def _audited(path: Path, seconds: float, name: str) -> Audited:
    from derive.auditing.audit import audit_all

    entry = _examples_mapping(path)[name]
    options = dict(entry) if isinstance(entry, Mapping) else {"examples": entry}
    unknown = sorted(set(options) - _KEYS)
    if unknown or "examples" not in options:
        text = f"{name}: an entry has examples, reference, constants and once"
        raise DeriveError(text, kind="examples-file")
    function = named_object(name)
    calls = options["examples"]
    if calls and not all(isinstance(call, list | tuple) for call in calls):
        calls = [calls]
    reference = options.get("reference")
    reference = reference_of(reference) if isinstance(reference, str) else reference
    more = options.get("constants", ()), options.get("once", False)
    report = audit_all(function, calls, reference, *more, seconds=seconds)
    file, line = _backward_location(function)
    return Audited(name, report.verdict, str(report), as_json(report), file, line)


def _backward_location(function: Any) -> tuple[str, int]:
    """Return the file and line of the backward."""
    try:
        code = inspect.unwrap(function.backward).__code__
        return shown(Path(code.co_filename)), code.co_firstlineno
    except AttributeError:
        return "", 1


def _print_audited(found: Sequence[Audited], github: bool, quiet: bool) -> None:
    width = max(len(a.name) for a in found)
    for a in found:
        if not (quiet and a.verdict == "right"):
            typer.echo(f"{a.name:<{width}}  {a.verdict}")
    for a in (a for a in found if a.verdict != "right"):
        typer.echo(f"\n{a.text}")
        if github:
            kind = "error" if a.verdict == "wrong" else "warning"
            message = f"{a.name}: {a.summary}".replace("%", "%25").replace("\n", "%0A")
            typer.echo(f"::{kind} file={a.file},line={a.line}::{message}")
    if not quiet:
        counts = {v: sum(a.verdict == v for a in found) for v in _VERDICTS}
        told = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
        typer.echo(f"\n{count(found, 'Function')}: {told}")


_VERDICTS = ("right", "fragile", "wrong", "not judged")


def _sarif(found: Sequence[Audited]) -> dict[str, Any]:
    """Return the findings in the Static Analysis Results Interchange Format 2.1.0."""
    kinds = {
        "wrong": ("wrong-gradient", "error", "A gradient is silently wrong."),
        "fragile": ("fragile-gradient", "warning", "A backward is fragile."),
        "not judged": ("not-judged", "note", "A Function could not be judged."),
    }
    rules = [{"id": key, "shortDescription": {"text": said}} for key, _, said in kinds.values()]
    results = [
        {
            "ruleId": kinds[a.verdict][0],
            "level": kinds[a.verdict][1],
            "message": {"text": f"{a.name}: {a.summary}"},
            "locations": [{"physicalLocation": _place(a)}],
        }
        for a in found
        if a.verdict != "right"
    ]
    driver = {"name": "derive", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _place(a: Audited) -> dict[str, Any]:
    return {"artifactLocation": {"uri": a.file}, "region": {"startLine": a.line}}


def as_json(report: Report) -> dict[str, Any]:
    return {
        "name": report.name,
        "verdict": report.verdict,
        "right": report.right,
        "rows": [vars(row) for row in report.rows],
        "fragile": list(report.fragile),
        "remarks": list(report.remarks),
        "second_order": report.second_order,
        "counterexample": report.counterexample,
        "derived": list(report.formulas),
        "written": list(report.written),
    }

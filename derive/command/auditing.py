"""``derive audit``: a hand-written autograd.Function, right or wrong, and which term."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from derive.command.console import print_json, shown
from derive.command.options import Json, Quiet, hush, need_torch
from derive.errors import DeriveError


def audit(
    function: Annotated[
        str,
        typer.Argument(metavar="MODULE:CLASS", help="A Function; FILE.py:CLASS for one of a file."),
    ],
    example: Annotated[
        Path,
        typer.Option(
            metavar="FILE.py",
            help="Defines examples(), which returns lists of inputs of the forward.",
        ),
    ],
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME | TEXT",
            help="What the forward is meant to be: a torch function, an operation or its text.",
        ),
    ] = None,
    fix: Annotated[
        Path | None,
        typer.Option(metavar="OUT.py", help="Write the derived backward as a module."),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Every gradient of a hand-written Function, right or wrong, and which term.

    Exits with 0 where it is right, 1 where it is wrong, 2 where it cannot be judged.
    """
    need_torch()
    from derive.auditing.judged import audit_all

    hush(quiet)
    report = audit_all(_named(function), _examples(example), _reference(reference))
    if fix is not None:
        if not report.fixed:
            raise DeriveError(
                f"{report.name} has no derived backward: its forward could not be read; give the "
                "operation by --reference, in index notation"
            )
        fix.write_text(report.fixed, encoding="utf-8")
    if json_:
        print_json(
            {
                "name": report.name,
                "right": report.right,
                "rows": [vars(row) for row in report.rows],
                "remarks": list(report.remarks),
                "second_order": report.second_order,
                "counterexample": report.counterexample,
                "derived": list(report.formulas),
            }
        )
    elif not (quiet and report.right):
        typer.echo(str(report))
        if fix is not None:
            typer.echo(f"wrote {shown(fix)}")
    raise typer.Exit(0 if report.right else 1)


def _examples(path: Path) -> Sequence[Sequence[Any]]:
    """What the file's examples() returns: one list of inputs, or several."""
    module = _loaded(path)
    make = getattr(module, "examples", None)
    if not callable(make):
        raise DeriveError(
            f"{shown(path)} has no function examples(): it returns lists of inputs of the forward"
        )
    made = list(make())
    if made and not all(isinstance(one, list | tuple) for one in made):
        made = [made]
    return made


def _reference(given: str | None) -> Any:
    """An operation in text, or an object of a module."""
    if given is None or "=" in given:
        return given
    return _named(given)


def _named(given: str) -> Any:
    """The object that MODULE:NAME or FILE.py:NAME names."""
    place, found, name = given.rpartition(":")
    if not found or not place or not name:
        raise DeriveError(f"{given!r} names no class: write MODULE:CLASS or FILE.py:CLASS")
    value: Any = _loaded(Path(place)) if place.endswith(".py") else _imported(place)
    for part in name.split("."):
        if not hasattr(value, part):
            raise DeriveError(f"{place} has no {name}; it has {', '.join(_public(value))}")
        value = getattr(value, part)
    return value


def _public(value: Any) -> list[str]:
    return [name for name in vars(value) if not name.startswith("_")][:20]


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except Exception as error:
        raise DeriveError(
            f"the module {name} cannot be imported: {type(error).__name__}: {error}"
        ) from None


def _loaded(path: Path) -> ModuleType:
    """The module of a file, its folder on the path of imports as for a script."""
    if not path.is_file():
        raise DeriveError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise DeriveError(
            f"{shown(path)} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    return module

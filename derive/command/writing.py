"""The commands ``generate`` and ``check``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated

import typer

from derive.budget import SECONDS
from derive.command.console import (
    count,
    mends,
    print_differences,
    print_generated,
    print_json,
    progress,
    shown,
)
from derive.command.options import (
    Blocks,
    Json,
    Limit,
    Out,
    Quiet,
    Saves,
    Specs,
    Standalone,
    Styles,
    Watch,
    hush,
    need_torch,
    warn,
)
from derive.command.project import (
    SUFFIXES,
    Project,
    find_project,
    folder_of,
    lookup,
    operations_of,
    project_files,
    spec_files,
)
from derive.command.watching import watch

if TYPE_CHECKING:
    from derive.command.build import Asked, BuiltModule
    from derive.notation.operation import Operation


def generate(
    specs: Specs = None,
    out: Out = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Write without verification.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Skip operations that fail, and write the others.")
    ] = False,
    blocks: Blocks = None,
    save: Saves = None,
    standalone: Standalone = None,
    style: Styles = None,
    watched: Watch = False,
    json_: Json = False,
    quiet: Quiet = False,
    limit: Limit = SECONDS,
) -> None:
    """Verify the gradients, then write the modules."""
    if watched:
        watch(lambda: project_files(Path.cwd(), map(str, specs or ())))
        return
    from derive.command.modules import files_of, refuse_foreign, write

    hush(quiet)
    project = find_project(Path.cwd())
    folder = folder_of(out, project)
    inlined = _standalone(standalone, project)
    operations = _wanted(specs, project, limit)
    refuse_foreign(folder, files_of(dict.fromkeys(operations, ""), inlined))
    if not no_verify:
        need_torch()
    from derive.command.module_options import build_requests, scheduled

    index = scheduled(blocks or (), operations)
    asked_of = build_requests(folder, operations, index, save, inlined, style)
    modules, failures = _modules(asked_of, keep_going)
    for module in modules:
        warn(module.warnings)
    if not no_verify:
        modules, wrong = _verified(modules)
        failures += wrong
    written: list[Path] = []
    removed: list[Path] = []
    if keep_going or not failures:
        texts = {m.operation.name: m.text for m in modules}
        files = files_of(texts, inlined) if texts or not failures else {}
        asked = None if specs else files_of(dict.fromkeys(operations, ""), inlined)
        written, removed = write(folder, files, asked)
    if json_:
        print_json(
            {
                "operations": list(operations),
                "verified": not no_verify and not failures,
                "failures": failures,
                "written": [str(path) for path in written],
                "removed": [str(path) for path in removed],
            }
        )
    else:
        verified = f"{count(modules)} {'not verified' if no_verify else 'verified'}"
        state = f"{verified}, {count(written, 'file')} written to {shown(folder)}"
        outcome = (count(operations), state)
        print_generated(failures, written, removed, outcome, keep_going, quiet)
    raise typer.Exit(1 if failures else 0)


def check(
    specs: Specs = None,
    out: Out = None,
    standalone: Standalone = None,
    json_: Json = False,
    quiet: Quiet = False,
    limit: Limit = SECONDS,
) -> None:
    """Check that generated modules match their specs."""
    from derive.command.modules import compare, files_of

    hush(quiet)
    project = find_project(Path.cwd())
    folder = folder_of(out, project)
    inlined = _standalone(standalone, project)
    operations = _wanted(specs, project, limit)
    from derive.command.module_options import build_requests

    requests = build_requests(folder, operations, {}, standalone=inlined)
    modules, _ = _modules(requests, False, costed=False)
    files = files_of({m.operation.name: m.text for m in modules}, inlined)
    found = compare(folder, files)
    if specs and project and project.out.resolve() == folder.resolve():
        # Modules of the project's other specs are not stale.
        others = operations_of(project.specs, limit)
        found = [d for d in found if d.kind != "stale" or d.path.stem not in others]
    mend = ["derive", "generate", *map(str, specs or ()), *(["--out", out] if out else [])]
    if standalone is not None:
        mend.append("--standalone" if standalone else "--shared")
    if json_:
        print_json(
            {
                "fresh": not found,
                "operations": list(operations),
                "differences": [
                    {"file": str(d.path), "kind": d.kind, "why": d.why, "diff": d.patch}
                    for d in found
                ],
                "mend": join(mend) if mends(found) else None,
            }
        )
    else:
        print_differences(found, join(mend), bool(specs), quiet)
        if not found and not quiet:
            typer.echo(f"{count(operations)} fresh in {shown(folder)}")
    raise typer.Exit(1 if found else 0)


def _standalone(asked: bool | None, project: Project | None) -> bool:
    """Return whether modules are standalone: as asked, else as the project says."""
    return asked if asked is not None else project is not None and project.standalone


def _wanted(
    specs: Iterable[Path] | None, project: Project | None, limit: float
) -> dict[str, Operation]:
    """Return the operations of the given files and names, or those of the project."""
    if specs:
        names = [path for path in specs if _is_name(path)]
        given = {f.operation.name: f for f in (lookup(str(p), project, limit) for p in names)}
        files = spec_files(path for path in specs if path not in names)
        found = {**operations_of(files, limit), **given}
        return {name: one.operation for name, one in found.items()}
    if project is None:
        raise typer.BadParameter(
            "no pyproject.toml in this folder or above has a [tool.derive] table; "
            "name the spec files"
        )
    return {name: one.operation for name, one in operations_of(project.specs, limit).items()}


def _is_name(path: Path) -> bool:
    """True if the argument is NAME or FILE:NAME, and not a path."""
    file, colon, _ = str(path).rpartition(":")
    of_file = bool(colon) and Path(file).suffix in SUFFIXES
    one = path.suffix not in SUFFIXES and path.parent == Path()
    return not path.exists() and (of_file or one)


def _modules(
    asked: Sequence[Asked], keep_going: bool, costed: bool = True
) -> tuple[list[BuiltModule], list[str]]:
    """Build the modules; errors are collected with ``keep_going``, else raised."""
    from derive.command.build import BuiltModule, made

    modules, failures = [], []
    found = made(asked, costed)
    for one in progress(found, "deriving", len(asked)):
        if isinstance(one, BuiltModule):
            modules.append(one)
        elif keep_going:
            failures.append(str(one))
        else:
            raise one
    return modules, failures


def _verified(modules: list[BuiltModule]) -> tuple[list[BuiltModule], list[str]]:
    """Return the modules that pass verification, and the errors of the others."""
    from derive.command.build import unverified

    found = list(progress(unverified(modules), "verifying", len(modules)))
    right = [module for module, wrong in zip(modules, found, strict=True) if wrong is None]
    return right, [str(wrong) for wrong in found if wrong is not None]

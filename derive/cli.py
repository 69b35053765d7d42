"""The command line: the commands and their exit codes. What they print stands in `console`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from derive import __version__, catalog
from derive.comparison import compare_all
from derive.console import (
    count,
    print_differences,
    print_generated,
    print_json,
    print_warning,
    progress,
    shown,
    table,
)
from derive.errors import DeriveError, DeriveWarning, VerificationError
from derive.inputs import sizes_of
from derive.modules import PACKAGE, compare, remove, write
from derive.parallel import sources
from derive.pipeline import (
    costs,
    derivation,
    names_with_gradient,
    options,
    source,
    value_and_grad_source,
)
from derive.project import Project, find_project, lookup, operations_of, spec_files
from derive.report import (
    as_json,
    comparison_as_json,
    comparison_title,
    cost_as_text,
    one_line,
    warnings_of,
)
from derive.result import Derivation
from derive.spec.notation import parse
from derive.spec.operation import Operation

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Derive the backward of tensor operations from their index notation.",
)

_TORCH = "needs torch: pip install 'derive-backward[torch]'"


class Format(StrEnum):
    """How ``show`` writes formulas."""

    unicode = "unicode"
    latex = "latex"
    json = "json"
    code = "code"


class Dtype(StrEnum):
    """What ``compare`` computes in."""

    float32 = "float32"
    float64 = "float64"


Specs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[SPEC_FILE]...", help="Files or folders; else those of [tool.derive]."),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of the modules.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def main() -> None:
    """The program; an error that a spec causes ends it with code 2."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    with warnings.catch_warnings():
        warnings.simplefilter("always", DeriveWarning)
        warnings.showwarning = print_warning
        try:
            app(prog_name="derive")
        except VerificationError as error:
            _fail(error, 1)
        except (DeriveError, OSError) as error:
            _fail(error, 2)


def _fail(error: Exception, code: int) -> NoReturn:
    typer.echo(f"derive: {error}", err=True)
    sys.exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _derive(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Derive the backward of tensor operations from their index notation."""


# ------------------------------------------------------------------ list, show


@app.command("list")
def list_(json_: Json = False) -> None:
    """The catalog and the project's own specs, one line each."""
    project = find_project(Path.cwd())
    own = operations_of(project.specs if project else ())
    found = [(op, shown(path)) for path, op in own.values()]
    found += [(op, "catalog") for op in catalog.operations() if op.name not in own]
    if json_:
        print_json([{**one_line(op), "from": origin} for op, origin in found])
        return
    width = max(len(op.name) for op, _ in found)
    for op, origin in found:
        typer.echo(f"{op.name:<{width}}  {one_line(op)['signature']}  ({origin})")


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME | FILE:NAME]", help="An operation.")
    ] = None,
    spec: Annotated[
        str | None, typer.Option(metavar="TEXT", help="An operation in index notation.")
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Every step of the way.")] = False,
    format_: Annotated[Format, typer.Option("--format")] = Format.unicode,
    wrt: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The gradient in this input or equation; repeated."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="The gradient in every equation and input.")
    ] = False,
    cost: Annotated[bool, typer.Option("--cost", help="What the code costs.")] = False,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="n=32", help="With --cost: the size of an index; repeated."),
    ] = None,
) -> None:
    """The formulas derived from an operation, its code, or what the code costs.

    With --wrt or --every the code is that of a function of the outputs and these gradients.
    """
    if (name is None) == (spec is None):
        raise typer.BadParameter("give a NAME, FILE:NAME, or --spec TEXT")
    if wrt and every:
        raise typer.BadParameter("--every is every name: leave out --wrt")
    if format_ is Format.code and steps:
        raise typer.BadParameter("--format code has no steps: leave out --steps")
    if cost and (wrt or every or steps or format_ not in (Format.unicode, Format.json)):
        raise typer.BadParameter("--cost is of the whole code, as text or --format json alone")
    if size and not cost:
        raise typer.BadParameter("--size is for --cost")
    if spec is not None:
        op = parse(spec)
    else:
        assert name is not None
        op = lookup(name, find_project(Path.cwd()))
    if cost:
        _show_cost(op, format_, sizes_of(size or ()))
        return
    if format_ is Format.code and not wrt and not every:
        typer.echo(source(op), nl=False)
        return
    asked = {
        option: names_with_gradient(chosen) if every else wrt or None
        for option, chosen in options(op)
    }
    if wrt:
        asked = {option: wrt for option in asked if _has_all(op, option, wrt)} or asked
    if format_ is Format.code:
        texts = [value_and_grad_source(op, names, option) for option, names in asked.items()]
        typer.echo("\n\n".join(texts), nl=False)
        return
    derivations = [derivation(op, option, names) for option, names in asked.items()]
    if format_ is Format.json:
        print_json([as_json(op, d, steps) for d in derivations])
    else:
        shown_as = Derivation.latex if format_ is Format.latex else Derivation.text
        typer.echo("\n\n".join(shown_as(d, steps) for d in derivations))


def _show_cost(op: Operation, format_: Format, given: dict[str, list[int]]) -> None:
    """What the code of every option costs; several sizes of a group are the axes that it has."""
    sizes = {letter: prod(several) for letter, several in given.items()}
    known = {letter for _, found in costs(op) for letter in found.letters}
    for letter in sizes:
        if letter not in known:
            raise DeriveError(f"{op.name} has no size {letter}; it has {', '.join(sorted(known))}")
    _warn_of_axes([op])
    derivations = [derivation(op, option) for option, _ in options(op)]
    if format_ is Format.json:
        print_json([as_json(op, d, False, sizes) for d in derivations])
    else:
        typer.echo("\n\n".join(cost_as_text(d, sizes) for d in derivations))


def _warn_of_axes(operations: Iterable[Operation]) -> None:
    """Warn of intermediates with more axes than anything that was written."""
    for op in operations:
        for option, found in costs(op):
            for text in warnings_of(op, option, found):
                warnings.warn(text, DeriveWarning, stacklevel=2)


def _has_all(op: Operation, option: str | None, names: list[str]) -> bool:
    """Whether the option computes all of these names."""
    return set(names) <= set(names_with_gradient(dict(options(op))[option]))


# ------------------------------------------------------------- generate, check


@app.command()
def generate(
    specs: Specs = None,
    out: Out = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Only write.")] = False,
    json_: Json = False,
) -> None:
    """Verify the gradients of every operation, then write its module."""
    project = find_project(Path.cwd())
    operations = _wanted(specs, project)
    folder = _folder(out, project)
    texts = _sources(operations)
    _warn_of_axes(operations.values())
    failures = [] if no_verify else _failures(operations, texts)
    written, removed = [], []
    if not failures:
        files = {**_package(texts), **_named(texts)}
        written = write(folder, files)
        removed = [] if specs else remove(folder, files)
    if json_:
        print_json(
            {
                "operations": list(texts),
                "verified": not no_verify and not failures,
                "failures": failures,
                "written": [str(path) for path in written],
                "removed": [str(path) for path in removed],
            }
        )
    else:
        verified = "not verified" if no_verify else "verified"
        state = f"{verified}, {len(written)} files written to {shown(folder)}"
        print_generated(failures, written, removed, (count(texts), state))
    raise typer.Exit(1 if failures else 0)


@app.command()
def check(specs: Specs = None, out: Out = None, json_: Json = False) -> None:
    """Whether the generated modules are what the specs say."""
    project = find_project(Path.cwd())
    operations = _wanted(specs, project)
    folder = _folder(out, project)
    texts = _sources(operations)
    files = {**_package(texts), **_named(texts)}
    found = compare(folder, files)
    if specs and project and project.out.resolve() == folder.resolve():
        # The folder is the whole project's: the modules of its other specs are not stale.
        others = operations_of(project.specs)
        found = [d for d in found if d.kind != "stale" or d.path.stem not in others]
    mend = " ".join(
        ["derive generate", *map(str, specs or ()), *(["--out", str(out)] if out else [])]
    )
    if json_:
        print_json(
            {
                "fresh": not found,
                "operations": list(texts),
                "differences": [
                    {"file": str(d.path), "kind": d.kind, "diff": d.patch} for d in found
                ],
                "mend": mend if found else None,
            }
        )
    else:
        print_differences(found, mend, bool(specs))
        if not found:
            typer.echo(f"{count(texts)} fresh in {shown(folder)}")
    raise typer.Exit(1 if found else 0)


def _wanted(specs: Iterable[Path] | None, project: Project | None) -> dict[str, Operation]:
    """The operations of the files, or those of the project."""
    if specs:
        files = spec_files(specs)
    elif project is not None:
        files = project.specs
    else:
        raise typer.BadParameter(
            "no pyproject.toml here or above has [tool.derive]; name the spec files"
        )
    return {name: op for name, (_, op) in operations_of(files).items()}


def _folder(out: Path | None, project: Project | None) -> Path:
    if out is not None:
        return out
    return project.out if project is not None else Path("generated")


def _sources(operations: dict[str, Operation]) -> dict[str, str]:
    found = list(operations.values())
    shown = progress(zip(found, sources(found), strict=True), "deriving", len(found))
    return {op.name: text for op, text in shown}


def _named(texts: dict[str, str]) -> dict[str, str]:
    return {f"{name}.py": text for name, text in texts.items()}


def _package(texts: dict[str, str]) -> dict[str, str]:
    return {"__init__.py": PACKAGE}


def _failures(operations: dict[str, Operation], texts: dict[str, str]) -> list[str]:
    """What does not compute its operation, or the gradients of it."""
    verify_source = _verifying().verify_source
    found = []
    for op in progress(operations.values(), "verifying", len(operations)):
        try:
            verify_source(op, texts[op.name])
        except VerificationError as error:
            found.append(str(error))
    return found


def _verifying() -> Any:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise DeriveError(f"this {_TORCH}") from None
    from derive import verify

    return verify


# ---------------------------------------------------------------------- verify


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Operations; else all of the project."),
    ] = None,
    json_: Json = False,
) -> None:
    """The gradcheck family on generated modules."""
    project = find_project(Path.cwd())
    if names:
        operations = [lookup(name, project) for name in names]
    elif project is not None:
        operations = [op for _, op in operations_of(project.specs).values()]
    else:
        operations = list(catalog.operations())
    checks_of, load_source = _verifying().checks_of, _verifying().load_source
    rows = []
    for op in progress(operations, "verifying", len(operations)):
        rows += list(checks_of(op, load_source(op, _module_text(op, project))))
    wrong = [row for row in rows if not row.ok]
    if json_:
        print_json([vars(row) for row in rows])
    else:
        table(rows)
        for row in wrong:
            option = "" if row.option is None else f" ({row.option})"
            typer.echo(f"wrong: {row.operation}{option}: {row.check}, {row.case}: {row.detail}")
        typer.echo(f"{len(rows) - len(wrong)} of {len(rows)} checks passed")
    raise typer.Exit(1 if wrong else 0)


def _module_text(op: Operation, project: Project | None) -> str:
    """The generated module: of the project, as shipped, or made now where there is none."""
    folders = [project.out] if project else []
    for folder in [*folders, Path(__file__).parent / "generated"]:
        path = folder / f"{op.name}.py"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return source(op)


# --------------------------------------------------------------------- compare


@app.command("compare")
def compare_(
    name: Annotated[str, typer.Argument(metavar="NAME | FILE:NAME", help="An operation.")],
    dtype: Annotated[Dtype, typer.Option("--dtype")] = Dtype.float32,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="n=32", help="The size of an index (p=2,3 of a group); repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random inputs.")] = 0,
    json_: Json = False,
) -> None:
    """Every intermediate gradient of the generated code against torch.autograd."""
    op = lookup(name, find_project(Path.cwd()))
    sizes = sizes_of(size or ())
    _verifying()
    found = []
    for made in compare_all(op, sizes, dtype.value, seed):
        found.append(made)
        if not json_:
            typer.echo(f"{comparison_title(made)}\n{made.comparison}")
    if json_:
        print_json([comparison_as_json(made) for made in found])
    raise typer.Exit(0 if all(made.comparison.approximate for made in found) else 1)

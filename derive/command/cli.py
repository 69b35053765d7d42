"""The commands and their exit codes; `console` prints."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from math import prod
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from derive import __version__, catalog
from derive.budget import SECONDS, allow
from derive.command.auditing import audit
from derive.command.console import print_json, print_note, print_pages, print_warning, shown
from derive.command.explaining import explain
from derive.command.graphing import graph
from derive.command.linting import lint
from derive.command.options import (
    Json,
    Limit,
    Operand,
    Quiet,
    SpecText,
    Style,
    Watch,
    hush,
    require_one,
    warn,
)
from derive.command.project import find_project, lines_of, project_files, selected_operation
from derive.command.site import docs, site
from derive.command.starting import new
from derive.command.tracing import read
from derive.command.verifying import compare, verify
from derive.command.watching import watch
from derive.command.writing import check, generate
from derive.errors import DeriveError, DeriveWarning, VerificationError

if TYPE_CHECKING:
    from derive.notation.operation import Operation
    from derive.reports.result import Derivation, Tangents


class _Program(TyperGroup):
    """The group of commands; its errors say if a global option was put after the command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            option = getattr(error, "option_name", None)
            if option and any(option in parameter.opts for parameter in self.params):
                error.message = f"{option} must precede the command"  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    cls=_Program,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Derive the backward of tensor operations from their index notation.",
)


class Format(StrEnum):
    """The output formats of ``show``."""

    unicode = "unicode"
    latex = "latex"
    tex = "tex"
    markdown = "markdown"
    json = "json"
    code = "code"


def main() -> None:
    """Run the program; errors in a spec exit with code 2."""
    # Derivation leaves few reference cycles, and the default thresholds cost a quarter of its time.
    gc.set_threshold(500_000, 10, 10)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    with warnings.catch_warnings():
        warnings.simplefilter("always", DeriveWarning)
        warnings.showwarning = print_warning
        try:
            _command()(prog_name="derive")
        except VerificationError as error:
            _fail(error, 1)
        except (DeriveError, OSError) as error:
            _fail(error, 2)


@cache
def _command() -> Any:
    """Return the commands as they are called: to make them of the signatures takes a while."""
    return typer.main.get_command(app)


def _fail(error: Exception, code: int) -> NoReturn:
    typer.echo(f"derive: {error}", err=True)
    sys.exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _derive(
    context: typer.Context,
    quiet: Quiet = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    max_seconds: Annotated[
        float | None,
        typer.Option(help="Processor time limit per operation, in seconds. Default: 60."),
    ] = None,
    max_memory: Annotated[
        float | None, typer.Option(help="Memory limit per operation, in bytes. Default: 2e9.")
    ] = None,
    max_code: Annotated[
        float | None,
        typer.Option(help="Code size limit per operation, in characters. Default: 2e6."),
    ] = None,
) -> None:
    """Derive the backward of tensor operations from their index notation."""
    allow(seconds=max_seconds, memory=max_memory, code=max_code)
    if quiet:
        assert isinstance(context.command, TyperGroup)
        context.default_map = {name: {"quiet": True} for name in context.command.commands}


# ------------------------------------------------------------------ list, show


@app.command("list")
def list_(
    pattern: Annotated[
        str | None,
        typer.Argument(metavar="PATTERN", help="Part of a name, or a glob such as 'conv*'."),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
    limit: Limit = SECONDS,
) -> None:
    """List the operations of the catalog and of the project.

    Each line has the name, the first sentence of the comment above the operation, its signature
    and its spec file. A terminal shows what fits.
    """
    hush(quiet)
    project = find_project(Path.cwd())
    own = lines_of(project.specs if project else (), limit)
    matches = _matches(pattern)
    found = [(line, shown(path)) for name, (line, path) in own.items() if matches(name)]
    for line in catalog.lines():
        if line["name"] not in own and matches(line["name"]):
            found.append((line, "catalog"))
    if not found and not quiet:
        print_note(f"no operation name matches {pattern}")
    if json_:
        print_json([{**line, "from": origin} for line, origin in found])
        return
    keys = ["name", *(["description"] if any(line["description"] for line, _ in found) else [])]
    widths = {key: max((len(line[key]) for line, _ in found), default=0) for key in keys}
    columns = get_terminal_size().columns if sys.stdout.isatty() else None
    for line, origin in found:
        start = [f"{line[key]:<{width}}" for key, width in widths.items()]
        text = "  ".join([*start, line["signature"], f"({origin})"])
        too_long = columns is not None and len(text) > columns
        typer.echo(f"{text[: (columns or 0) - 1].rstrip()}…" if too_long else text)


def _matches(pattern: str | None) -> Callable[[str], bool]:
    """Return a predicate: the name contains the pattern, or matches it if it is a glob."""
    wanted = (pattern or "").casefold()
    if set(wanted) & set("*?["):
        return lambda name: fnmatchcase(name.casefold(), wanted)
    return lambda name: wanted in name.casefold()


@app.command()
def show(
    name: Operand = None,
    spec: SpecText = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Show every step of the derivation.")
    ] = False,
    passes: Annotated[
        bool, typer.Option("--passes", help="Show what each pass of the engine changes.")
    ] = False,
    format_: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.unicode,
    style: Annotated[
        Style, typer.Option(help="With --format code: how the code is written.")
    ] = Style.production,
    wrt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Show only this gradient: an input or equation. Repeatable."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Show the gradients of all equations and inputs.")
    ] = False,
    tangent: Annotated[
        bool, typer.Option("--tangent", help="Show forward-mode tangents instead of gradients.")
    ] = False,
    cost: Annotated[
        bool, typer.Option("--cost", help="Show flops, passes, and memory of the generated code.")
    ] = False,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="n=32", help="With --cost: the size of an index. Repeatable."),
    ] = None,
    watched: Watch = False,
    quiet: Quiet = False,
    limit: Limit = SECONDS,
) -> None:
    """Print the derived formulas, the code, or the cost of the code.

    With --wrt or --every, --format code prints one function that returns the outputs and these
    gradients. With --tangent, --wrt selects the inputs that vary, and --every adds the tangents of
    all equations.
    """
    require_one(name, spec)
    if wrt and every and not tangent:
        raise typer.BadParameter("--every already includes all names: omit --wrt")
    if tangent and (cost or format_ is Format.code):
        raise typer.BadParameter("--tangent shows formulas: omit --cost and --format code")
    if format_ is Format.code and steps:
        raise typer.BadParameter("--format code has no steps: omit --steps")
    if style is Style.plain and (format_ is not Format.code or wrt or every):
        raise typer.BadParameter("--style plain requires --format code, without --wrt and --every")
    if cost and (wrt or every or steps or format_ not in (Format.unicode, Format.json)):
        raise typer.BadParameter(
            "--cost describes the whole code: omit --wrt, --every and --steps, and use --format "
            "unicode or json"
        )
    if size and not cost:
        raise typer.BadParameter("--size requires --cost")
    if passes and (wrt or every or steps or tangent or cost or format_ is not Format.unicode):
        raise typer.BadParameter("--passes shows the whole way to the code: omit other options")
    if watched:
        if name is None:
            raise typer.BadParameter("--watch needs a spec file: give NAME or FILE:NAME")
        watch(lambda: project_files(Path.cwd(), [name]))
        return
    # Imported before a spec is read, so that the forked reader has them.
    from derive.api import derivation, source, tangents
    from derive.joint import value_and_grad_source
    from derive.notation.operation import names_with_gradient, options

    hush(quiet)
    op = selected_operation(name, spec, limit)
    if passes:
        _print_passes(op)
        return
    if cost:
        _show_cost(op, format_, size or ())
        return
    if tangent:
        found = [
            tangents(op, option, wrt or None, [e.name for e in chosen.equations] if every else None)
            for option, chosen in options(op)
        ]
        _print_derivations(op, found, format_, steps)
        return
    if format_ is Format.code and not wrt and not every:
        print_pages(source(op, style=style))
        return
    asked = {
        option: names_with_gradient(chosen) if every else wrt or None
        for option, chosen in options(op)
    }
    if wrt:
        able = [o for o, chosen in options(op) if {*wrt}.issubset(names_with_gradient(chosen))]
        asked = dict.fromkeys(able, wrt) or asked
    if format_ is Format.code:
        texts = [value_and_grad_source(op, names, option) for option, names in asked.items()]
        print_pages("\n\n".join(texts))
        return
    derivations = [derivation(op, option, names) for option, names in asked.items()]
    _print_derivations(op, derivations, format_, steps)


def _print_passes(op: Operation) -> None:
    from derive.api import pass_reports
    from derive.notation.operation import options

    texts = []
    for option, _ in options(op):
        texts.append(op.name if option is None else f"{op.name} ({option})")
        texts += [f"\n{report}" for report in pass_reports(op, option)]
    print_pages("\n".join(texts) + "\n")


def _print_derivations(
    op: Operation, found: Sequence[Derivation | Tangents], format_: Format, steps: bool
) -> None:
    if format_ is Format.json:
        from derive.command.lines import as_json

        print_json([as_json(op, d, steps) for d in found])
    elif format_ is Format.tex:
        from derive.reports.document import as_article

        print_pages(as_article(d.document(steps) for d in found) + "\n")
    else:
        write = "text" if format_ is Format.unicode else format_.value
        print_pages("\n\n".join(getattr(d, write)(steps) for d in found) + "\n")


def _show_cost(op: Operation, format_: Format, given: Sequence[str]) -> None:
    """Print the cost of every option; a group of several sizes counts as their product."""
    from derive.api import costs, derivation
    from derive.check.inputs import sizes_of
    from derive.command.build import warned
    from derive.command.lines import as_json, cost_as_text
    from derive.notation.operation import options

    sizes = {letter: prod(several) for letter, several in sizes_of(given).items()}
    known = {letter for _, found in costs(op) for letter in found.letters}
    for letter in sizes:
        if letter not in known:
            text = f"{op.name} has no index {letter}; its indices are {', '.join(sorted(known))}"
            raise DeriveError(text, kind="unknown-index")
    warn(warned(op))
    derivations = [derivation(op, option) for option, _ in options(op)]
    if format_ is Format.json:
        print_json([as_json(op, d, False, sizes) for d in derivations])
    else:
        typer.echo("\n\n".join(cost_as_text(d, sizes) for d in derivations))


# ------------------------------------------------------------------ the other commands

for command in (
    *(graph, new, generate, check, verify, compare),
    *(read, audit, lint, site, docs, explain),
):
    app.command()(command)

"""The command ``graph``: a picture of an operation and its gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from derive.budget import SECONDS
from derive.command.console import shown, unwritten
from derive.command.options import Limit, Operand, Quiet, SpecText, hush, require_one
from derive.command.project import selected_operation

_FORMATS = ("dot", "svg", "pdf", "png")


def graph(
    name: Operand = None,
    spec: SpecText = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="The file of the picture, which ends in .svg, .pdf, .png or .dot. Without it, "
            "the text in DOT is printed.",
        ),
    ] = None,
    option: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The option of a choice. Default: the first one."),
    ] = None,
    quiet: Quiet = False,
    limit: Limit = SECONDS,
) -> None:
    """Draw the equations, the gradients, and what the backward reads.

    An edge is a read, labelled with the shape of the tensor. The nodes tell what the forward saves
    for the backward, and what this computes again. All but .dot needs Graphviz.
    """
    require_one(name, spec)
    format_ = "dot" if out is None else out.suffix.removeprefix(".")
    if format_ not in _FORMATS:
        endings = ", ".join(f".{known}" for known in _FORMATS)
        raise typer.BadParameter(f"{out}: the name of a picture ends in {endings}")
    if out is not None and not out.parent.is_dir():
        raise unwritten(f"{out}: the folder {out.parent} does not exist")
    # Imported before a spec is read, so that the forked reader has them.
    from derive.api import graph as dot
    from derive.site.picture import drawn

    hush(quiet)
    text = dot(selected_operation(name, spec, limit), option)
    if out is None:
        typer.echo(text, nl=False)
        return
    out.write_bytes(text.encode() if format_ == "dot" else drawn(text, format_))
    if not quiet:
        typer.echo(f"wrote {shown(out)}")

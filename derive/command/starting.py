"""The command ``new``: a spec to start from."""

from __future__ import annotations

import re
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer

from derive.command.console import shown, unwritten
from derive.command.project import find_project
from derive.errors import DeriveError

_START = """\
# TODO: what {name} computes, in one sentence. `derive list` shows it.
#
# The op line has the inputs, the numbers after a semicolon, and the outputs. A tensor has a letter
# for each axis; indices[n]: int has no gradient; bias[k]=0 may be None; *b is any number of axes.
op {name}(x[n,k], weight[k]; eps=1e-5) -> y
# Each equation has one letter for each axis of its result. Every other letter is reduced:
# sum[k](..), mean[k](..), max[k](..), softmax[k](..), or sum[k | k <= n](..) under a condition.
scale[n] = rsqrt(mean[k](x[n,k]**2) + eps)
y[n,k]   = x[n,k]*scale[n]*weight[k]
"""


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the operation.")],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="The spec file. Default: NAME.derive."),
    ] = None,
) -> None:
    """Write a spec to start from.

    It is a root mean square normalization, with comments that explain each line.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or iskeyword(name):
        text = f"{name!r} cannot name an operation; use letters, digits and _"
        raise DeriveError(text, kind="invalid-name")
    path = Path(f"{name}.derive") if out is None else out
    if path.suffix != ".derive":
        raise unwritten(f"{path}: a spec in index notation has a name that ends in .derive")
    if not path.parent.is_dir():
        raise unwritten(f"{path}: the folder {path.parent} does not exist")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_START.format(name=name))
    except FileExistsError:
        raise unwritten(f"{path} exists; choose another name with --out") from None
    project = find_project(Path.cwd())
    typer.echo(f"wrote {shown(path)}")
    typer.echo(f"next: edit it, and look at its gradients: derive show {shown(path)} --watch")
    if project is None or path.resolve() not in {p.resolve() for p in project.specs}:
        typer.echo("      then add it to specs in [tool.derive] of a pyproject.toml,")
        typer.echo("      and write its module: derive generate")

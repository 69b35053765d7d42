"""``derive read``: trace PyTorch code into a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from derive.command.console import print_json
from derive.command.objects import examples_of, named_object
from derive.command.options import Json, Quiet, hush, need_torch
from derive.errors import DeriveError


def read(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME", help="A function or module: MODULE:NAME, or FILE.py:NAME."
        ),
    ],
    example: Annotated[
        Path,
        typer.Option(
            metavar="FILE.py", help="Defines examples(), which returns example arguments."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="The name of the operation.")] = None,
    letters: Annotated[
        list[str] | None,
        typer.Option(metavar="x=btc", help="The index letters of an input. Repeatable."),
    ] = None,
    comments: Annotated[
        bool, typer.Option(help="Put the line of source above each equation.")
    ] = True,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print the spec of a PyTorch function or module.

    The spec is printed only if its values and gradients match those of the function.

    The file of --example returns the arguments of one call:

    \b
      import torch
      def examples(): return [[torch.randn(3, 5), torch.randn(5)]]
    """
    need_torch()
    from derive.tracing.read import reading

    hush(quiet)
    given = {}
    for text in letters or ():
        tensor, equals, axes = text.partition("=")
        if not equals or not axes.isalpha():
            raise DeriveError(
                f"--letters {text}: write INPUT=LETTERS, for example x=btc", kind="unknown-option"
            )
        given[tensor] = axes
    target = named_object(function)
    if isinstance(target, type):
        message = f"{function} is a class; name an instance of the class"
        raise DeriveError(message, kind="torch-arguments")
    (arguments, *_) = examples_of(example) or [()]
    made = reading(target, *arguments, name=name, letters=given, comments=comments)
    made.warn()
    if json_:
        print_json({"name": made.operation.name, "text": made.text})
        return
    typer.echo(made.text, nl=False)

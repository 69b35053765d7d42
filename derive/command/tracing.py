"""``derive read``: PyTorch code as a spec."""

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
        typer.Argument(metavar="MODULE:NAME", help="A function or module, or FILE.py:NAME."),
    ],
    example: Annotated[
        Path,
        typer.Option(metavar="FILE.py", help="Defines examples(), which returns its arguments."),
    ],
    name: Annotated[str | None, typer.Option(help="What the operation is called.")] = None,
    letters: Annotated[
        list[str] | None,
        typer.Option(metavar="x=btc", help="The indices of an input; repeated."),
    ] = None,
    comments: Annotated[bool, typer.Option(help="The line of code above each equation.")] = True,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """The spec of an ordinary PyTorch function or module, held against it.

    Its values and gradients are compared with those of the function before it is printed.
    """
    need_torch()
    from derive.tracing.read import reading

    hush(quiet)
    given = {}
    for text in letters or ():
        tensor, equals, axes = text.partition("=")
        if not equals or not axes.isalpha():
            raise DeriveError(f"--letters {text}: write NAME=LETTERS, such as x=btc")
        given[tensor] = axes
    target = named_object(function)
    if isinstance(target, type):
        raise DeriveError(f"{function} is a class; name an object of it")
    (arguments, *_) = examples_of(example) or [()]
    made = reading(target, *arguments, name=name, letters=given, comments=comments)
    if json_:
        print_json({"name": made.operation.name, "text": made.text})
        return
    typer.echo(made.text, nl=False)

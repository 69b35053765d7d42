"""The examples of README and guide: what stands in their fences, run as a reader would run it.

A document is run from its first fence to its last, in one empty folder and one namespace:

- ``python``: run, unless its first line is ``# NAME.py``, which makes it that file. The output of
  what is run is the ``text`` fence that follows it.
- ``derive``: a spec, which is parsed and derived; with a first line ``# NAME.derive`` also a file.
  What a spec or a program prints at last is the error of derive that it raises.
- ``toml``, ``yaml``: a file, named by the comment in its first line.
- ``console``: commands behind ``$``, each with what it prints.

``...`` stands for any text in an output. A comment ``<!-- from PATH -->`` before a fence says that
its lines stand in that file of the checkout; ``<!-- plain NAME -->``, that it is the plain module
of an operation of the catalog; ``<!-- not run: REASON -->``, why a fence is not run.
``<!-- same: NAME -->`` before a ``python`` fence says that it makes NAME the same operation as the
``derive`` fence above it.
"""

import os
import re
import shlex
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from kit.command import ROOT, derive, module, run
from markdown_it import MarkdownIt
from markdown_it.token import Token

from derive import derivation, parse, source
from derive.catalog import find
from derive.errors import DeriveError
from derive.notation.specification import parse_all
from derive.notation.unparse import same_operation

DOCUMENTS = (
    ROOT / "README.md",
    ROOT / ".github" / "CONTRIBUTING.md",
    *sorted((ROOT / "derive" / "docs").glob("*.md")),
)
COMMENT = re.compile(r"<!-- (from|plain|not run:|same:) (.+?) -->\s*")
FILE = re.compile(r"# ([\w./-]+\.(?:py|derive|toml|yaml|yml))\b")


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language, its text, its first line, and the comment before it."""

    language: str
    text: str
    line: int
    comment: tuple[str, str] | None = None


def tokens(path: Path) -> list[Token]:
    return MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8"))


def fences(path: Path) -> Iterator[Fence]:
    comment = None
    for token in tokens(path):
        if token.type == "fence":
            assert token.map is not None
            yield Fence(token.info, token.content, token.map[0] + 1, comment)
        found = COMMENT.fullmatch(token.content) if token.type == "html_block" else None
        comment = (found[1], found[2]) if found else None


def run_document(path: Path, folder: Path) -> None:
    """Run every fence; the first that does something else than its document shows is an error."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    spec = ""
    with chdir(folder):
        for fence in fences(path):
            where = f"{path.relative_to(ROOT)}:{fence.line}"
            known, printed = printed, None
            match fence.comment, fence.language:
                case ("from", name), _:
                    assert fence.text in (ROOT / name).read_text(encoding="utf-8"), where
                case ("plain", name), _:
                    assert fence.text == source(find(name), style="plain"), where
                case ("not run:", _), _:
                    continue
                case _, "text":
                    assert known is not None, f"{where}: the output of nothing"
                    compare(fence.text, known, where)
                case _, "console":
                    code = 0
                    for command, output in commands(fence.text):
                        real, code = said(command, folder, code)
                        compare(output, real, f"{where}: {command}")
                case _, language:
                    assert known is None or not known, f"{where}: {known!r} was printed before"
                    printed = taken(language, fence.text, namespace, where)
            spec = fence.text if fence.language == "derive" else spec
            match fence.comment:
                case ("same:", name):
                    made = namespace[name]
                    assert same_operation(made, parse(spec)), f"{where}: {made} is not {spec}"
    assert not printed, f"{path.name}: {printed!r} was printed at its end"


def taken(language: str, text: str, namespace: dict[str, Any], where: str) -> str | None:
    """What a fence that is no output prints, or None where it prints nothing by its kind.

    An error of derive is what its fence prints.
    """
    named = FILE.match(text)
    if named:
        file = Path(named[1])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    match language:
        case "python" if named:
            compile(text, where, "exec")
        case "python":
            with redirect_stdout(StringIO()) as out:
                try:
                    exec(compile(text, where, "exec"), namespace)
                except DeriveError as error:
                    print(error)
            return out.getvalue()
        case "derive":
            try:
                for op in parse_all(text):
                    derivation(op)
            except DeriveError as error:
                return f"{error}\n"
        case "toml":
            tomllib.loads(text)
        case "yaml":
            yaml.safe_load(text)
        case "diff":
            pass  # the pages of the linter have one each, which test_lint applies to the example
        case _:
            raise AssertionError(f"{where}: a fence in {language!r} is neither run nor explained")
    return None


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console with what it prints; one backslash at an end continues a line."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = re.sub(r"(?<!\\)\\\n", " ", part).partition("\n")
        yield command, output


def said(command: str, folder: Path, code: int) -> tuple[str, int]:
    """The output and exit code of a command: derive and modules here, others in a process.

    ``code`` is that of the command before it, which ``echo $?`` prints.
    """
    name, *arguments = shlex.split(command, comments=True)
    match name:
        case "derive":
            done = derive(*arguments, cwd=folder)
        case "python" if arguments[0] == "-m":
            done = module(*arguments[1:], cwd=folder)
        case "python":
            places = os.pathsep.join(map(str, (folder, ROOT)))
            done = run(sys.executable, *arguments, cwd=folder, PYTHONPATH=places)
        case "pytest":
            pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
            done = run(*pytest, *arguments, cwd=folder)
        case "cat":
            return Path(folder, arguments[0]).read_text(encoding="utf-8"), 0
        case "echo" if arguments == ["$?"]:
            return f"{code}\n", 0
        case _:
            raise AssertionError(f"{name} is no command that documents run")
    return done.stderr + done.stdout, done.returncode


def compare(want: str, got: str, where: str) -> None:
    """Hold an output against what is shown, but for spaces at the ends of lines."""
    shown, real = ("".join(f"{s.rstrip()}\n" for s in x.splitlines()) for x in (want, got))
    if not OutputChecker().check_output(shown, real, ELLIPSIS):
        parts = ("is shown", shown), ("is printed", real)
        raise AssertionError(
            "\n".join([where, *(f"{what}:\n{textwrap.indent(x, '    ')}" for what, x in parts)])
        )


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """The sentences of a document with their lines; a piece of code counts as one word."""
    for token in tokens(path):
        if token.type != "inline" or not token.children:
            continue
        assert token.map is not None
        text = "".join(
            "`code`" if child.type == "code_inline" else child.content or " "
            for child in token.children
        )
        for sentence in re.split(r"(?<=[.!?])[)”\"]?\s+(?=[A-Z`(“\"]|derive )", text):
            yield token.map[0] + 1, sentence


def links(path: Path) -> Iterator[str]:
    """What the links and pictures of a document lead to."""
    for token in tokens(path):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target:
                yield str(target)


def anchors(path: Path) -> set[str]:
    """The anchors of headings, as GitHub names them."""
    found = tokens(path)
    return {
        re.sub(r"[^\w\- ]", "", after.content.lower()).replace(" ", "-")
        for token, after in pairwise(found)
        if token.type == "heading_open"
    }

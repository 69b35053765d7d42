"""README and guide: every example does what is shown, every link leads somewhere."""

import re
import sys
from pathlib import Path

import pytest
import torch
from kit.command import ROOT
from kit.documents import DOCUMENTS, anchors, links, run_document, sentences
from typer.main import get_command

import derive
from derive.algebra.functions import FUNCTIONS
from derive.check.checks import ALL
from derive.command.cli import app

LONGEST = 30
"""Words that a sentence may have."""

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.stem)


def section(page: str, heading: str = "") -> str:
    """A page of the guide, or what it has from a heading to the next of its level."""
    text = (ROOT / "derive" / "docs" / f"{page}.md").read_text(encoding="utf-8")
    if not heading:
        return text
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, f"{page}.md has no heading {heading!r}"
    return rest.partition(f"\n{heading.split()[0]} ")[0]


@each_document
def test_the_examples_do_what_is_shown(path, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    before, backend = set(sys.modules), torch.compiler.get_default_backend()
    torch.compiler.set_default_backend("aot_eager")  # what is compiled, without its kernels
    try:
        with torch.random.fork_rng():
            run_document(path, tmp_path)
    finally:
        torch.compiler.set_default_backend(backend)
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(tmp_path):
                del sys.modules[name]


@each_document
def test_no_sentence_is_long(path):
    long = [f"{path.name}:{n}: {s}" for n, s in sentences(path) if len(s.split()) > LONGEST]
    assert not long, "\n".join(long)


@each_document
def test_links_lead_somewhere(path):
    for link in links(path):
        if link.startswith(("https:", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_is_short():
    assert len(DOCUMENTS[0].read_text(encoding="utf-8").splitlines()) <= 150


def test_every_page_is_linked_from_the_first():
    index = ROOT / "derive" / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    pages = {path for path in DOCUMENTS if path.parent == index.parent}
    missing = pages - {index} - linked
    assert not missing


def test_every_command_and_option_is_on_the_page_of_the_command_line():
    program = get_command(app)
    shared = section("command-line", "### Options")
    for name, command in {"": program, **program.commands}.items():
        page = shared + (section("command-line", f"## derive {name}") if name else "")
        named = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", page))
        options = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        missing = {option for option in options if option.startswith("-")} - named
        assert not missing, f"derive {name}: {missing}"


def test_every_public_name_is_on_the_page_of_the_python_api():
    page = section("python-api")
    missing = [
        name
        for name in derive.__all__
        if not re.search(rf"^## {name}$|`(derive\.)?{name}[`(]", page, flags=re.MULTILINE)
    ]
    assert not missing, "add these to derive/docs/python-api.md"


def test_every_function_is_in_the_notation():
    page = section("notation", "## Functions")
    written = [f.name for f in FUNCTIONS.values() if f.written]
    missing = [name for name in written if not re.search(rf"\b{name}\b", page)]
    assert not missing, "add these to derive/docs/notation.md"


def test_every_check_is_on_the_page_of_testing():
    page = section("testing", "## The checks of derive verify")
    assert not [column.name for column in ALL if f"`{column.name}`" not in page]


def test_the_changelog_begins_with_this_version():
    first, *_ = re.findall(r"^## (.+)$", section("CHANGELOG"), flags=re.MULTILINE)
    assert first == derive.__version__

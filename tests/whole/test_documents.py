"""README and guide: every example does what is shown, every link leads somewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kit.command import ROOT
from kit.documents import DOCUMENTS, anchors, links, run_document, sentences

torch = pytest.importorskip("torch")

LONGEST = 30
"""Words that a sentence may have."""

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.stem)


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
    missing = {path for path in DOCUMENTS[1:] if path != index} - linked
    assert not missing

"""Typesetting LaTeX, where there is one."""

import shutil
import subprocess
from pathlib import Path

import pytest

TEX = shutil.which("pdflatex") or ""
needs_tex = pytest.mark.skipif(
    not TEX, reason="no pdflatex: apt-get install texlive-latex-base (50 MB)"
)


def typeset(text: str, folder: Path) -> str:
    """The log of pdflatex, which succeeds."""
    (folder / "article.tex").write_text(text, encoding="utf-8")
    command = [TEX, "-interaction=batchmode", "-halt-on-error", "article.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True)
    log = (folder / "article.log").read_text(encoding="latin-1")
    assert done.returncode == 0, log[-3000:]
    return log

"""The notebooks among the examples: run as a person runs them, and stored with their outputs.

python tests/notebooks.py          # what differs; exit code 1 if something does
python tests/notebooks.py --write  # stores the outputs, when they are to change
"""

import argparse
import os
import re
import sys
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "derive" / "examples").glob("*.ipynb"))
SECONDS = 120
"""For one cell; what it takes is far less."""


def executed(path: Path) -> Any:
    """The notebook with the outputs of a run of all cells, in an empty folder.

    An output that is Markdown loses its HTML: its MathML would be lost where a page shows the
    stored file, and it is long.
    """
    book = nbformat.read(path, as_version=4)
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    with TemporaryDirectory() as folder, patch.dict(os.environ, PYTHONPATH=os.pathsep.join(paths)):
        client = NotebookClient(
            book,
            timeout=SECONDS,
            coalesce_streams=True,
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
        )
        made = client.execute()
    for cell in made.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if "text/markdown" in output.get("data", ()):
                output.data.pop("text/html", None)
    made.metadata.language_info = {"name": "python"}
    return made


def outputs(book: Any) -> str:
    """The outputs as text, without digits that depend on the machine's rounding."""
    parts = []
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data") or {output.output_type: output.get("text", str(output))}
            parts += [f"{kind}\n{_rounded(text)}" for kind, text in sorted(data.items())]
    return "\n".join(parts)


_TINY = r"(?:\d(?:\.\d+)?e-\d\d|0(?:\.0)?)\b"


def _rounded(text: str) -> str:
    """Gradients that agree may be equal, or differ in their last digits."""
    text = re.sub(rf"\b(?:True|False)( \| True \| ){_TINY}", r"agrees\1tiny", text)
    text = re.sub(
        rf"exact=(?:True|False), approximate=True, maxdiff={_TINY}", "approximate=True", text
    )
    text = re.sub(rf"\\text{{(?:True|False)}} & \\text{{True}} & \\text{{{_TINY}}}", "agrees", text)
    return re.sub(r"\b(\d\.\d\d)\d*\b", r"\1", text)


def difference(path: Path) -> str:
    """How the outputs of a run differ from those that are stored."""
    texts = (outputs(book).splitlines() for book in (nbformat.read(path, 4), executed(path)))
    return "\n".join(unified_diff(*texts, "stored", "run", lineterm=""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the outputs")
    differs = False
    for path in NOTEBOOKS:
        if parser.parse_args().write:
            nbformat.write(executed(path), path)
            continue
        found = difference(path)
        differs |= bool(found)
        print(found, end="\n" if found else "")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())

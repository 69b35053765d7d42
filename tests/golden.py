"""The formulas of every operation of the catalog, as ``derive show`` prints them: formulas.txt.

Their names and signatures are in derive/catalog/contents.json, which is renewed beside it,
as is the page of the fused kernels, derive/docs/kernels.md.

python tests/golden.py          # what differs; exit code 1 if something does
python tests/golden.py --write  # renews the file, when a formula is to change
"""

import argparse
import json
import sys
from difflib import unified_diff
from pathlib import Path

from derive import catalog
from derive.api import derivation
from derive.command.lines import described
from derive.kernels.table import KERNELS
from derive.notation.operation import Operation, options
from derive.notation.specification import read

FILE = Path(__file__).parent / "formulas.txt"
RULE = "─" * 80
"""Stands between two operations."""


KERNELS_PAGE = Path(catalog.__file__).parents[1] / "docs" / "kernels.md"
_KERNELS_HEAD = """# Fused kernels

A module calls a fused kernel of torch where the kernel computes an equation or a gradient.
Its docstring names the kernels that it calls, and this page has the equation of each.
In a backward, `g` is the cotangent of `y`, and `dx` is the gradient of `x`.
[In real training](training.md#fused-kernels) says when a kernel is called.
"""


def kernels_page() -> str:
    """The page of the fused kernels, each with its equations."""
    fence = "<!-- not run: equations of a table -->\n```derive\n{}\n```\n"
    rows = (
        f"## {row.name}\n\n{fence.format(row.states.replace('; ', chr(10)))}"
        for row in KERNELS.values()
    )
    return "\n".join((_KERNELS_HEAD, *rows))


def formulas(op: Operation) -> str:
    """The equations and gradients of each option."""
    return "\n\n".join(of_options(op))


def of_options(op: Operation) -> list[str]:
    """The same, one text an option."""
    return [str(derivation(op, option)) for option, _ in options(op)]


def written() -> dict[str, str]:
    """The formulas that the file has, by the name of the operation."""
    if not FILE.is_file():
        return {}
    sections = FILE.read_text(encoding="utf-8").split(f"{RULE}\n")
    return {section.split()[0]: section.strip("\n") for section in sections}


def whole(sections: dict[str, str]) -> str:
    """The file of these formulas."""
    return f"\n{RULE}\n".join(f"{section}\n" for section in sections.values())


def contents() -> str:
    """What is asked of all operations at once, by their file: a line each, and the file's digest.

    Families stand in the order that they have, and new ones after them.
    """
    folder = catalog.CONTENTS.parent
    files = {path.stem: path for path in sorted(folder.glob("*.derive"))}
    known = [family for family in catalog.FAMILIES if family in files]
    entries = []
    for family in dict.fromkeys((*known, *files)):
        lines = ",\n".join(f"   {_json(described(op))}" for op in read(files[family]))
        digest = f'  "digest": "{catalog.digest(files[family])}"'
        entries.append(f' "{family}": {{\n{digest},\n  "operations": [\n{lines}\n  ]\n }}')
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="The formulas of the catalog in formulas.txt.")
    parser.add_argument("--write", action="store_true", help="renew the file")
    arguments = parser.parse_args()
    if arguments.write:
        catalog.CONTENTS.write_text(contents(), encoding="utf-8")
        KERNELS_PAGE.write_text(kernels_page(), encoding="utf-8")
    before, after = whole(written()), whole({op.name: formulas(op) for op in catalog.operations()})
    if arguments.write:
        FILE.write_text(after, encoding="utf-8")
    lines = (text.splitlines(keepends=True) for text in (before, after))
    difference = "".join(unified_diff(*lines, "formulas.txt", "derived"))
    print(difference, end="")
    sys.exit(1 if difference and not arguments.write else 0)


if __name__ == "__main__":
    main()

"""Read the comment above each operation of a spec file, which its docstring repeats."""

from __future__ import annotations

import re

_COMMENTED = re.compile(
    r"""((?:^[ \t]*\#[^\n]*\n)+) [ \t]* (?:op\s+ | [^\n#]*\bOperation\(\s*["']) (\w+)""",
    re.MULTILINE | re.VERBOSE,
)


def comments(text: str) -> dict[str, str]:
    """Return the comment above each operation of a text or a Python module, by name, in one line.

    A comment of one word is a marker and says nothing. Characters that do not print are left out.

    >>> comments("# Doubles x.\\n# It is linear.\\nop double(x[n]) -> y; y[n] = 2*x[n]")
    {'double': 'Doubles x. It is linear.'}
    """
    found = {}
    for comment, name in _COMMENTED.findall(text):
        lines = (line.strip().lstrip("#") for line in comment.split("\n"))
        words = " ".join("".join(filter(str.isprintable, " ".join(lines))).split())
        if " " in words:
            found[name] = words
    return found


def first_sentence(comment: str) -> str:
    """Return the first sentence of a comment.

    >>> first_sentence("Doubles x. It is linear.")
    'Doubles x.'
    """
    return re.split(r"(?<=\.)\s", comment, maxsplit=1)[0]

"""Read the comment above each operation of a spec file, which its docstring repeats."""

from __future__ import annotations

import re

_HEAD = re.compile(r"""[ \t]*+(?:op\s+|[^\n#]*\bOperation\(\s*["'])(\w+)""")
"""The beginning of an operation, with its name."""


def comments(text: str) -> dict[str, str]:
    """Return the comment above each operation of a text or a Python module, by name, in one line.

    A comment of one word is a marker and says nothing. Characters that do not print are left out.

    >>> comments("# Doubles x.\\n# It is linear.\\nop double(x[n]) -> y; y[n] = 2*x[n]")
    {'double': 'Doubles x. It is linear.'}
    """
    found: dict[str, str] = {}
    above: list[str] = []
    start = 0
    for line in text.split("\n"):
        if line.lstrip(" \t").startswith("#"):
            above.append(line.strip().lstrip("#"))
        elif above:
            head = _HEAD.match(text, start)
            words = " ".join("".join(filter(str.isprintable, " ".join(above))).split())
            if head and " " in words:
                found[head[1]] = words
            above = []
        start += len(line) + 1
    return found


def first_sentence(comment: str) -> str:
    """Return the first sentence of a comment.

    >>> first_sentence("Doubles x. It is linear.")
    'Doubles x.'
    """
    return re.split(r"(?<=\.)\s", comment, maxsplit=1)[0]

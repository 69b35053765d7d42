"""The code of an operation, and whether it computes what the loops do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from kit.lines import made, run
from kit.recognised import functions
from kit.unwritten import source_without_reuse

from derive.notation.operation import Operation

COUNTS = (3, 2, 4, 5, 6, 7)
"""All different, so that no two axes can be exchanged."""
LONG = 9
"""The size of u, an axis that windows slide along."""


def arrays(op: Operation, **given: Any) -> dict[str, Any]:
    """An array for each input of single indices; those of integers are given."""
    rng = np.random.default_rng(1)
    names = [e.name for e in op.extents if e.sources]
    sizes = {**dict(zip(names, COUNTS, strict=False)), "u": LONG}
    found = {}
    for t in op.inputs:
        shape = [sizes[axis.extent] for axis in t.axes if t.name not in given]
        found[t.name] = given[t.name] if t.name in given else rng.uniform(0.5, 1.5, shape)
    return found


Sides = tuple[list[str] | None, list[str] | None]


def code_table(table: str) -> dict[str, Sides]:
    """By text, lines of the forward and, indented twice as far, of the backward; none is None.

    A backslash continues a line, and ``#`` starts a remark.
    """
    found: dict[str, Sides] = {}
    for line in table.splitlines():
        code = " ".join(line.split())
        if not line.startswith(" "):
            if not line.startswith("#"):
                text = code
                found[text] = (None, None)
            continue
        forward, backward = found[text]
        if line.startswith(" " * 8):
            found[text] = (forward, [*(backward or []), code])
        else:
            found[text] = ([*(forward or []), code], backward)
    return found


def assert_code(
    text: str, forward: Sequence[str] | None, backward: Sequence[str] | None = None
) -> None:
    """The lines of the forward and of the backward, of those that are given."""
    ours = functions(source_without_reuse(made(text)))
    assert forward is None or ours[0] == list(forward)
    assert backward is None or ours[1] == list(backward)


def assert_right(
    text: str, parameters: dict[str, Any] | None = None, fuses: bool = False, **given: Any
) -> None:
    """Value and gradients are those of the loops; ``fuses`` calls kernels on few positions too."""
    run(text, arrays(made(text), **given), fuses, **parameters or {})

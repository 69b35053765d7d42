"""The code of an operation, and whether it computes what the loops do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from kit.lines import made, run
from kit.recognised import functions
from kit.unwritten import source_without_reuse

from derive.algebra.expr import Access, walk
from derive.notation.operation import Operation

COUNTS = (3, 2, 4, 5, 6, 7)
"""All different, so that no two axes can be exchanged."""
LONG = 9
"""The size of u, an axis that windows slide along."""


def arrays(op: Operation, **given: Any) -> dict[str, Any]:
    """An array for each input of single indices.

    Of positions some are there twice; of integers that are only compared some are no position.
    """
    rng = np.random.default_rng(1)
    names = [e.name for e in op.extents if e.sources]
    sizes = {**dict(zip(names, COUNTS, strict=False)), "u": LONG}
    read = [a for e in op.equations for a in walk(e.body) if isinstance(a, Access)]
    inner = (i for a in read for p in a.positions for i in walk(p))
    positions = {i.tensor for i in inner if isinstance(i, Access)}
    found = {}
    for t in op.inputs:
        shape = [sizes[axis.extent] for axis in t.axes if t.name not in given]
        if t.name in given:
            found[t.name] = given[t.name]
        elif t.kind == "float":
            found[t.name] = rng.uniform(0.5, 1.5, shape)
        else:
            low, high = (0, 2) if t.kind == "bool" or t.name in positions else (-1, 4)
            found[t.name] = rng.integers(low, high, shape).astype(t.kind)
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

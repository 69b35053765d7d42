"""Generated code of which nothing is written in place, and the part without a graph."""

from __future__ import annotations

from unittest.mock import patch

from derive import pipeline, source
from derive.notation.operation import Operation


def source_without_reuse(op: Operation, standalone: bool = False) -> str:
    """The source whose forward and backward of any order never overwrite what they made."""
    with patch.object(pipeline, "SPECIALIZE", pipeline.SPECIALIZE[:-1]):
        return source(op, standalone=standalone)


def first_order(text: str) -> str:
    """The lines of each backward that run where no graph is recorded."""
    found = []
    for part in text.split("    def backward(ctx")[1:]:
        lines = iter(part.splitlines())
        for line in lines:
            if line.startswith("        if ") and "unrecorded(" in line:
                break
        for line in lines:
            if line and not line.startswith(" " * 9) and line.strip() not in ("):", ")"):
                break
            found.append(line)
    return "\n".join(found)

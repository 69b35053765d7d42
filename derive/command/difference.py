"""What ``derive check`` finds: a file that is not what the specs say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Difference:
    """A file that is not what the specs say; ``why``, and ``patch`` where both texts are there."""

    path: Path
    kind: Literal["missing", "stale", "differs", "foreign"]
    why: str = ""
    patch: str = ""

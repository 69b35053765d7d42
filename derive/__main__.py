"""``python -m derive`` is ``derive``."""

from __future__ import annotations

from derive.cli import main

main()

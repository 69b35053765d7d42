"""``python -m derive`` is ``derive``."""

from __future__ import annotations

from derive.command.cli import main

main()

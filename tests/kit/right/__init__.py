"""Right hand-written Functions of the kinds that people publish, as a table."""

from importlib import import_module

from kit.right.entry import Entry

NAMES = (
    "gated scans rotary convolutions losses matrices quantizers surrogates chunked graphs columns "
    "norms protocols structured"
).split()
KINDS: dict[str, list[Entry]] = {name: import_module(f"kit.right.{name}").ENTRIES for name in NAMES}

RIGHT: list[Entry] = [entry for entries in KINDS.values() for entry in entries]

OF = {entry.function.__name__: entry for entry in RIGHT}
"""The entry of a Function, by its name."""

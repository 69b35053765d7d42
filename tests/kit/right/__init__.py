"""Right hand-written Functions of the kinds that people publish, as a table."""

from kit.right import (
    chunked,
    columns,
    convolutions,
    gated,
    graphs,
    losses,
    matrices,
    norms,
    protocols,
    quantizers,
    rotary,
    scans,
    structured,
    surrogates,
)
from kit.right.entry import Entry

KINDS: dict[str, list[Entry]] = {
    module.__name__.rpartition(".")[2]: module.ENTRIES
    for module in (
        gated,
        scans,
        rotary,
        convolutions,
        losses,
        matrices,
        quantizers,
        surrogates,
        chunked,
        graphs,
        columns,
        norms,
        protocols,
        structured,
    )
}

RIGHT: list[Entry] = [entry for entries in KINDS.values() for entry in entries]

OF = {entry.function.__name__: entry for entry in RIGHT}
"""The entry of a Function, by its name."""

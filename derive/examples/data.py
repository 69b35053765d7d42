"""Names as a data set: the characters before each character, in three splits.

The default names are the first names of the 1990 US census that the package ``names`` ships.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from derive.examples.program import ExampleError, extra

with extra():
    import torch
    from torch import Tensor

__all__ = ["BLOCK_SIZE", "END", "DataSet", "census_names", "data_set", "read_names"]

BLOCK_SIZE = 3
"""How many characters are seen to predict the next one."""

END = "."
"""Stands before the first character of a name and after its last."""


@dataclass(frozen=True)
class DataSet:
    """``splits`` maps train, val and test to X[n,t], the characters before, and Y[n], the next."""

    characters: tuple[str, ...]
    splits: Mapping[str, tuple[Tensor, Tensor]]


def read_names(path: Path) -> list[str]:
    """The names of a UTF-8 text file, one a line; blank lines and outer blanks are left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ExampleError(f"{path}: not UTF-8 text, at byte {error.start}") from None
    names = []
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if END in name:
            raise ExampleError(
                f"{path}:{number}: {name!r} contains {END!r}, which marks the end of a name"
            )
        if name:
            names.append(name)
    return names


def census_names() -> list[str]:
    """The male and female first names of the census: lower-case, sorted, each once."""
    with extra():
        import names as census
    files = (census.FILES["first:male"], census.FILES["first:female"])
    lines = [line for file in files for line in Path(file).read_text("ascii").splitlines()]
    return sorted({line.split()[0].lower() for line in lines})


def data_set(names: Sequence[str]) -> DataSet:
    """The names shuffled with seed 42: 80 % to train on, 10 % to validate, 10 % to test."""
    shuffled = list(names)
    random.Random(42).shuffle(shuffled)
    characters = (END, *sorted(set("".join(shuffled))))
    n1, n2 = int(0.8 * len(shuffled)), int(0.9 * len(shuffled))
    parts = {"train": shuffled[:n1], "val": shuffled[n1:n2], "test": shuffled[n2:]}
    for part, members in parts.items():
        if not members:
            raise ExampleError(
                f"{len(names)} names are too few for the {part} split; give ten or more"
            )
    return DataSet(characters, {part: _examples(parts[part], characters) for part in parts})


def _examples(names: Iterable[str], characters: Sequence[str]) -> tuple[Tensor, Tensor]:
    numbers = {character: number for number, character in enumerate(characters)}
    X, Y = [], []
    for name in names:
        context = [0] * BLOCK_SIZE
        for character in name + END:
            following = numbers[character]
            X.append(context)
            Y.append(following)
            context = [*context[1:], following]
    return torch.tensor(X), torch.tensor(Y)

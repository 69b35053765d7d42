"""One step of a recurrent layer, beside torch's own."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from kit.cases.case import Case, labels_of, uniform

OWN: dict[str, Callable[..., Any]] = {
    "rnn_tanh_cell": torch.rnn_tanh_cell,
    "gru_cell": torch.gru_cell,
    "lstm_cell": lambda x, h, c, *weights: torch.lstm_cell(x, (h, c), *weights),
}
GATES = {"rnn_tanh_cell": 1, "gru_cell": 3, "lstm_cell": 4}
STATES = {"rnn_tanh_cell": 1, "gru_cell": 1, "lstm_cell": 2}


def cells() -> Iterator[Case]:
    for (name, gates), biased in product(GATES.items(), (True, False)):
        rows = 5 * gates
        yield Case(
            name,
            f"[2, 3] [2, 5]{labels_of({'bias': biased})}",
            [
                uniform((2, 3), -1, 1),
                *(uniform((2, 5), -1, 1, 1 + n) for n in range(STATES[name])),
                *(uniform((rows, 3), -1, 1, 3), uniform((rows, 5), -1, 1, 4)),
                *(uniform((rows,), -1, 1, 5 + n) if biased else None for n in range(2)),
            ],
        )

"""What people train with today, derived: time and saved bytes against the plain function.

python tests/corpus/trained_costs.py                 # the table
python tests/corpus/trained_costs.py --only 'dpo'

Each function runs at large sizes under ``derive.differentiate``, which keeps the plain function
where derived code would be dearer; such a row says so. Both run in turns, on one thread, forward
and backward, and the least times count. An error ends with 1.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from functions import CORPUS
from rich.console import Console
from rich.table import Table
from torch import Tensor
from trained_ import TRAINED

import derive

COLUMNS = ("function", "read, s", "runs", "time", "saved", "bytes, derived", "bytes, plain")


def kept(f: Callable[..., Any], given: Sequence[Any]) -> int:
    """The bytes that are saved for the backward."""
    seen: dict[int, Any] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        seen[storage.data_ptr()] = storage
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        made = f(*given)
    assert made.requires_grad
    return sum(storage.nbytes() for storage in seen.values())


def seconds(fs: Sequence[Callable[..., Any]], given: Sequence[Any], rounds: int) -> list[float]:
    """The least time of each with its backward."""
    leaves = [t for t in given if isinstance(t, Tensor) and t.requires_grad]
    least = [float("inf")] * len(fs)
    for _ in range(rounds):
        for n, f in enumerate(fs):
            start = time.perf_counter()
            made = f(*given)
            torch.autograd.grad(made, leaves, torch.ones_like(made), allow_unused=True)
            least[n] = min(least[n], time.perf_counter() - start)
    return least


def row(name: str, rounds: int) -> tuple[str, ...]:
    """The cells of one function."""
    (plain, large), (_, small) = TRAINED[name], CORPUS[f"trained.{name}"]
    start = time.perf_counter()
    derive.read_torch(CORPUS[f"trained.{name}"][0], *small())
    read = time.perf_counter() - start
    given = [
        t.requires_grad_() if isinstance(t, Tensor) and t.is_floating_point() else t
        for t in large()
    ]
    if isinstance(plain, torch.nn.Module):
        return name, f"{read:.1f}", *("",) * 5
    ours = derive.differentiate(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(ours(*given), plain(*given), rtol=1e-3, atol=1e-4)
        (fact,) = derive.report(ours).rows
    a, b = seconds((ours, plain), given, rounds)
    own, other = kept(ours, given), kept(plain, given)
    runs = "derived" if fact.derived else "plain"
    ratio = f"{own / max(other, 1):.2f}"
    return name, f"{read:.1f}", runs, f"{a / b:.2f}", ratio, f"{own:,}", f"{other:,}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="*", metavar="NAME", help="a name or pattern")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    table, failed = Table(*COLUMNS), 0
    for name in TRAINED:
        if not fnmatchcase(name, given.only):
            continue
        try:
            table.add_row(*row(name, given.rounds))
        except Exception as error:
            failed += 1
            table.add_row(name, f"{type(error).__name__}: {str(error)[:60]}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

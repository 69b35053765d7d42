"""Train a model of names, character by character, without autograd.

The model is the catalog's ``character_model``: embedding, linear layer, batch norm, tanh, linear
layer and cross-entropy as one operation, whose fused forward and backward are generated. Each
step calls them and subtracts the gradients from the parameters.

    python -m derive.examples.makemore
    python -m derive.examples.makemore --names names.txt --steps 20000 --out curve.png

Exit code 0; 1 if the loss becomes nan or infinite; 2 for a wrong argument or file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from derive.examples.program import ExampleError, extra, positive, run

with extra():
    import torch

    from derive.examples.curve import write_curve
    from derive.examples.data import DataSet, census_names, data_set, read_names
    from derive.examples.model import Parameters, calibrate, initial_parameters, loss, sample, train

SEED = 2147483647
SAMPLES = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """The program with these arguments, or those of the process. Returns the exit code."""
    return run("makemore", lambda: _makemore(_parser().parse_args(arguments)))


def _makemore(given: argparse.Namespace) -> None:
    _check_writable(given.out)
    names = census_names() if given.names is None else read_names(given.names)
    data = _moved(data_set(names), given.device)
    _say(f"{len(names)} names of {len(data.characters) - 1} characters")
    for part, (X, _) in data.splits.items():
        _say(f"{part} {len(X)} examples")
    generator = torch.Generator().manual_seed(SEED)
    parameters = {
        name: tensor.to(given.device)
        for name, tensor in initial_parameters(len(data.characters), generator).items()
    }
    _say(f"{sum(p.numel() for p in parameters.values())} parameters")
    _train(parameters, data, generator, given.steps, given.rate, given.out)
    calibrated = calibrate(parameters, data.splits["train"][0])
    for part, split in data.splits.items():
        value = loss(calibrated, *split)
        _check_finite(value, f"over the {part} names", given.rate)
        _say(f"{part} {value:.4f}")
    generator = torch.Generator().manual_seed(SEED + 10)
    for _ in range(SAMPLES):
        _say("".join(data.characters[number] for number in sample(calibrated, generator)))


def _train(
    parameters: Parameters,
    data: DataSet,
    generator: torch.Generator,
    steps: int,
    rate: float,
    out: Path,
) -> None:
    """Every 10,000 steps, or every twentieth of a short run, a line; at the end the curve.

    The curve is written however training ends.
    """
    every = max(1, min(10_000, steps // 20))
    losses: list[float] = []
    training = train(parameters, *data.splits["train"], steps=steps, generator=generator, rate=rate)
    try:
        with _progress() as progress:
            for step, value in enumerate(progress.track(training, steps, description="training")):
                _check_finite(value, f"at step {step}, where training stopped", rate)
                losses.append(value)
                if step % every == 0:
                    _say(f"{step:7d}/{steps:7d}: {value:.4f}")
    finally:
        if losses:
            write_curve(losses, out)
            _say(f"loss curve in {out}")


def _check_finite(value: float, where: str, rate: float) -> None:
    if not isfinite(value):
        raise ExampleError(f"the loss is {value} {where}: try --rate {rate / 10:g}", code=1)


def _progress() -> Progress:
    """A bar on stderr where that is a terminal; results go on to stdout, wherever it leads."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        disable=not sys.stderr.isatty(),
    )


def _say(line: str) -> None:
    print(line, flush=True)


def _check_writable(out: Path) -> None:
    """Before the training rather than after."""
    if not out.parent.is_dir():
        raise ExampleError(f"--out {out}: the folder {out.parent} does not exist")
    if out.is_dir():
        raise ExampleError(f"--out {out}: this is a folder; give a file")
    if not os.access(out.parent, os.W_OK):
        raise ExampleError(f"--out {out}: the folder {out.parent} cannot be written to")


def _moved(data: DataSet, device: torch.device) -> DataSet:
    return DataSet(
        data.characters,
        {part: (X.to(device), Y.to(device)) for part, (X, Y) in data.splits.items()},
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m derive.examples.makemore",
        description="Train a model of names on generated backward code, without autograd.",
    )
    parser.add_argument("--names", type=Path, metavar="FILE", help="a file with one name per line")
    parser.add_argument(
        "--steps", type=positive, metavar="N", default=200_000, help="training steps: %(default)s"
    )
    parser.add_argument(
        "--rate", type=float, metavar="R", default=0.1, help="learning rate: %(default)s"
    )
    parser.add_argument(
        "--device", type=_device, metavar="D", default="cpu", help="torch device: %(default)s"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.png",
        default=Path("makemore.png"),
        help="the file of the loss curve: %(default)s",
    )
    return parser


def _device(text: str) -> torch.device:
    try:
        found = torch.zeros((), device=text)
        found.item()  # not every device that makes a tensor can compute
        return found.device
    except (RuntimeError, AssertionError) as error:
        raise argparse.ArgumentTypeError(f"{text}: {str(error).splitlines()[0]}") from None


if __name__ == "__main__":
    sys.exit(main())

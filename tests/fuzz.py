"""Random operations through the whole pipeline, against the oracle and against torch.

``python -m tests.fuzz --count 2000 --seed 0`` prints each failure with its seed; one program is
looked at with ``python -m tests.fuzz --seed 17 --count 1 --verbose``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from derive import oracle
from derive.errors import DeriveError, LoweringError
from derive.pipeline import load
from derive.spec.notation import parse
from derive.spec.operation import Operation
from tests.programs import Program, random_program

BIG = 1e6
"""Values beyond this say more of rounding than of the gradient."""


@dataclass(frozen=True)
class Result:
    """What came of one program: ok, skipped, unsupported or a kind of failure."""

    seed: int
    kind: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.kind not in ("ok", "skipped", "unsupported")


def examine(seed: int, second_order: bool = False) -> Result:
    """One program, on other values once more if it fails: a kink is not hit twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = _examine(random_program(seed), second_order)
        if result.kind in ("value", "gradient", "gradcheck", "gradgradcheck"):
            again = _examine(random_program(seed, sample=1), second_order)
            return result if again.failed else Result(seed, "skipped", "a kink")
        return result


def _examine(program: Program, second_order: bool) -> Result:
    seed = program.seed
    try:
        op = parse(program.text)
        function = load(op)
    except LoweringError as error:
        return Result(seed, "unsupported", str(error))
    except DeriveError as error:
        return Result(seed, "rejected", str(error))
    except Exception as error:
        return Result(seed, "crash", f"{type(error).__name__}: {error}")
    try:
        with np.errstate(all="ignore"):
            expected = oracle.outputs(op, program.tensors, program.parameters)
    except Exception as error:
        return Result(seed, "oracle", f"{type(error).__name__}: {error}")
    try:
        return Result(seed, *_compared(op, function, program, expected, second_order))
    except Exception as error:
        return Result(seed, "run", f"{type(error).__name__}: {error}")


def _compared(
    op: Operation,
    function: Any,
    program: Program,
    expected: Mapping[str, np.ndarray],
    second_order: bool,
) -> tuple[str, str]:
    inputs = {name: torch.from_numpy(array) for name, array in program.tensors.items()}
    smooth = [name for name, value in inputs.items() if value.is_floating_point()]
    floats = [n for n, array in enumerate(expected.values()) if array.dtype.kind == "f"]

    def call(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = inputs | dict(zip(smooth, values, strict=True))
        made = function(*given.values(), **program.parameters)
        return made if isinstance(made, tuple) else (made,)

    leaves = [inputs[name].clone().requires_grad_() for name in smooth]
    made = call(*leaves)
    for (name, array), tensor in zip(expected.items(), made, strict=True):
        value = tensor.detach().numpy()
        if value.shape != array.shape:
            return "value", f"{name} has shape {value.shape}, not {array.shape}"
        if value.dtype.kind != array.dtype.kind:
            return "dtype", f"{name} is {value.dtype}, not {array.dtype}"
        if not np.allclose(value, array, rtol=1e-8, atol=1e-9, equal_nan=True):
            return "value", f"{name} is {value.ravel()[:4]}, not {array.ravel()[:4]}"
        if array.size and not np.all(np.abs(array) < BIG):
            return "skipped", "large or not finite"
    generator = np.random.default_rng(program.seed)
    cotangents = {
        name: generator.uniform(0.5, 1.5, array.shape)
        for name, array in expected.items()
        if array.dtype.kind == "f"
    }
    live = [n for n in floats if made[n].requires_grad]
    gradients = (
        torch.autograd.grad(
            [made[n] for n in live],
            leaves,
            [torch.from_numpy(cotangents[list(expected)[n]]) for n in live],
            allow_unused=True,
        )
        if live
        else [None] * len(leaves)
    )
    for name, gradient in zip(smooth, gradients, strict=True):
        with np.errstate(all="ignore"):
            numeric = oracle.gradient(op, program.tensors, cotangents, program.parameters, name)
        found = np.zeros_like(numeric) if gradient is None else gradient.numpy()
        if not np.all(np.abs(numeric) < BIG):
            return "skipped", "large or not finite"
        if found.shape != numeric.shape:
            return "gradient", f"of {name} has shape {found.shape}, not {numeric.shape}"
        scale = max(1.0, float(np.abs(numeric).max(initial=0)))
        if not np.allclose(found, numeric, rtol=1e-5, atol=1e-6 * scale):
            off = np.flatnonzero(~np.isclose(found, numeric, rtol=1e-5, atol=1e-6 * scale))[:4]
            return "gradient", f"of {name}: {found.flat[off]}, not {numeric.flat[off]}"
    if second_order and live and not program.detached:
        problem = _second_order(lambda *values: tuple(call(*values)[n] for n in live), leaves)
        if problem:
            return problem
    return "ok", ""


def _second_order(call: Any, leaves: list[torch.Tensor]) -> tuple[str, str] | None:
    """The family of torch's own checks, forward mode included."""
    for kind, check in (
        ("gradcheck", partial(torch.autograd.gradcheck, rtol=1e-4, check_forward_ad=True)),
        ("gradgradcheck", partial(torch.autograd.gradgradcheck, rtol=1e-3)),
    ):
        try:
            check(call, leaves, atol=1e-5)
        except Exception as error:
            return kind, str(error).replace("\n", " ")[:300]
    return None


def examined(seeds: range, workers: int, second_order: bool) -> Iterator[Result]:
    """The results in the order of the seeds."""
    work = partial(examine, second_order=second_order)
    if workers == 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(work, seeds, chunksize=8)


def summary(kinds: Counter[str]) -> str:
    total = sum(kinds.values())
    shares = ", ".join(f"{kind} {n} ({100 * n / total:.1f}%)" for kind, n in kinds.most_common())
    return f"{total} programs: {shares}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--second-order", action="store_true", help="gradcheck, gradgradcheck too")
    parser.add_argument("--verbose", action="store_true", help="print every program")
    chosen = parser.parse_args()
    kinds: Counter[str] = Counter()
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    for result in examined(seeds, chosen.workers, chosen.second_order):
        kinds[result.kind] += 1
        if result.failed or chosen.verbose:
            print(f"seed {result.seed}: {result.kind}: {result.detail}")
            print("    " + random_program(result.seed).text.replace("\n", "\n    "), flush=True)
    print(summary(kinds))
    return int(any(Result(0, kind).failed for kind in kinds))


if __name__ == "__main__":
    sys.exit(main())

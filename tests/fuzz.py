"""Random operations through the whole pipeline, against the oracle and against torch.

``python tests/fuzz.py --count 2000 --seed 0`` prints each failure with its seed; one program is
looked at with ``python tests/fuzz.py --seed 17 --count 1 --verbose``.
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
from programs import Program, random_program

from derive import oracle
from derive.errors import DeriveError, LoweringError
from derive.pipeline import load
from derive.spec.notation import parse
from derive.spec.operation import Operation

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
        unsized = "has no size" in str(error)
        return Result(seed, "skipped" if unsized else "rejected", str(error))
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
    live = [n for n in floats if made[n].requires_grad]
    if not live:
        return "ok", "nothing to differentiate"
    generator = np.random.default_rng(program.seed)
    cotangents = {
        name: generator.uniform(0.5, 1.5, array.shape)
        for name, array in expected.items()
        if array.dtype.kind == "f"
    }
    weights = [torch.from_numpy(cotangents[list(expected)[n]]) for n in live]
    found = torch.autograd.grad([made[n] for n in live], leaves, weights, allow_unused=True)
    gradients = {
        name: np.zeros(program.tensors[name].shape) if gradient is None else gradient.numpy()
        for name, gradient in zip(smooth, found, strict=True)
    }
    against = _by_element if program.detached else _by_direction
    problem = against(op, program, cotangents, gradients)
    if problem is None and second_order and not program.detached:
        problem = _second_order(lambda *values: tuple(call(*values)[n] for n in live), leaves)
    return problem or ("ok", "")


def _by_direction(
    op: Operation,
    program: Program,
    cotangents: Mapping[str, np.ndarray],
    gradients: Mapping[str, np.ndarray],
) -> tuple[str, str] | None:
    """Differences of the oracle along one random direction for each input."""
    generator = np.random.default_rng((program.seed, 1))

    def total(name: str, step: np.ndarray) -> float:
        moved = {**program.tensors, name: program.tensors[name] + step}
        made = oracle.outputs(op, moved, program.parameters)
        return sum(float(np.sum(made[n] * cotangent)) for n, cotangent in cotangents.items())

    for name, gradient in gradients.items():
        way = generator.uniform(0.3, 1.0, gradient.shape) * generator.choice(
            (-1, 1), gradient.shape
        )
        with np.errstate(all="ignore"):
            coarse, fine = (
                (total(name, step * way) - total(name, -step * way)) / (2 * step)
                for step in (1e-3, 5e-4)
            )
        numeric, found = (4 * fine - coarse) / 3, float(np.sum(gradient * way))
        size = float(np.abs(gradient).sum())
        if not (abs(numeric) < BIG and abs(fine) < BIG) or size > BIG:
            return "skipped", "large or not finite"
        if not abs(numeric - found) < 1e-5 * max(1.0, size) + 1e-2 * abs(fine - coarse):
            return "gradient", f"of {name}: {found} along a direction, not {numeric}"
    return None


def _by_element(
    op: Operation,
    program: Program,
    cotangents: Mapping[str, np.ndarray],
    gradients: Mapping[str, np.ndarray],
) -> tuple[str, str] | None:
    """The oracle's own gradient, which keeps what stands under ``detach``."""
    for name, gradient in gradients.items():
        with np.errstate(all="ignore"):
            numeric = oracle.gradient(op, program.tensors, cotangents, program.parameters, name)
        if not np.all(np.abs(numeric) < BIG):
            return "skipped", "large or not finite"
        near = 1e-6 * max(1.0, float(np.abs(numeric).max(initial=0)))
        if not np.allclose(gradient, numeric, rtol=1e-5, atol=near):
            return "gradient", f"of {name}: {gradient.ravel()[:4]}, not {numeric.ravel()[:4]}"
    return None


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

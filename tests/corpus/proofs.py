"""Hand-written Functions of installed packages, judged by gradcheck or by their reference.

python tests/corpus/proofs.py
python tests/corpus/proofs.py --only 'entmax*'

The table has the judgement of `kit.right.oracle`, which does not run derive, the judgement that
`audits.py` expects, and the float arguments without a gradient.
"""

import argparse
import sys
import warnings
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from audits import AUDITS, example_of, function_of
from kit.right.entry import Entry
from kit.right.oracle import arguments, cotangents, leaves, named, outputs_of, prove

SINGLE = {
    f"memory_efficient_attention_pytorch.{name}flash_attention.FlashAttentionFunction"
    for name in ("", "cosine_sim_")
}
"""Functions that compute in float32 only."""


def floats(args: Any) -> list[int]:
    return [n for n, x in enumerate(args) if isinstance(x, Tensor) and x.is_floating_point()]


def has_gradient(function: Any, args: Any, place: int) -> bool:
    """Whether one argument alone gets a gradient."""
    args = leaves(args, [place])
    try:
        outputs = [y for y in outputs_of(function.apply, args) if y.requires_grad]
        given = cotangents(outputs)
        (found,) = torch.autograd.grad(outputs, [args[place]], given, allow_unused=True)
    except Exception:
        return False
    return found is not None


def proved(name: str) -> tuple[str, str]:
    """The judgement, and an error or the constants; `nothing` where no gradient is found."""
    _, example, reference = AUDITS[name]
    try:
        function = function_of(name)
        make = lambda: example_of(example)  # noqa: E731
        args = arguments(make, torch.float32 if name in SINGLE else torch.float64)
    except ModuleNotFoundError as error:
        return "not installed", str(error)
    except Exception as error:
        return "no example", f"{type(error).__name__}: {error}"
    names = named(function, args)
    constants = tuple(
        names[n]
        for n in floats(args)
        if not isinstance(args[n], nn.Parameter) and not has_gradient(function, args, n)
    )
    said = f"no gradient: {', '.join(constants)}" if constants else ""
    if len(constants) == len(floats(args)):
        return "nothing", said
    plain = reference if callable(reference) else None
    entry = Entry(name, function, make, (), plain, None, constants, structured(name), False, 2e-6)
    try:
        prove(entry, args)
    except Exception as error:
        text = " ".join(str(error).split())[:150]
        return "wrong", f"{type(error).__name__}: {text} {said}"
    return "right", said


def structured(name: str) -> Any:
    """A map that makes the last argument, an operator's matrix, symmetric, or None."""
    if not name.startswith("linear_operator.") or name.endswith("DSMM"):
        return None
    return lambda *args: (*args[:-1], (args[-1] + args[-1].mT) / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="*")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, (expected, _, _) in AUDITS.items():
        if fnmatchcase(name, given.only):
            found, why = proved(name)
            print(f"{found:14} expected {expected:8} {name}: {why}", flush=True)


if __name__ == "__main__":
    main()

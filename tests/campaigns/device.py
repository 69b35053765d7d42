"""The generated modules on a device, by the checks of `derive verify`.

    python tests/campaigns device --device cuda
    python tests/campaigns device --device cuda --jobs 12
    python tests/campaigns device --device cuda --only '*_norm' --columns value,vmap

Tensors are moved to the device for the call and back after it, which is differentiable, so that
each check holds of what the device computes. Prints each check that fails.
"""

import argparse
import multiprocessing
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from functools import partial, wraps
from typing import Any

import torch
from kit.cases.case import GENERATED
from torch.utils._pytree import tree_map_only

from derive import catalog
from derive.check.checks import QUICK, checks_of, load_source
from derive.check.invoke import Function
from derive.notation.operation import Operation

DEFAULT = ("value", "gradient", "gradcheck", "gradgradcheck", "forward", "vmap", "float32")


def on(device: str, function: Function) -> Function:
    """The function, computed on the device."""

    @wraps(function)
    def moved(*tensors: Any, **parameters: Any) -> Any:
        given = tree_map_only(torch.Tensor, lambda x: x.to(device), tensors)
        return tree_map_only(torch.Tensor, lambda y: y.cpu(), function(*given, **parameters))

    return moved


def failures(name: str, device: str, columns: Collection[str]) -> tuple[str, list[str]]:
    """The name of an operation, and what is wrong with its module on the device."""
    torch.set_num_threads(1)
    op = next(op for op in catalog.operations() if op.name == name)
    return name, list(wrong(op, device, columns))


def wrong(op: Operation, device: str, columns: Collection[str]) -> Iterator[str]:
    text = (GENERATED / f"{op.name}.py").read_text(encoding="utf-8")
    asked = [c for c in QUICK if c.name in columns]
    try:
        function = on(device, load_source(op, text))
        for check in checks_of(op, function, columns=asked):
            if not check.ok:
                option = "" if check.option is None else f" ({check.option})"
                yield f"{check.check}{option}, {check.case}: {check.detail.splitlines()[0]}"
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda, mps, cpu ..")
    parser.add_argument("--only", action="append", metavar="NAME", help="a name or pattern")
    parser.add_argument("--columns", default=",".join(DEFAULT), help="the checks, by name")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args(arguments)
    patterns = given.only or ["*"]
    names = [
        op.name for op in catalog.operations() if any(fnmatchcase(op.name, p) for p in patterns)
    ]
    check = partial(failures, device=given.device, columns=given.columns.split(","))
    count = 0
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for n, (name, found) in enumerate(pool.imap_unordered(check, names), 1):
            count += len(found)
            print(f"[{n}/{len(names)}] {name}", *found, sep="\n  ", flush=True)
    print(f"{len(names)} operations on {given.device}: {count} failures")
    return 1 if count else 0

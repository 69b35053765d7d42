"""The generated modules on a device, by the checks of `derive verify`.

    python tests/campaigns device --device cuda
    python tests/campaigns device --device cuda --only '*_norm' --columns value,vmap

Tensors are moved to the device for the call and back after it, which is differentiable, so that
each check holds of what the device computes. Prints each check that fails.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any

import torch
from kit.cases.case import GENERATED
from torch.utils._pytree import tree_map_only

from derive import catalog
from derive.check.checks import QUICK, checks_of, load_source
from derive.check.invoke import Column, Function
from derive.notation.operation import Operation

DEFAULT = ("value", "gradient", "gradcheck", "gradgradcheck", "forward", "vmap", "float32")


def on(device: str, function: Function) -> Function:
    """The function, computed on the device."""

    @wraps(function)
    def moved(*tensors: Any, **parameters: Any) -> Any:
        given = tree_map_only(torch.Tensor, lambda x: x.to(device), tensors)
        return tree_map_only(torch.Tensor, lambda y: y.cpu(), function(*given, **parameters))

    return moved


def failures(op: Operation, device: str, columns: list[Column]) -> Iterator[str]:
    """What is wrong with the module of an operation on the device."""
    text = (GENERATED / f"{op.name}.py").read_text(encoding="utf-8")
    try:
        function = on(device, load_source(op, text))
        for check in checks_of(op, function, columns=columns):
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
    given = parser.parse_args(arguments)
    asked = given.columns.split(",")
    columns = [c for c in QUICK if c.name in asked]
    patterns = given.only or ["*"]
    operations = [
        op for op in catalog.operations() if any(fnmatchcase(op.name, p) for p in patterns)
    ]
    wrong = 0
    for op in operations:
        for failure in failures(op, given.device, columns):
            wrong += 1
            print(f"{op.name}: {failure}", flush=True)
    print(f"{len(operations)} operations on {given.device}: {wrong} failures")
    return 1 if wrong else 0

"""Prepare example inputs: modules, constants, and tensors stored on ctx."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from derive.auditing.points import is_float, is_tensor


def with_wide_modules(
    examples: Sequence[tuple[Any, ...]],
) -> tuple[list[tuple[Any, ...]], frozenset[int]]:
    """Replace modules by float64 copies, and their parameters among the arguments with them.

    Also returns the numbers of those parameter arguments.
    """
    import torch

    made, owned = [], set()
    for example in examples:
        copies: dict[int, Any] = {}
        args = list(example)
        for n, arg in enumerate(args):
            if isinstance(arg, torch.nn.Module):
                try:
                    other = copy.deepcopy(arg).double()
                except Exception:
                    continue
                copies |= {
                    id(old): new
                    for old, new in zip(arg.parameters(), other.parameters(), strict=True)
                }
                args[n] = other
        for n, arg in enumerate(args):
            if id(arg) in copies:
                args[n] = copies[id(arg)]
                owned.add(n)
        made.append(tuple(args))
    return made, frozenset(owned)


def told_constants(examples: Sequence[tuple[Any, ...]], owned: frozenset[int]) -> set[int] | None:
    """Return the float arguments that require no gradient; None if no argument requires one.

    Parameters of modules are ignored, since they always require one.
    """
    apart = {n: a for n, a in enumerate(examples[0]) if is_float(a) and n not in owned}
    wanted = {n for n in apart for e in examples if n < len(e) and _asks(e[n])}
    return {n for n in apart if n not in wanted} if wanted else None


def _asks(value: Any) -> bool:
    return is_float(value) and bool(value.requires_grad)


def kept_on_ctx(
    context: Any, inputs: Sequence[Any], outputs: Sequence[Any], names: Sequence[str]
) -> list[str]:
    """Warn of inputs and outputs stored as attributes of ctx.

    save_for_backward would detect in-place changes of them.
    """
    found = []
    own = {"needs_input_grad", "saved_tensors", "dirty"}
    for key, value in vars(context).items():
        if key in own or not is_tensor(value):
            continue
        for what, several in (("input", inputs), ("output", outputs)):
            for n, tensor in enumerate(several):
                if value is tensor and is_float(tensor):
                    name = names[n] if what == "input" and n < len(names) else f"output {n}"
                    found.append(
                        f"{name} is kept as ctx.{key}: save_for_backward would notice that it is "
                        "changed in place" + (", and frees it" if what == "output" else "")
                    )
    return found

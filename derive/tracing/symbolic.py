"""What would take a size as the number of the example, made to keep it a size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept_sizes(function: Any) -> Iterator[None]:
    """math.sqrt of a size as one, also under a name of its own in the code of the function.

    Pools of one axis are those of two, whose sizes torch keeps.
    """
    import torch

    plain = math.sqrt

    def sqrt(x: Any) -> Any:
        return torch.sym_sqrt(x) if isinstance(x, torch.SymInt | torch.SymFloat) else plain(x)

    changed = [vars(math), *_globals(function)]
    names = [(own, [n for n, x in own.items() if x is plain]) for own in changed]
    for own, found in names:
        own.update(dict.fromkeys(found, sqrt))
    try:
        with _pools():
            yield
    finally:
        for own, found in names:
            own.update(dict.fromkeys(found, plain))


def _globals(function: Any) -> list[dict[str, Any]]:
    """The namespaces of the code of a function, and of the modules in it."""
    import torch

    functions = [function, getattr(function, "func", None)]
    if isinstance(function, torch.nn.Module):
        functions += [type(m).forward for m in function.modules()]
    found: dict[int, dict[str, Any]] = {}
    for f in functions:
        own = getattr(getattr(f, "__func__", f), "__globals__", None)
        if isinstance(own, dict) and own.get("__name__") != "math":
            found[id(own)] = own
    return list(found.values())


def _pools() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    def pair(n: Any, first: int) -> Any:
        if n is None or n == ():
            return ()
        return (first, *n) if isinstance(n, tuple | list) else (first, n)

    def pool(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        sizes = pair(kernel_size, 1), pair(stride, 1), pair(padding, 0), pair(dilation, 1)
        return torch.max_pool2d(x.unsqueeze(-2), *sizes, ceil_mode).squeeze(-2)

    pools = (torch.max_pool1d, torch.nn.functional.max_pool1d)

    class Pools(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = dict(kwargs or {})
            if func in pools and not (len(args) > 6 or named.pop("return_indices", False)):
                return pool(*args, **named)
            return func(*args, **(kwargs or {}))

    return Pools()

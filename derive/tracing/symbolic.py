"""What would take a size as the number of the example, made to keep it a size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept_sizes(function: Any) -> Iterator[None]:
    """math.sqrt of a size as one, also under a name of its own in the code of the function.

    Functions of torch that take numbers are others that compute the same of sizes.
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
        with _others():
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


def _others() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    pools = (torch.max_pool1d, torch.nn.functional.max_pool1d)
    others: dict[Any, Any] = dict.fromkeys(pools, _max_pool1d)
    others |= {torch.gru_cell: _gru_cell, torch.lstm_cell: _lstm_cell}
    others |= {
        torch.rnn_tanh_cell: _rnn_cell(torch.tanh),
        torch.rnn_relu_cell: _rnn_cell(torch.relu),
    }

    class Others(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = dict(kwargs or {})
            if func not in others or (func in pools and _says_where(args, named)):
                return func(*args, **named)
            return others[func](*args, **{k: v for k, v in named.items() if k != "return_indices"})

    return Others()


def _says_where(args: Any, named: Any) -> bool:
    return len(args) > 6 or bool(named.get("return_indices", False))


def _max_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """A pool of two axes, of which the first has one position."""
    import torch

    def pair(n: Any, first: int) -> Any:
        if n is None or n == ():
            return ()
        return (first, *n) if isinstance(n, tuple | list) else (first, n)

    sizes = pair(kernel_size, 1), pair(stride, 1), pair(padding, 0), pair(dilation, 1)
    return torch.max_pool2d(x.unsqueeze(-2), *sizes, ceil_mode).squeeze(-2)


def _gru_cell(x: Any, h: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
    """n + z*(h - n), with gates r and z and the new state n."""
    import torch
    from torch.nn.functional import linear

    given, kept = linear(x, w, b).chunk(3, -1), linear(h, u, c).chunk(3, -1)
    r, z = (torch.sigmoid(given[k] + kept[k]) for k in (0, 1))
    n = torch.tanh(given[2] + r * kept[2])
    return n + z * (h - n)


def _lstm_cell(x: Any, states: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
    """The state and the cell, with gates i, f and o."""
    import torch
    from torch.nn.functional import linear

    h, cell = states
    i, f, g, o = (linear(x, w, b) + linear(h, u, c)).chunk(4, -1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _rnn_cell(function: Any) -> Any:
    def cell(x: Any, h: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
        from torch.nn.functional import linear

        return function(linear(x, w, b) + linear(h, u, c))

    return cell

"""Replace functions that would turn a symbolic size into its value in the example."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from derive.tracing.sizes import is_one


@contextmanager
def kept_sizes(function: Any) -> Iterator[None]:
    """Let math.sqrt and logarithms take symbolic sizes, also under other names in the code.

    Functions of torch that take numbers only are replaced by equivalents for symbolic sizes.
    """
    import torch

    log2, as_float = (getattr(torch, name) for name in ("_sym_log2", "sym_float"))
    of_sizes: dict[Any, Callable[[Any], Any]] = {
        math.sqrt: torch.sym_sqrt,
        math.log2: log2,
        math.log: lambda x: log2(x) * math.log(2),
    }

    def kept(plain: Callable[..., Any]) -> Callable[..., Any]:
        def of(x: Any, *more: Any) -> Any:
            if isinstance(x, torch.SymInt | torch.SymFloat) and not more:
                return of_sizes[plain](as_float(x))
            return plain(x, *more)

        return of

    changed = [vars(math), *_globals(function)]
    names = [
        (own, n, x) for own in changed for n, x in own.items() if any(x is f for f in of_sizes)
    ]
    instead = {plain: kept(plain) for plain in of_sizes}
    for own, name, plain in names:
        own[name] = instead[plain]
    try:
        with _symbolic_replacements():
            yield
    finally:
        for own, name, plain in names:
            own[name] = plain


def _globals(function: Any) -> list[dict[str, Any]]:
    """Return the global namespaces of a function's code, and of the modules in it."""
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


def _symbolic_replacements() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    pools = (torch.max_pool1d, torch.nn.functional.max_pool1d)
    others: dict[Any, Any] = {
        torch.gru_cell: _gru_cell,
        torch.lstm_cell: _lstm_cell,
        torch.rnn_tanh_cell: partial(_rnn_cell, torch.tanh),
        torch.rnn_relu_cell: partial(_rnn_cell, torch.relu),
        torch.nn.functional.scaled_dot_product_attention: _symbolic_attention,
        torch.tensor: _symbolic_tensor,
        torch.nn.functional.multilabel_margin_loss: _multilabel_margin,
        torch.Tensor.fill_diagonal_: _filled_on_diagonal,
        torch.nn.functional.one_hot: _one_hot,
    }
    others |= dict.fromkeys(pools, _max_pool1d)
    others |= dict.fromkeys((torch.diagonal, torch.Tensor.diagonal), _diagonal)
    others |= dict.fromkeys((torch.diag, torch.Tensor.diag), _diag)

    class Others(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = dict(kwargs or {})
            if func not in others or (
                func in pools and (len(args) > 6 or named.get("return_indices"))
            ):
                return func(*args, **named)
            return others[func](*args, **{k: v for k, v in named.items() if k != "return_indices"})

    return Others()


def _max_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Return the pool over two axes, of which the first has size 1."""
    import torch

    def pair(n: Any, first: int) -> Any:
        if n is None or n == ():
            return ()
        return (first, *n) if isinstance(n, tuple | list) else (first, n)

    sizes = pair(kernel_size, 1), pair(stride, 1), pair(padding, 0), pair(dilation, 1)
    return torch.max_pool2d(x.unsqueeze(-2), *sizes, ceil_mode).squeeze(-2)


def _symbolic_attention(q: Any, *args: Any, **named: Any) -> Any:
    """Scale the queries by a symbolic number; torch's default scale, 1/sqrt(size), stays."""
    import torch

    scale = named.get("scale")
    if isinstance(scale, torch.SymFloat):
        plain = is_one(scale * q.shape[-1] ** 0.5)
        q, named["scale"] = (q, None) if plain else (q * scale, 1.0)
    return torch._C._nn.scaled_dot_product_attention(q, *args, **named)


def _symbolic_tensor(data: Any, **named: Any) -> Any:
    """Return a number made of sizes as a tensor."""
    import torch

    if not isinstance(data, torch.SymInt | torch.SymFloat):
        return torch.tensor(data, **named)
    full: Any = torch.full
    kind = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
    named.setdefault("dtype", kind)
    return full((), data, **{n: x for n, x in named.items() if n != "requires_grad"})


def _multilabel_margin(
    x: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    """Return the loss of the classes before the first -1, against all other classes."""
    import torch

    if size_average is not None or reduce is not None:
        return torch.nn.functional.multilabel_margin_loss(x, target, size_average, reduce)
    seen = (target == -1).cumsum(-1) == 0
    own = torch.where(seen, target, 0)
    classes = torch.arange(x.shape[-1], device=x.device)
    taken = (seen.unsqueeze(-1) & (own.unsqueeze(-1) == classes)).any(-2)
    margins = (1 - x.gather(-1, own).unsqueeze(-1) + x.unsqueeze(-2)).clamp(min=0)
    counted = seen.unsqueeze(-1) & ~taken.unsqueeze(-2)
    losses = torch.where(counted, margins, 0).sum((-2, -1)) / x.shape[-1]
    return losses if reduction == "none" else getattr(losses, reduction)()


def _filled_on_diagonal(x: Any, value: Any, wrap: bool = False) -> Any:
    import torch

    if x.dim() != 2 or wrap:
        return x.fill_diagonal_(value, wrap)
    return x.masked_fill_(torch.eye(*x.shape, dtype=torch.bool, device=x.device), value)


def _diagonal(x: Any, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return a diagonal; for an offset that is a size, that of a part of x."""
    if not hasattr(offset, "node"):
        return x.diagonal(offset, dim1, dim2)
    dim, first = (dim2, offset) if offset >= 0 else (dim1, -offset)
    return x.narrow(dim, first, x.shape[dim] - first).diagonal(0, dim1, dim2)


def _one_hot(x: Any, num_classes: Any = -1) -> Any:
    """Return the one-hot encoding; the number of classes may be a size."""
    import torch

    if not isinstance(num_classes, torch.SymInt):
        return torch._C._nn.one_hot(x, num_classes)
    classes: Any = num_classes
    return (x.unsqueeze(-1) == torch.arange(classes, device=x.device)).long()


def _diag(x: Any, diagonal: Any = 0) -> Any:
    return _diagonal(x, diagonal) if x.dim() == 2 else x.diag(diagonal)


def _gru_cell(x: Any, h: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
    """n + z*(h - n), with gates r and z and the new state n."""
    from torch.nn.functional import linear

    given, kept = linear(x, w, b).chunk(3, -1), linear(h, u, c).chunk(3, -1)
    r, z = ((given[k] + kept[k]).sigmoid() for k in (0, 1))
    n = (given[2] + r * kept[2]).tanh()
    return n + z * (h - n)


def _lstm_cell(x: Any, states: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
    """The state and the cell, with gates i, f and o."""
    from torch.nn.functional import linear

    h, cell = states
    i, f, g, o = (linear(x, w, b) + linear(h, u, c)).chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _rnn_cell(f: Any, x: Any, h: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
    from torch.nn.functional import linear

    return f(linear(x, w, b) + linear(h, u, c))

"""Replace functions that would turn a symbolic size into its value in the example."""

from __future__ import annotations

import dis
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial, reduce
from typing import Any

import torch
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from derive.tracing.refusals import unread
from derive.tracing.sizes import is_one
from derive.tracing.surroundings import surroundings_of
from derive.tracing.truths import writes


@contextmanager
def kept_sizes(function: Any, chosen: bool = False) -> Iterator[None]:
    """Let math.sqrt and logarithms take symbolic sizes, also under other names in the code.

    There, ``len`` of a tensor is its first size, which Python's own makes a number, and ``max`` and
    ``min`` of one element and a number select one of them, which Python's own asks for a truth.
    Of sizes too, if they are ``chosen``: else that truth is a guard.
    Functions of torch that take numbers only are replaced by equivalents for symbolic sizes.
    """
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

    code = _codes(function)
    given = {id(f.__globals__): f.__globals__ for f in code}
    names = [
        (own, n, x)
        for own in (vars(math), *given.values())
        for n, x in own.items()
        if any(x is f for f in of_sizes)
    ]
    passed = {(id(f.__globals__), n) for f in code for n in _passed(f)}
    builtins = [
        (own, n, f)
        for key, own in given.items()
        for n, f in _builtins(chosen).items()
        if n not in own and (key, n) not in passed
    ]
    instead = {plain: kept(plain) for plain in of_sizes}
    for own, name, plain in names:
        own[name] = instead[plain]
    for own, name, f in builtins:
        own[name] = f
    try:
        with _symbolic_replacements():
            yield
    finally:
        for own, name, plain in names:
            own[name] = plain
        for own, name, _ in builtins:
            del own[name]


def _length(x: Any) -> Any:
    return x.shape[0] if isinstance(x, torch.Tensor) and x.shape else len(x)


def _is_instance(x: Any, kinds: Any) -> bool:
    """Return Python's ``isinstance``, for which a symbolic size is a number."""
    stands_for = {torch.SymInt: 0, torch.SymFloat: 0.0}.get(type(x), x)
    return isinstance(x, kinds) or isinstance(stands_for, kinds)


def _extremum(
    plain: Callable[..., Any], is_better: Callable[[Any, Any], Any], symbolic: Any, chosen: bool
) -> Any:
    """Return Python's ``max`` or ``min``: the first argument that no later one is better than.

    Of numbers that values decide, such as a count, it is a formula; of sizes, if they are
    ``chosen``.
    """

    def better(x: Any, y: Any) -> Any:
        chosen = is_better(y, x)
        return torch.where(chosen, y, x) if isinstance(chosen, torch.Tensor) else plain(x, y)

    def of(*args: Any, **named: Any) -> Any:
        if named or len(args) < 2:
            return plain(*args, **named)
        numbers = [x for x in args if isinstance(x, torch.SymInt | torch.SymFloat)]
        if all(isinstance(x, int | float | torch.SymInt | torch.SymFloat) for x in args) and (
            chosen or not all(x.node.has_hint() for x in numbers)
        ):
            return reduce(symbolic, args)
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        alone = tensors and not any(x.shape for x in tensors)
        return reduce(better, args) if alone else plain(*args)

    return of


def _number(plain: type, of_size: Callable[[Any], Any]) -> type:
    """Return Python's ``float`` or ``int``, which keeps symbolic sizes when it is called."""

    class Kind(type):
        def __call__(cls, *args: Any, **named: Any) -> Any:
            x = args[0] if len(args) == 1 else None
            x = x.item() if isinstance(x, torch.Tensor) else x
            size = isinstance(x, torch.SymInt | torch.SymFloat)
            return of_size(x) if size else plain(*args, **named)

        def __instancecheck__(cls, x: Any) -> bool:
            return isinstance(x, plain)

    return Kind(plain.__name__, (plain,), {})


@lru_cache
def _builtins(chosen: bool) -> dict[str, Any]:
    return {
        "len": _length,
        "isinstance": _is_instance,
        "divmod": lambda a, b: (a // b, a % b),
        "max": _extremum(max, operator.gt, torch.sym_max, chosen),
        "min": _extremum(min, operator.lt, torch.sym_min, chosen),
        "float": _number(float, torch.sym_float),
        "int": _number(int, torch.sym_int),
    }


def _passed(function: Any) -> set[str]:
    """Return the globals that a function reads without calling them, as ``float`` in a dtype."""
    loads = (i for i in dis.get_instructions(function) if i.opname == "LOAD_GLOBAL")
    return {i.argval for i in loads if "NULL" not in i.argrepr}


def _codes(function: Any) -> list[Any]:
    """Return the Python functions that a function may call, and those of the modules in it."""
    functions = [function, *surroundings_of(function).functions]
    if isinstance(function, torch.nn.Module):
        kinds = dict.fromkeys(c for m in function.modules() for c in type(m).__mro__)
        own_kinds = (c for c in kinds if not c.__module__.startswith(("torch.", "builtins")))
        functions += [f for c in own_kinds for f in vars(c).values() if inspect.isroutine(f)]
    found = dict.fromkeys(getattr(f, "__func__", f) for f in functions)
    own = (f for f in found if isinstance(getattr(f, "__globals__", None), dict))
    return [f for f in own if f.__globals__.get("__name__") != "math"]


def _symbolic_replacements() -> Any:
    pools = (torch.max_pool1d, torch.nn.functional.max_pool1d)
    others: dict[Any, Any] = {
        torch.gru_cell: _gru_cell,
        torch.lstm_cell: _lstm_cell,
        torch.rnn_tanh_cell: partial(_rnn_cell, torch.tanh),
        torch.rnn_relu_cell: partial(_rnn_cell, torch.relu),
        torch.nn.functional.scaled_dot_product_attention: _symbolic_attention,
        torch.tensor: _symbolic_tensor,
        torch.Tensor.data.__get__: lambda x: x.detach(),  # type: ignore[attr-defined]
        torch.Tensor.data.__set__: _with_data,  # type: ignore[attr-defined]
        torch.nn.functional.multilabel_margin_loss: _multilabel_margin,
        torch.nn.functional.embedding_bag: _embedding_bag,
        torch.Tensor.fill_diagonal_: _filled_on_diagonal,
        torch.nn.functional.one_hot: _one_hot,
        torch.bilinear: _bilinear,
        torch.cdist: _cdist,
        torch.cosine_similarity: _cosine_similarity,
        torch.kron: _kron,
        torch.Tensor.unfold: _unfold,
        torch.Tensor.__getitem__: _at,
        torch.Tensor.__setitem__: _put,
        torch.arange: _arange,
        torch.linspace: _linspace,
        torch.hann_window: partial(_window, 0.5, -0.5, 0),
        torch.hamming_window: partial(_window, 0.54, -0.46, 0),
        torch.blackman_window: partial(_window, 0.42, -0.5, 0.08),
    }
    others |= dict.fromkeys(pools, _max_pool1d)
    both = {
        "corrcoef": _corrcoef,
        "cov": _cov,
        "diag": _diag,
        "diagonal": _diagonal,
        "logsumexp": _logsumexp,
        "median": _median,
        "msort": lambda x: x.sort(0).values,
        "quantile": _quantile,
        "take_along_dim": _taken_along,
    }
    others |= {getattr(at, n): f for n, f in both.items() for at in (torch, torch.Tensor)}
    others[torch.special.logsumexp] = _logsumexp

    signs = "mul div add sub __mul__ __truediv__ __rtruediv__ __rdiv__ __rsub__ __add__ __sub__"
    arithmetic = {getattr(torch.Tensor, sign) for sign in signs.split()}
    is_batched, as_float = torch._C._functorch.is_functorch_wrapped_tensor, vars(torch)["sym_float"]

    diagonals = _Diagonals()

    class Others(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            selected = diagonals.selected(func, args)
            made = selected if selected is not None else self.called(func, args, dict(kwargs or {}))
            if "m" not in (kwargs or {}):
                diagonals.note(func, args, made)
            return made

        def called(self, func: Any, args: Any, named: dict[str, Any]) -> Any:
            if func in arithmetic and args and is_batched(args[0]):
                # There, torch takes a float made of sizes, and no size.
                args = [as_float(x) if isinstance(x, torch.SymInt) else x for x in args]
            if func not in others or (
                func in pools and (len(args) > 6 or named.get("return_indices"))
            ):
                return func(*args, **named)
            return others[func](*args, **{k: v for k, v in named.items() if k != "return_indices"})

    return Others()


class _Diagonals:
    """The square masks that hold on a diagonal, or off it; how many elements they select is known.

    x[~eye] is the rows of x, each without its own column: k + [k >= n] for the others k of row n.
    """

    def __init__(self) -> None:
        self._known: Any = WeakTensorKeyDictionary()

    def note(self, func: Any, args: Sequence[Any], made: Any) -> None:
        """Record the result of a call if it is such a mask."""
        if not isinstance(made, torch.Tensor):
            return
        name, on = getattr(func, "__name__", ""), self._holds(args[0]) if args else None
        number = args[1] if len(args) == 2 and isinstance(args[1], int) else None
        if func is torch.eye and len(args) == 1:
            self._known[made] = writes(made), True
        elif on is not None and (name in _KEEPS_TRUTH or (name, number) in _COMPARES):
            self._known[made] = writes(made), on
        elif on is not None and (name in _DENIES or (name, number) in _COMPARES_OTHER):
            self._known[made] = writes(made), not on

    def _holds(self, x: Any) -> bool | None:
        """True if x is a mask of a diagonal, False if of all else, None if of neither."""
        if not isinstance(x, torch.Tensor):
            return None
        version, on = self._known.get(x, (-1, None))
        return on if version == writes(x) else None

    def selected(self, func: Any, args: Sequence[Any]) -> Any:
        """Return the elements that a call selects by such a mask; None of another call."""
        if func not in (torch.Tensor.__getitem__, torch.masked_select, torch.Tensor.masked_select):
            return None
        x, mask = args[:2]
        on = self._holds(mask)
        if on is None or mask.dtype != torch.bool or x.dim() < 2:
            return None
        if on:
            return x.diagonal(0, 0, 1).movedim(-1, 0)
        if has_unknown_sizes(x):
            return None  # of rows that a mask selects: the mask off the diagonal is one more
        rows = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
        others = torch.arange(x.shape[0] - 1, device=x.device)
        return x[rows, others + (others >= rows)].flatten(0, 1)


_KEEPS_TRUTH = ("to", "bool", "clone", "contiguous", "detach", "cuda", "type_as")
_DENIES = ("__invert__", "bitwise_not", "logical_not")
_COMPARES = (("eq", 1), ("ne", 0), ("__eq__", 1), ("__ne__", 0))
_COMPARES_OTHER = (("eq", 0), ("ne", 1), ("__eq__", 0), ("__ne__", 1), ("__rsub__", 1))


def _max_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Return the pool over two axes, of which the first has size 1."""

    def pair(n: Any, first: int) -> Any:
        if n is None or n == ():
            return ()
        return (first, *n) if isinstance(n, tuple | list) else (first, n)

    sizes = pair(kernel_size, 1), pair(stride, 1), pair(padding, 0), pair(dilation, 1)
    return torch.max_pool2d(x.unsqueeze(-2), *sizes, ceil_mode).squeeze(-2)


def _positions(*args: Any, **named: Any) -> Any:
    """Return arange as floats."""
    named["dtype"] = named.get("dtype") or torch.get_default_dtype()
    return torch.arange(*args, **named)


def _arange(*args: Any, **named: Any) -> Any:
    """Return arange; torch rounds the number of its elements if an argument is a float."""
    whole = [int(x) if isinstance(x, float) and x.is_integer() else x for x in args]
    floats, rest = (
        [isinstance(x, float | torch.SymFloat) for x in given] for given in (args, whole)
    )
    return _positions(*whole, **named) if any(floats) > any(rest) else torch.arange(*args, **named)


def _linspace(start: Any, end: Any, steps: Any, **named: Any) -> Any:
    """Return linspace; torch's own makes the number of steps a plain one."""
    kind = named.get("dtype")
    if not isinstance(steps, torch.SymInt) or (kind and not kind.is_floating_point):
        return torch.linspace(start, end, steps, **named)
    places, rise = _positions(steps, **named), end - start
    places = places if isinstance(rise, int | float) and rise == 1 else places * rise
    return places / torch.sym_max(steps - 1, 1) + start  # type: ignore[no-untyped-call]


def _window(a: float, b: float, c: float, n: Any, periodic: bool = True, **named: Any) -> Any:
    """Return a + b*cos(angle) + c*cos(2*angle) at n angles of a whole turn."""
    if not isinstance(n, torch.SymInt) and n < 2:
        return torch.ones(n, **named)
    angle = _positions(n, **named) * (2 * math.pi / (n if periodic else n - 1))
    made = a + b * angle.cos()
    return made + c * (2 * angle).cos() if c else made


def _unfold(x: Any, dimension: int, size: Any, step: Any) -> Any:
    """Return the windows of an axis; those of a symbolic size are read at their positions."""
    if not any(isinstance(n, torch.SymInt) for n in (size, step)):
        return x.unfold(dimension, size, step)
    dim, device = dimension % x.dim(), x.device
    count: Any = (x.shape[dim] - size) // step + 1
    first = torch.arange(count, device=device)
    first = first if isinstance(step, int) and step == 1 else first * step
    at = first.unsqueeze(1) + torch.arange(size, device=device)
    return x.movedim(dim, -1)[..., at].movedim(-2, dim)


def _at(x: Any, index: Any) -> Any:
    """Return x[index]; integers that torch makes numbers, as those of sizes, select.

    A size stays a number beside tensors with axes, with which torch broadcasts it.
    """
    parts = index if isinstance(index, tuple) else (index,)
    tensors, ones = _tensors_in(parts)
    if len(ones) == len(tensors):
        ones = [n for n, p in enumerate(parts) if n in ones or isinstance(p, torch.SymInt)]
    x, index = _with_selected(x, parts, ones) if ones else (x, index)
    return x[index]


def _with_selected(x: Any, parts: Sequence[Any], ones: Sequence[int]) -> tuple[Any, Any]:
    """Return (x at the positions at these places of an index, the rest of the index)."""
    taken = [_axes_taken(p) for p in parts]
    for n in reversed(ones):
        after, at = any(p is Ellipsis for p in parts[:n]), parts[n]
        axis = -1 - sum(taken[n + 1 :]) if after else sum(taken[:n])
        taken[n] = 0
        if isinstance(at, torch.SymInt):
            x = x.select(axis, at)
        else:
            x = x.index_select(axis, at.reshape(1)).squeeze(axis)
    return x, tuple(p for n, p in enumerate(parts) if n not in ones)


def _axes_taken(part: Any) -> int:
    """Return how many axes of a tensor one part of an index applies to."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.dim() if isinstance(part, torch.Tensor) and part.dtype is torch.bool else 1


def _tensors_in(parts: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return (the places of tensors in an index, those of integers without axes).

    The second list is empty if there is a truth without axes.
    """
    tensors = [n for n, p in enumerate(parts) if isinstance(p, torch.Tensor)]
    ones = [n for n in tensors if not parts[n].shape and not parts[n].is_floating_point()]
    return tensors, [] if any(parts[n].dtype is torch.bool for n in ones) else ones


def _put(x: Any, index: Any, value: Any) -> None:
    """x[index] = value; a size or an integer tensor, which torch makes numbers, selects."""
    parts = index if isinstance(index, tuple) else (index,)
    tensors, ones = _tensors_in(parts)
    sizes = [n for n, p in enumerate(parts) if isinstance(p, torch.SymInt)]
    if sizes and not tensors:
        x, index = _with_selected(x, parts, sizes)
    if not ones:
        x[index] = value
        return
    if len(ones) == len(tensors) and isinstance(value, torch.Tensor):
        # The part that is written has one more axis, of size 1, at the place of the integers.
        after = sum(p is None or isinstance(p, slice) for p in parts[ones[-1] + 1 :])
        if not any(p is Ellipsis for p in parts[: ones[0]]):
            after += x.dim() - sum(p is not None and p is not Ellipsis for p in parts)
        value = value.unsqueeze(-1 - after) if value.dim() > after else value
    x[tuple(p.reshape(1) if n in ones else p for n, p in enumerate(parts))] = value


def _symbolic_attention(q: Any, *args: Any, **named: Any) -> Any:
    """Scale the queries by a symbolic number; torch's default scale, 1/sqrt(size), stays."""
    scale = named.get("scale")
    if isinstance(scale, torch.SymFloat):
        plain = is_one(scale * q.shape[-1] ** 0.5)
        q, named["scale"] = (q, None) if plain else (q * scale, 1.0)
    return torch._C._nn.scaled_dot_product_attention(q, *args, **named)


def _symbolic_tensor(data: Any, **named: Any) -> Any:
    """Return numbers of which some are made of sizes as a tensor."""
    parts = tree_leaves(data)
    if not any(isinstance(x, torch.SymInt | torch.SymFloat) for x in parts):
        return torch.tensor(data, **named)
    if isinstance(data, list | tuple):
        floats = any(isinstance(x, float | torch.SymFloat) for x in parts)
        named.setdefault("dtype", torch.get_default_dtype() if floats else torch.int64)
        return torch.stack([_symbolic_tensor(x, **named) for x in data])
    full: Any = torch.full
    kind = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
    named.setdefault("dtype", kind)
    return full((), data, **{n: x for n, x in named.items() if n != "requires_grad"})


def _multilabel_margin(
    x: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    """Return the loss of the classes before the first -1, against all other classes."""
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


def _kron(x: Any, y: Any) -> Any:
    """Return x[i,j]*y[k,l] at [(i k),(j l)]; torch's own makes numbers of the sizes."""
    rank = max(x.dim(), y.dim())
    x, y = (t[(None,) * (rank - t.dim())] for t in (x, y))
    for n in range(rank):
        x, y = x.unsqueeze(2 * n + 1), y.unsqueeze(2 * n)
    made = x * y
    for n in range(rank):
        made = made.flatten(n, n + 1)
    return made


def _filled_on_diagonal(x: Any, value: Any, wrap: bool = False) -> Any:
    if x.dim() != 2 or wrap:
        return x.fill_diagonal_(value, wrap)
    return x.masked_fill_(torch.eye(*x.shape, dtype=torch.bool, device=x.device), value)


def _logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    """Return logsumexp; torch's own asks for the number of elements that a mask selects."""
    if all(isinstance(n, int) or n.node.has_hint() for n in x.shape):
        return torch.logsumexp(x, dim, keepdim)
    return x.exp().sum(dim, keepdim).log()


def _diagonal(x: Any, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return a diagonal; for an offset that is a size, that of a part of x."""
    if not hasattr(offset, "node"):
        return x.diagonal(offset, dim1, dim2)
    dim, first = (dim2, offset) if offset >= 0 else (dim1, -offset)
    return x.narrow(dim, first, x.shape[dim] - first).diagonal(0, dim1, dim2)


def _one_hot(x: Any, num_classes: Any = -1) -> Any:
    """Return the one-hot encoding; the number of classes may be a size."""
    if not isinstance(num_classes, torch.SymInt):
        return torch._C._nn.one_hot(x, num_classes)
    classes: Any = num_classes
    return (x.unsqueeze(-1) == torch.arange(classes, device=x.device)).long()


def _bilinear(x: Any, y: Any, weight: Any, bias: Any = None) -> Any:
    """Return sum[i,j](x[.., i]*weight[k,i,j]*y[.., j]); torch's own makes size(k) a number."""
    made = torch.einsum("...i,kij,...j->...k", x, weight, y)
    return made if bias is None else made + bias


def _taken_along(x: Any, indices: Any, dim: Any = None) -> Any:
    """Return the elements at integers along an axis; torch's own makes the sizes numbers."""
    if dim is None or x.dim() != indices.dim():
        return torch.take_along_dim(x, indices, dim)
    dim %= x.dim()
    one, other = (t.select(dim, 0).shape for t in (x, indices))
    shape: Any = torch.broadcast_shapes(one, other)  # type: ignore[no-untyped-call]
    wide = (t.expand(*shape[:dim], t.shape[dim], *shape[dim:]) for t in (x, indices))
    return next(wide).gather(dim, next(wide))


def _cov(x: Any, *, correction: int = 1, **weights: Any) -> Any:
    """Return cov without weights; torch's own asks whether n - correction is positive."""
    if any(w is not None for w in weights.values()):
        raise unread("weights of a covariance are not supported; write sums with the weights")
    apart = x - x.mean(-1, keepdim=True)
    rows = apart @ apart.mT if x.dim() > 1 else (apart * apart).sum()
    return rows / torch.sym_max(x.shape[-1] - correction, 0)  # type: ignore[no-untyped-call]


def _corrcoef(x: Any) -> Any:
    c = _cov(x)
    if x.dim() < 2:
        return c / c
    deviation = c.diagonal().sqrt()
    return (c / deviation[:, None] / deviation).clip(-1, 1)


def _median(x: Any, *args: Any, **named: Any) -> Any:
    """Return the median; that of all elements shares its gradient evenly among equal ones."""
    if args or named or not x.is_floating_point():
        return x.median(*args, **named)
    same = x == x.flatten().median(0).values.detach()
    return torch.where(same, x, 0).sum() / same.sum()


def has_unknown_sizes(made: Any) -> bool:
    """True if the values of tensors decide a size of a result, or a number."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return any(
        free_unbacked_symbols(x.shape if isinstance(x, torch.Tensor) else x)
        for x in tree_leaves(made)
        if isinstance(x, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)
    )


def _cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str = "") -> Any:
    if not has_unknown_sizes([x1, x2]):
        return torch.cdist(x1, x2, p)
    return torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def _cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    if not has_unknown_sizes([x1, x2]):
        return torch.cosine_similarity(x1, x2, dim, eps)
    x1, x2 = (
        x / torch.linalg.vector_norm(x, 2, dim, keepdim=True).clamp(min=eps) for x in (x1, x2)
    )
    return (x1 * x2).sum(dim)


def _quantile(x: Any, q: Any, dim: Any = None, keepdim: bool = False, **named: Any) -> Any:
    """Return the quantile, between the values at two positions of the sorted ones."""
    if isinstance(q, torch.Tensor) or (dim is None and keepdim) or named:
        return torch.quantile(x, q, dim, keepdim, **named)
    x, dim = (x.flatten(), 0) if dim is None else (x, dim)
    last = x.shape[dim] - 1
    ordered, place = x.sort(dim).values, torch.full((), q * last, dtype=x.dtype)
    # A nan, which makes the quantile nan, comes last.
    undefined, end = x.isnan().any(dim, keepdim=True), torch.full((), last)
    ends = (torch.where(undefined, end, n.long()) for n in (place, place.ceil()))
    low, high = (ordered.gather(dim, n) for n in ends)
    made = low + (place - place.floor()) * (high - low)
    return made if keepdim else made.squeeze(dim)


def _embedding_bag(input: Any, weight: Any, offsets: Any = None, *limit: Any, **named: Any) -> Any:
    """Return the sum, mean or maximum of the rows of each bag, if all bags have one size."""
    mode, scales = named.get("mode", "mean"), named.get("per_sample_weights")
    asked = {k for k, v in named.items() if v is not None and v is not False}
    if limit or input.dim() != 2 or asked - {"mode", "norm_type", "per_sample_weights"}:
        return torch.nn.functional.embedding_bag(input, weight, offsets, *limit, **named)
    rows = weight[input]
    rows = rows if scales is None else rows * scales.unsqueeze(-1)
    return rows.max(1).values if mode == "max" else getattr(rows, mode)(1)


def _with_data(x: Any, data: Any) -> None:
    kinds = [(t.untyped_storage()._cdata, t.shape, t.stride(), t.dtype) for t in (x, data)]
    if kinds[0] == kinds[1]:  # as x.data = x.data.to(device) where it is there
        return
    raise NotImplementedError(
        "a tensor is given other data; write y = values, or y = y + (values - y).detach() to keep "
        "the gradient of y"
    )


def _diag(x: Any, diagonal: Any = 0) -> Any:
    return _diagonal(x, diagonal) if x.dim() == 2 else x.diag(diagonal)


def _gru_cell(x: Any, h: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
    """n + z*(h - n), with gates r and z and the new state n."""
    given, kept = linear(x, w, b).chunk(3, -1), linear(h, u, c).chunk(3, -1)
    r, z = ((given[k] + kept[k]).sigmoid() for k in (0, 1))
    n = (given[2] + r * kept[2]).tanh()
    return n + z * (h - n)


def _lstm_cell(x: Any, states: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
    """The state and the cell, with gates i, f and o."""
    h, cell = states
    i, f, g, o = (linear(x, w, b) + linear(h, u, c)).chunk(4, -1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _rnn_cell(f: Any, x: Any, h: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
    return f(linear(x, w, b) + linear(h, u, c))

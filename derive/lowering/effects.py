"""What torch functions do to tensors of known shapes: a view, or a step with its result and flops.

A function that is not listed is elementwise: its result has the shape that its arguments broadcast
to, and takes one flop an element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from derive.algebra.amount import floor_divided, whole
from derive.algebra.poly import ONE, ZERO, Poly, add, constant, mul, scale
from derive.lowering.steps import Shaped, Steps, elements, flat, kind_of, position

__all__ = ["KNOWN"]

Known = Callable[[Steps, Sequence[Any], Mapping[str, Any]], Any]


def _place(x: Shaped, n: Any) -> int:
    return position(n) % max(len(x.shape), 1)


def _sizes(args: Sequence[Any]) -> tuple[Poly, ...]:
    """A shape that is one tuple or is spelled out."""
    given = args[0] if args and isinstance(args[0], tuple) else args
    return tuple(x for x in given if isinstance(x, Poly))


def _view(f: Callable[..., tuple[Poly, ...]]) -> Known:
    def known(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
        x: Shaped = args[0]
        shape = f(x, *args[1:], **given)
        return replace(x, shape=tuple(trace.letters.get(n, n) for n in shape))

    return known


def _unsqueeze(x: Shaped, at: Any) -> tuple[Poly, ...]:
    n = position(at) % (len(x.shape) + 1)
    return (*x.shape[:n], ONE, *x.shape[n:])


def _squeeze(x: Shaped, at: Any = None) -> tuple[Poly, ...]:
    if at is None:
        return tuple(n for n in x.shape if n is not ONE)
    n = _place(x, at)
    return (*x.shape[:n], *x.shape[n + 1 :])


def _select(x: Shaped, at: Any, _: Any) -> tuple[Poly, ...]:
    return _squeeze(x, at)


def _narrow(x: Shaped, at: Any, _: Any, length: Any) -> tuple[Poly, ...]:
    n = _place(x, at)
    return (*x.shape[:n], whole(length), *x.shape[n + 1 :])


def _expand(x: Shaped, *sizes: Any) -> tuple[Poly, ...]:
    return _sizes(sizes)


def _transpose(x: Shaped, a: Any, b: Any) -> tuple[Poly, ...]:
    shape = list(x.shape)
    m, n = _place(x, a), _place(x, b)
    shape[m], shape[n] = shape[n], shape[m]
    return tuple(shape)


def _permute(x: Shaped, *order: Any) -> tuple[Poly, ...]:
    return tuple(x.shape[_place(x, n)] for n in flat(order))


def _movedim(x: Shaped, source: Any, target: Any) -> tuple[Poly, ...]:
    sources = [_place(x, n) for n in flat([source])]
    targets = [_place(x, n) for n in flat([target])]
    rest = iter(n for n in range(len(x.shape)) if n not in sources)
    order = [sources[targets.index(n)] if n in targets else next(rest) for n in range(len(x.shape))]
    return tuple(x.shape[n] for n in order)


def _flatten(x: Shaped, start: Any = None, end: Any = None) -> tuple[Poly, ...]:
    first = 0 if start is None else _place(x, start)
    last = len(x.shape) - 1 if end is None else _place(x, end)
    return (*x.shape[:first], elements(x.shape[first : last + 1]), *x.shape[last + 1 :])


def _unflatten(x: Shaped, at: Any, sizes: Any) -> tuple[Poly, ...]:
    n = _place(x, at)
    return (*x.shape[:n], *_sizes(sizes), *x.shape[n + 1 :])


def _unfold(x: Shaped, at: Any, size: Any, step: Any) -> tuple[Poly, ...]:
    n = _place(x, at)
    count = add(floor_divided(add(x.shape[n], scale(size, -1)), step), ONE)
    return (*x.shape[:n], count, *x.shape[n + 1 :], size)


def _diagonal(x: Shaped, offset: Any = None, dim1: Any = None, dim2: Any = None) -> Any:
    places = [0 if dim1 is None else _place(x, dim1), 1 if dim2 is None else _place(x, dim2)]
    rest = [n for m, n in enumerate(x.shape) if m not in places]
    return (*rest, x.shape[places[0]])


def _reduction(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    """Over the axes that are named, or over all."""
    x, *rest = args
    where = rest[0] if rest else given.get("dim")
    keep = given.get("keepdim", rest[1] if len(rest) > 1 else None) is True
    places = range(len(x.shape)) if where is None else [_place(x, n) for n in flat([where])]
    shape = [ONE if n in places else size for n, size in enumerate(x.shape)]
    if not keep:
        shape = [size for n, size in enumerate(x.shape) if n not in places]
    return trace.did("sum", (x,), shape, elements(x.shape), x.kind)


def _sum_to_size(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    return trace.did("sum", args[:1], _sizes(args[1:]), elements(args[0].shape))


def _like(x: Shaped, *_: Any, **__: Any) -> tuple[Poly, ...]:
    return x.shape


def _moving(f: Callable[..., tuple[Poly, ...]], source: int = 0) -> Known:
    """No arithmetic, but where a source of this number is added in place."""

    def known(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
        flops = elements(args[source].shape) if source else ZERO
        shape = f(*args, **given)
        return trace.did("move", (*args, *given.values()), shape, flops, args[0].kind)

    return known


def _cast(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    return trace.did("to", args, args[0].shape, ZERO, _kind_named(args))


def _kind_named(args: Sequence[Any]) -> str:
    names = [x for x in args if isinstance(x, str)]
    if "torch.int64" in names:
        return "int"
    return "bool" if "torch.bool" in names else "float"


def _new(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    return trace.did("new", (), _sizes(args[1:]), ZERO, _kind_named(args))


def _arange(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    return trace.did("arange", (), (whole(args[0]),), ZERO, "int")


def _tensor(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    return trace.did("tensor", (), (), ZERO, "int")


def _gathered(x: Shaped, at: Any, index: Shaped) -> tuple[Poly, ...]:
    return index.shape


def _selected(x: Shaped, at: Any, index: Shaped) -> tuple[Poly, ...]:
    n = _place(x, at)
    return (*x.shape[:n], *index.shape, *x.shape[n + 1 :])


def _diag_embed(x: Shaped, *_: Any) -> tuple[Poly, ...]:
    return (*x.shape, x.shape[-1])


def _padded(x: Shaped, amounts: Any, *_: Any) -> tuple[Poly, ...]:
    shape = list(x.shape)
    for n in range(len(amounts) // 2):
        before, after = (whole(a) for a in amounts[2 * n : 2 * n + 2])
        shape[-1 - n] = add(shape[-1 - n], before, after)
    return tuple(shape)


def joined(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    parts = args[0]
    n = _place(parts[0], args[1] if len(args) > 1 else ZERO)
    size = add(*(x.shape[n] for x in parts))
    shape = (*parts[0].shape[:n], size, *parts[0].shape[n + 1 :])
    return trace.did("cat", parts, shape, ZERO, kind_of(parts))


def _stacked(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    first = args[0][0]
    n = position(args[1] if len(args) > 1 else ZERO) % (len(first.shape) + 1)
    shape = (*first.shape[:n], constant(len(args[0])), *first.shape[n:])
    return trace.did("stack", args[0], shape, ZERO, kind_of(args[0]))


def _where(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    return trace.elementwise("where", args, kind_of(args[1:]), flops=False)


def _einsum(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    equation, *operands = args
    sides, target = equation.split("->")
    named: dict[str, Poly] = {}
    for letters, x in zip(sides.split(","), operands, strict=True):
        named |= zip(letters.replace("...", "."), x.shape, strict=True)
    shape = [named[letter] for letter in target.replace("...", ".")]
    flops = scale(elements(named.values()), 2)
    return trace.did("einsum", operands, shape, flops, contracts=True)


def _added(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    """A matrix product that starts from a tensor in place of 0."""
    total, a, b = args[:3]
    shape = (*a.shape[:-1], b.shape[-1])
    flops = scale(mul(elements(shape), a.shape[-1]), 2)
    return trace.did("addmm", (total, a, b), shape, flops, contracts=True)


def _spread(given: Mapping[str, Any], name: str, unit: Poly, axes: int) -> list[Poly]:
    """The option of a convolution along each of its axes."""
    value = given.get(name, unit)
    return list(value) if isinstance(value, tuple) else [value] * axes


def _conv(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    """Each axis has (n + 2*padding - dilation*(k - 1) - 1)//stride + 1 positions."""
    x, w = args[:2]
    axes = len(w.shape) - 2
    options = [_spread(given, "stride", ONE, axes), _spread(given, "padding", ZERO, axes)]
    options.append(_spread(given, "dilation", ONE, axes))
    places = []
    for n, k, stride, padding, dilation in zip(x.shape[-axes:], w.shape[2:], *options, strict=True):
        reach = add(n, scale(padding, 2), scale(mul(dilation, add(k, constant(-1))), -1))
        places.append(add(floor_divided(add(reach, constant(-1)), stride), ONE))
    places = [trace.letters.get(n, n) for n in places]
    flops = scale(mul(*x.shape[: -axes - 1], *places, elements(w.shape)), 2)
    shape = (*x.shape[: -axes - 1], w.shape[0], *places)
    return trace.did("conv", args, shape, flops, contracts=True)


def _pool(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    """Each axis has (n + 2*padding - k)//stride + 1 positions, of k elements each."""
    x, *rest = args
    axes = len(x.shape) - 2
    named = dict(zip(("kernel_size", "stride", "padding"), rest, strict=False)) | dict(given)
    kernel = _spread(named, "kernel_size", ONE, axes)
    strides = kernel if named.get("stride") is None else _spread(named, "stride", ONE, axes)
    paddings = _spread(named, "padding", ZERO, axes)
    places = []
    for n, k, stride, padding in zip(x.shape[2:], kernel, strides, paddings, strict=True):
        reach = add(n, scale(padding, 2), scale(k, -1))
        places.append(add(floor_divided(reach, stride), ONE))
    places = [trace.letters.get(n, n) for n in places]
    shape = (*x.shape[:2], *places)
    return trace.did("pool", (x,), shape, mul(elements(shape), *kernel), x.kind)


def _conv_transpose(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    """Each axis has (n - 1)*stride + dilation*(k - 1) + output_padding - 2*padding + 1."""
    y, w = args[:2]
    axes = len(w.shape) - 2
    options = [_spread(given, "stride", ONE, axes), _spread(given, "padding", ZERO, axes)]
    options += [_spread(given, "dilation", ONE, axes), _spread(given, "output_padding", ZERO, axes)]
    places = []
    for n, k, stride, padding, dilation, more in zip(
        y.shape[-axes:], w.shape[2:], *options, strict=True
    ):
        reach = add(mul(add(n, constant(-1)), stride), mul(dilation, add(k, constant(-1))))
        places.append(add(reach, scale(padding, -2), more, ONE))
    groups = given.get("groups", ONE)
    shape = (*y.shape[: -axes - 1], mul(groups, w.shape[1]), *places)
    return trace.did("conv", args, shape, _correlated(y, elements(w.shape)), contracts=True)


def _conv_input(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    shape, w, y = args[:3]
    return trace.did("conv", args, shape, _correlated(y, elements(w.shape)), contracts=True)


def _conv_weight(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    _, shape, y = args[:3]
    return trace.did("conv", args, shape, _correlated(y, elements(shape)), contracts=True)


def _correlated(y: Shaped, weights: Poly) -> Poly:
    """2 for each weight at each place of each example; the channels of y are in the weights."""
    places = [n for m, n in enumerate(y.shape) if m != 1]
    return scale(mul(*places, weights), 2)


def _others(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    """Two joins, two running products, three reversals, and their product."""
    x = args[0]
    trace.did("ones", (), _reduced(x, args[1]), ZERO)
    for name, flops in (("cat", 0), ("cumprod", 1), ("cat", 0), ("flip", 0), ("cumprod", 1)):
        trace.did(name, (x,), x.shape, scale(elements(x.shape), flops))
    trace.did("flip", (x,), x.shape, ZERO)
    return trace.did("*", (x,), x.shape, elements(x.shape))


def _before(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    """A join and a running product."""
    x = args[0]
    trace.did("ones", (), _reduced(x, args[1]), ZERO)
    joined = trace.did("cat", (x,), x.shape, ZERO)
    return trace.did("cumprod", (joined,), x.shape, elements(x.shape))


def _recurrence(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    """Five products and sums of every pair, then of every pair of pairs, and so on: 5 for each."""
    x, w = args[:2]
    return trace.did("recurrence", (x, w), x.shape, scale(elements(x.shape), 5))


def _decayed(trace: Steps, args: Sequence[Any], given: Mapping[str, Any]) -> Shaped:
    """A clamp, a difference, its negative and its exponential, then the recurrence."""
    x, level = args[:2]
    for name in ("clamp", "diff", "neg", "exp"):
        level = trace.elementwise(name, (level,), "float")
    return _recurrence(trace, (x, level), {})


def _reduced(x: Shaped, at: Any) -> tuple[Poly, ...]:
    n = _place(x, at)
    return (*x.shape[:n], ONE, *x.shape[n + 1 :])


_VIEWS: dict[str, Callable[..., tuple[Poly, ...]]] = {
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "select": _select,
    "narrow": _narrow,
    "expand": _expand,
    "reshape": _expand,
    "transpose": _transpose,
    "permute": _permute,
    "movedim": _movedim,
    "flatten": _flatten,
    "unflatten": _unflatten,
    "diagonal": _diagonal,
    "unfold": _unfold,
    "detach": _like,
}

KNOWN: dict[str, Known] = {
    **{name: _view(f) for name, f in _VIEWS.items()},
    **dict.fromkeys(
        (
            *("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "any", "all"),
            *("logsumexp", "max", "min"),
        ),
        _reduction,
    ),
    "sum_to_size": _sum_to_size,
    "gather": _moving(_gathered),
    "index_select": _moving(_selected),
    "flip": _moving(_like),
    "clone": _moving(_like),
    "diag_embed": _moving(_diag_embed),
    "pad": _moving(_padded),
    "select_scatter": _moving(_like),
    "slice_scatter": _moving(_like),
    "scatter_add": _moving(_like, 3),
    "scatter_reduce": _moving(_like, 3),
    "index_add": _moving(_like, 3),
    "index_put": _moving(_like, 2),
    "to": _cast,
    "new_zeros": _new,
    "new_full": _new,
    "arange": _arange,
    "tensor": _tensor,
    "cat": joined,
    "stack": _stacked,
    "where": _where,
    "einsum": _einsum,
    "addmm": _added,
    "baddbmm": _added,
    **{f"conv{n}d": _conv for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": _pool for kind in ("avg", "max") for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _conv_transpose for n in (1, 2, 3)},
    **{f"conv{n}d_input": _conv_input for n in (1, 2, 3)},
    **{f"conv{n}d_weight": _conv_weight for n in (1, 2, 3)},
    "_product_of_others": _others,
    "_product_before": _before,
    "_recurrence": _recurrence,
    "_decayed_sum": _decayed,
}

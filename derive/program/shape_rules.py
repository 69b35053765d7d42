"""Shape rules of torch operations; sizes are formulas.

Each function takes the arguments of one operation, with shapes for tensors, and returns the shape
of the result. A position is an integer that depends on no size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from derive.algebra.expr import Add, Call, Expr, Mul, Num, Pow
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    Term,
    add,
    atom,
    base_and_power,
    constant,
    make_term,
    mul,
    poly,
    scale,
)
from derive.notation.operation import Kind

Shape = tuple[Poly, ...]


@dataclass(frozen=True)
class TensorType:
    """A tensor of this shape; ``kind`` is None if it is unknown."""

    shape: Shape
    kind: Kind | None = "float"


_LAST = constant(-1)


# -------------------------------------------------------------------- sizes


def formula(e: Expr, of: Callable[[Expr], Poly] = atom) -> Poly:
    """Return e in flat form, with ``of(x)`` for each size and parameter x."""

    def within(part: Expr) -> Poly:
        return formula(part, of)

    match e:
        case Num(value):
            return constant(value)
        case Poly(terms):
            return add(ZERO, *(mul(constant(t.coef), *map(within, t.factors)) for t in terms))
        case Add(args):
            return add(ZERO, *map(within, args))
        case Mul(args):
            return mul(ONE, *map(within, args))
        case Pow(base, Num(n)) if n.denominator == 1 and n > 0:
            return mul(*[within(base)] * int(n))
        case Call("floordiv", (a, b)):
            return floor_divided(within(a), within(b))
        case Call(function, args):
            return extremum(function, tuple(map(within, args)))
    return of(e)


def whole(e: Expr | int) -> Poly:
    """Return a number, a size or a formula of them in flat form."""
    if isinstance(e, int):
        return constant(e)
    return e if isinstance(e, Poly) else constant(e.value) if isinstance(e, Num) else atom(e)


def extremum(function: str, args: tuple[Poly, ...]) -> Poly:
    """Return the minimum or maximum: a number if all arguments are numbers, x of x and x."""
    if len(set(args)) == 1:
        return args[0]
    if any(t.factors for p in args for t in p.terms):
        return atom(Call(function, args))
    return constant((min if function == "minimum" else max)(map(number, args)))


def elements(shape: Iterable[Poly]) -> Poly:
    """Return the number of elements."""
    return mul(ONE, *shape)


def number(x: Any) -> int:
    """Return the value of a constant formula."""
    return int(x.terms[0].coef) if isinstance(x, Poly) and x.terms else 0


def floor_divided(a: Poly, b: Poly) -> Poly:
    """Return ⌊a/b⌋, with the multiples of b taken out of the quotient."""
    if len(b.terms) != 1:
        return constant(1) if a is b else atom(Call("floordiv", (a, b)))
    quotients = {t: _exact_quotient(t, b.terms[0]) for t in a.terms}
    out = poly([q for q in quotients.values() if q is not None])
    left = poly([t for t, q in quotients.items() if q is None])
    if not left.terms:
        return out
    if all(not t.factors for t in (*left.terms, *b.terms)):
        return add(out, constant(left.terms[0].coef // b.terms[0].coef))
    return add(out, atom(Call("floordiv", (left, b))))


def _exact_quotient(a: Term, b: Term) -> Term | None:
    """Return a/b if it has an integer coefficient and no negative powers, else None."""
    coef, powers = a.coef / b.coef, dict(map(base_and_power, a.factors))
    divided = list(map(base_and_power, b.factors))
    if coef.denominator != 1 or any(powers.get(base, 0) < n for base, n in divided):
        return None
    inverse = [atom(base, -n) for base, n in divided]
    (made,) = mul(poly([make_term(coef, (), a.factors)]), *inverse).terms
    return made


# -------------------------------------------------------------------- parts of shapes


def flat(values: Iterable[Any]) -> Iterable[Any]:
    """Yield the values, with tuples flattened."""
    for x in values:
        if isinstance(x, tuple):
            yield from flat(x)
        else:
            yield x


def _axis_number(x: Shape, n: Any) -> int:
    return number(n) % max(len(x), 1)


def _put_sizes(x: Shape, n: int, *sizes: Poly, taken: int = 1) -> Shape:
    """Return x with these sizes in place of ``taken`` axes from n on."""
    return (*x[:n], *sizes, *x[n + taken :])


def _shape_argument(given: Sequence[Any]) -> Shape:
    """Return a shape that is given as one tuple or as separate arguments."""
    sizes = given[0] if given and isinstance(given[0], tuple) else given
    return tuple(x for x in sizes if isinstance(x, Poly))


# -------------------------------------------------------------------- elements one for one


def broadcast(*tensors: Shape) -> Shape:
    """Return the shape of an elementwise result: aligned at the right, a size wins over 1."""
    longest = max(map(len, tensors), default=0)
    columns = zip(*((ONE,) * (longest - len(x)) + x for x in tensors), strict=True)
    return tuple(next((n for n in column if n is not ONE), ONE) for column in columns)


def like(x: Shape, *_: Any, **__: Any) -> Shape:
    return x


def reduce(x: Shape, dim: Any = None, keepdim: Any = None, **_: Any) -> Shape:
    """Reduce over the given axes, or over all."""
    places = range(len(x)) if dim is None else [_axis_number(x, n) for n in flat([dim])]
    if keepdim is True:
        return tuple(ONE if n in places else size for n, size in enumerate(x))
    return tuple(size for n, size in enumerate(x) if n not in places)


def norm(x: Shape, _: Any, dim: Any = None, keepdim: Any = None, **given: Any) -> Shape:
    """A reduction whose order argument precedes its axes."""
    return reduce(x, dim, keepdim, **given)


# -------------------------------------------------------------------- axes moved, made and left out


def unsqueeze(x: Shape, at: Any) -> Shape:
    return _put_sizes(x, number(at) % (len(x) + 1), ONE, taken=0)


def squeeze(x: Shape, at: Any = None, *_: Any) -> Shape:
    """Drop the given axes, or all of size 1."""
    return tuple(n for n in x if n is not ONE) if at is None else reduce(x, at)


def narrow(x: Shape, at: Any, _: Any, length: Any, *__: Any) -> Shape:
    return _put_sizes(x, _axis_number(x, at), whole(length))


def expand(_: Shape, *sizes: Any, **__: Any) -> Shape:
    return _shape_argument(sizes)


def reshape(x: Shape, *sizes: Any, **__: Any) -> Shape:
    made = _shape_argument(sizes)
    return (elements(x),) if made == (_LAST,) else made


def transpose(x: Shape, one: Any, other: Any) -> Shape:
    a, b = _axis_number(x, one), _axis_number(x, other)
    return tuple(x[b if n == a else a if n == b else n] for n in range(len(x)))


def permute(x: Shape, *order: Any) -> Shape:
    return tuple(x[_axis_number(x, n)] for n in flat(order))


def movedim(x: Shape, source: Any, target: Any) -> Shape:
    sources, targets = ([_axis_number(x, n) for n in flat([places])] for places in (source, target))
    rest = iter(n for n in range(len(x)) if n not in sources)
    order = [sources[targets.index(n)] if n in targets else next(rest) for n in range(len(x))]
    return tuple(x[n] for n in order)


def flatten(x: Shape, start: Any = ZERO, end: Any = _LAST) -> Shape:
    first, last = _axis_number(x, start), _axis_number(x, end)
    return _put_sizes(x, first, elements(x[first : last + 1]), taken=last + 1 - first)


def unflatten(x: Shape, at: Any, sizes: Any) -> Shape:
    return _put_sizes(x, _axis_number(x, at), *_shape_argument((sizes,)))


def unfold(x: Shape, at: Any, size: Any, step: Any) -> Shape:
    n = _axis_number(x, at)
    return (*_put_sizes(x, n, _window_count(x[n], size, step)), size)


def windows(x: Shape, at: Any, _: Any, count: Any, size: Any, __: Any) -> Shape:
    return (*_put_sizes(x, _axis_number(x, at), whole(count)), whole(size))


def diagonal(x: Shape, _: Any = ZERO, dim1: Any = ZERO, dim2: Any = ONE) -> Shape:
    one, other = _axis_number(x, dim1), _axis_number(x, dim2)
    return (*(size for n, size in enumerate(x) if n not in (one, other)), x[one])


def matrix_transposed(x: Shape) -> Shape:
    return (*x[:-2], x[-1], x[-2])


# -------------------------------------------------------------------- elements chosen and joined


def like_second(_: Any, x: Shape, *__: Any, **___: Any) -> Shape:
    return x


def sum_where(f: Shape, x: Shape, _: Any, t: Shape) -> Shape:
    """Replace the last axis of the summands by the last axes of the bounds."""
    return (*f[:-1], *t[len(x) - 1 :])


def mean_where(f: Shape, _: Shape, x: Shape, op: Any, t: Shape, *__: Any) -> Shape:
    return sum_where(f, x, op, t)


def index_select(x: Shape, at: Any, index: Shape) -> Shape:
    return _put_sizes(x, _axis_number(x, at), *index)


def read_at(x: Shape, dims: Any, *positions: Shape) -> Shape:
    """Return the axes of the positions in place of adjacent indexed axes, else first."""
    places = [_axis_number(x, n) for n in dims]
    others = [size for n, size in enumerate(x) if n not in places]
    at = places[0] if places[-1] - places[0] < len(places) else 0
    return (*others[:at], *broadcast(*positions), *others[at:])


def sliced(n: Poly, part: slice) -> Poly:
    """Return the length of a slice of n positions: with constant ends, or with a step."""
    start = ZERO if part.start is None else part.start
    stop = n if part.stop is None else part.stop
    if all(not t.factors for t in stop.terms) and number(stop) < 0:
        stop = add(n, stop)
    length = add(stop, scale(start, -1))
    return length if part.step is None else _window_count(length, ONE, part.step)


def pad(x: Shape, amounts: Any, **_: Any) -> Shape:
    ends = [whole(a) for a in amounts]
    more = [add(before, after) for before, after in list(pairwise(ends))[::2]][::-1]
    kept = len(x) - len(more)
    return (*x[:kept], *(add(n, m) for n, m in zip(x[kept:], more, strict=True)))


def glu(x: Shape, at: Any) -> Shape:
    """Return half of x, as a gate multiplies the other half."""
    n = _axis_number(x, at)
    return _put_sizes(x, n, scale(x[n], Fraction(1, 2)))


def cat(parts: Sequence[Shape], at: Any = ZERO) -> Shape:
    n = _axis_number(parts[0], at)
    return _put_sizes(parts[0], n, add(*(x[n] for x in parts)))


def stack(parts: Sequence[Shape], at: Any = ZERO) -> Shape:
    first = parts[0]
    return _put_sizes(first, number(at) % (len(first) + 1), constant(len(parts)), taken=0)


def arange(size: Any, *_: Any, **__: Any) -> Shape:
    return (whole(size),)


# -------------------------------------------------------------------- contractions


def matmul(a: Shape, b: Shape) -> Shape:
    left, right = (a if len(a) > 1 else (ONE, *a)), (b if len(b) > 1 else (*b, ONE))
    rows, columns = (a[-2:-1] if len(a) > 1 else ()), (b[-1:] if len(b) > 1 else ())
    return (*broadcast(left[:-2], right[:-2]), *rows, *columns)


def addmm(_: Shape, a: Shape, b: Shape, **__: Any) -> Shape:
    return (*a[:-1], b[-1])


def tensordot(a: Shape, b: Shape, dims: Any) -> Shape:
    """Return the shape without the summed axes: the last of a, or those at these places."""
    if isinstance(dims, tuple):
        summed = [[number(n) % len(x) for n in own] for own, x in zip(dims, (a, b), strict=True)]
    else:
        n = number(dims)
        summed = [list(range(len(a) - n, len(a))), list(range(n))]
    sides = zip((a, b), summed, strict=True)
    return tuple(size for x, own in sides for n, size in enumerate(x) if n not in own)


def linear(x: Shape, w: Shape, _: Any = None) -> Shape:
    return (*x[:-1], w[0])


def einsum(equation: str, *operands: Shape) -> Shape:
    named = einsum_sizes(equation, *operands)
    return tuple(named[letter] for letter in _einsum_letters(equation)[-1])


def einsum_sizes(equation: str, *operands: Shape) -> dict[str, Poly]:
    """Return the size of each letter."""
    named: dict[str, Poly] = {}
    for letters, x in zip(_einsum_letters(equation)[:-1], operands, strict=True):
        named |= zip(letters, x, strict=True)
    return named


def _einsum_letters(equation: str) -> list[str]:
    """Return the letters of each operand, then of the result."""
    return equation.replace("...", ".").replace("->", ",").split(",")


# -------------------------------------------------------------------- windows


def _window_count(n: Poly, reach: Poly, step: Poly) -> Poly:
    """Return the number of windows of n positions, ⌊(n - reach)/step⌋ + 1."""
    return add(floor_divided(add(n, scale(reach, -1)), step), ONE)


def along(option: Any, axes: int) -> list[Poly]:
    """Return the option of a convolution along each of its axes."""
    return list(option) if isinstance(option, tuple) else [option] * axes


def _every_window(
    sizes: Shape, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Iterable[Poly]:
    """Yield ⌊(n + 2*padding - dilation*(k - 1) - 1)/stride⌋ + 1 for each axis."""
    options = (along(option, len(sizes)) for option in (kernel, stride, padding, dilation))
    for n, k, step, more, apart in zip(sizes, *options, strict=True):
        reach = add(mul(apart, add(k, _LAST)), ONE)
        yield _window_count(add(n, scale(more, 2)), reach, step)


def conv(
    x: Shape,
    w: Shape,
    bias: Any = None,
    stride: Any = ONE,
    padding: Any = ZERO,
    dilation: Any = ONE,
    **_: Any,
) -> Shape:
    axes = len(w) - 2
    places = _every_window(x[-axes:], w[2:], stride, padding, dilation)
    return (*x[: -axes - 1], w[0], *places)


def pool(axes: int) -> Callable[..., Shape]:
    """Return the rule for windows along the last axes, with or without a batch."""

    def made(
        x: Shape, kernel_size: Any, stride: Any = None, padding: Any = ZERO, **_: Any
    ) -> Shape:
        step = kernel_size if stride is None else stride
        return (*x[:-axes], *_every_window(x[-axes:], kernel_size, step, padding, ONE))

    return made


def conv_transpose(
    y: Shape,
    w: Shape,
    bias: Any = None,
    stride: Any = ONE,
    padding: Any = ZERO,
    dilation: Any = ONE,
    output_padding: Any = ZERO,
    groups: Any = ONE,
) -> Shape:
    """Each axis has size (n - 1)*stride + dilation*(k - 1) + output_padding - 2*padding + 1."""
    axes = len(w) - 2
    options = (along(option, axes) for option in (stride, padding, dilation, output_padding))
    places = []
    for n, k, step, less, apart, more in zip(y[-axes:], w[2:], *options, strict=True):
        reach = add(mul(add(n, _LAST), step), mul(apart, add(k, _LAST)))
        places.append(add(reach, scale(less, -2), more, ONE))
    return (*y[: -axes - 1], mul(groups, w[1]), *places)


# -------------------------------------------------------------------- several results


def rows_normalised(x: Shape, shape: Shape, *_: Any, **__: Any) -> Any:
    """Return the shapes of y and of two statistics per row."""
    row = x[: len(x) - len(shape)]
    return x, row, row


def normalised(start: int, stop: int) -> Callable[..., Any]:
    """Return the rule for a tensor like the first argument, and two with some of its axes."""
    return lambda x, *_, **__: (x, x[start:stop], x[start:stop])


def attended(q: Shape, _: Shape, v: Shape, *__: Any) -> Any:
    """Return the shapes of the result and of one number, for each row of q."""
    return (*q[:-1], v[-1]), q[:-1]

"""Names of values and letters of axes; which values get a name, and when two are the same."""

from __future__ import annotations

import ast
import inspect
import keyword
import math
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import sympy
import torch
from sympy.printing.str import StrPrinter
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from derive.errors import DeriveError
from derive.notation.advice import CONSTANTS
from derive.tracing import values as tv

_FEW = 16
"""Maximum number of nodes in an expression of positions and numbers that gets no name."""


def is_simple(node: tv.TracedNode) -> bool:
    """True if the expression is a read, a number or little more."""
    if isinstance(node, tv.TracedRead):
        return all(
            isinstance(p, tv.Position) or not any(isinstance(x, tv.TracedRead) for x in tv.walk(p))
            for p in node.positions
        )
    parts = list(islice(tv.walk(node), _FEW + 1))
    return len(parts) <= _FEW and not any(
        isinstance(x, tv.TracedRead | tv.TracedReduce) for x in parts
    )


_SHORT = 20
"""Maximum number of nodes of a short expression."""


def is_short(node: tv.TracedNode) -> bool:
    """True if the expression has a few nodes and no reduction: it may be written in two places."""
    parts = list(islice(tv.walk(node), _SHORT + 1))
    return len(parts) <= _SHORT and not any(isinstance(x, tv.TracedReduce) for x in parts)


def value_key(value: tv.TracedValue) -> tuple[Any, ...]:
    """Return a key that is equal for values that differ only in their indices."""
    numbers: dict[tv.Atom, int] = {}

    def number(a: tv.Atom) -> int:
        return numbers.setdefault(a, len(numbers))

    def said(node: tv.TracedNode) -> tuple[Any, ...]:
        match node:
            case tv.Position(atom):
                return "at", number(atom)
            case tv.TracedReduce(kind, atoms):
                own_axes = tuple((number(a), a.size) for a in atoms)
                return kind, own_axes, *map(said, node.parts())
        own = [v for v in vars(node).values() if not isinstance(v, tuple)]
        return type(node).__name__, *map(str, own), *map(said, node.parts())

    axes = tuple(tuple((number(a), a.size) for a in axis) for axis in value.axes)
    return axes, value.kind, said(value.node)


def notation_name(name: str) -> str:
    """Return a name of the user as one of the notation, where no name begins with _."""
    made = name.lstrip("_") or "x"
    if made[0].isdigit():
        return f"m{made}"
    return f"{made}_" if made in CONSTANTS or keyword.iskeyword(made) else made


def fresh_name(stem: str, taken: set[str]) -> str:
    """Return an unused name, and add it to the names taken."""
    stem = "".join(c if c.isalnum() or c == "_" else "_" for c in stem).strip("_") or "part"
    if stem[0].isdigit() or keyword.iskeyword(stem) or stem in _WORDS:
        stem = f"{stem}_" if not stem[0].isdigit() else f"v{stem}"
    name, n = stem, 2
    while name in taken:
        name, n = f"{stem}{n}", n + 1
    taken.add(name)
    return name


_WORDS = frozenset(
    "op size mean sum prod max min amax amin softmax logsumexp where concat exp log sqrt int "
    "any all argmax argmin detach inf pi True False".split()
)


# -------------------------------------------------------------------- letters


def letters_in(function: Any, ranks: Mapping[str, int]) -> dict[str, list[str | None]]:
    """Return the letters of the axes of inputs of these ranks, if the code names them."""
    code = type(function).forward if isinstance(function, torch.nn.Module) else function
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError, tokenize.TokenError):
        return {}  # also a lambda whose line begins within a string
    found: dict[str, list[str | None]] = {}
    for tensor, place, name in _named_axes(tree, ranks):
        letter = name.lower()
        letters = found.setdefault(tensor, [None] * ranks[tensor])
        if len(letter) == 1 and letter.isascii() and letter.isalpha() and letter not in letters:
            if letters[place] is None:
                letters[place] = letter
    return found


def _named_axes(tree: ast.AST, ranks: Mapping[str, int]) -> Iterator[tuple[str, int, str]]:
    """Yield (input, axis, name)."""
    changed: set[str] = set()
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.Assign)]
    for statement in sorted(statements, key=lambda n: n.lineno):
        match statement.targets:
            case [ast.Name(name)]:
                one = _axis_of(statement.value)
                if one is not None and one[0] in ranks and one[0] not in changed:
                    rank = ranks[one[0]]
                    if -rank <= one[1] < rank:
                        yield one[0], one[1] % rank, name
                changed.add(name)
            case [ast.Tuple(parts)]:
                several = _shape_of(statement.value)
                if several is not None and several[0] in ranks and several[0] not in changed:
                    yield from _unpacked_axes(several[0], parts, several[1], ranks[several[0]])
                changed |= {p.id for p in parts if isinstance(p, ast.Name)}


def _unpacked_axes(
    tensor: str, parts: list[ast.expr], part: slice, rank: int
) -> Iterator[tuple[str, int, str]]:
    places = list(range(rank))[part]
    star = next((n for n, p in enumerate(parts) if isinstance(p, ast.Starred)), None)
    if star is None and len(parts) != len(places):
        return
    for n, p in enumerate(parts):
        if isinstance(p, ast.Name):
            place = n if star is None or n < star else n - len(parts)
            if -len(places) <= place < len(places):
                yield tensor, places[place], p.id


def _shape_of(e: ast.expr) -> tuple[str, slice] | None:
    """Return (x, a slice of its axes) for x.shape, x.size() and x.shape[-2:]."""
    match e:
        case ast.Attribute(ast.Name(name), "shape"):
            return name, slice(None)
        case ast.Call(ast.Attribute(ast.Name(name), "size"), [], []):
            return name, slice(None)
        case ast.Subscript(inner, ast.Slice(low, high, None)):
            found = _shape_of(inner)
            bounds = [_integer_constant(b) if b is not None else None for b in (low, high)]
            if found is not None and not any(
                a is not None and b is None for a, b in zip((low, high), bounds, strict=True)
            ):
                return found[0], slice(*bounds)
    return None


def _axis_of(e: ast.expr) -> tuple[str, int] | None:
    """Return (x, one of its axes) for x.shape[0] and x.size(0)."""
    match e:
        case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), index):
            place = _integer_constant(index)
        case ast.Call(ast.Attribute(ast.Name(name), "size"), [index], []):
            place = _integer_constant(index)
        case _:
            return None
    return None if place is None else (name, place)


def _integer_constant(e: ast.expr) -> int | None:
    match e:
        case ast.Constant(int() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
            return -value
    return None


# ----------------------------------------------------------------------------------------- literals
# Numbers as text of the notation, and constant tensors of a few numbers as values.
#
# A float with as many digits as its dtype holds is usually a rounded shorter expression: a root, a
# logarithm, a multiple of pi, a fraction, or a decimal in float32: 1.4142135623730951 is written as
# sqrt(2), 9.999999974752427e-07 as 1e-6.

# -------------------------------------------------------------------- sizes


class FloorQuotient(sympy.Function):  # type: ignore[misc]
    """A quotient rounded down."""


def size_text(e: sympy.Expr, level: int = 0) -> str:
    """Return a size in the notation: added terms, subtracted terms, then the number."""
    match e:
        case sympy.Add():
            terms = [(t.could_extract_minus_sign(), t) for t in e.as_ordered_terms()]
            terms.sort(key=lambda t: (bool(t[1].is_number), t[0]))
            text = " ".join(
                f"{'-' if minus else '+'} {size_text(-t if minus else t, 6)}" for minus, t in terms
            )
            made, own = text.removeprefix("+ ").replace("- ", "-", text.startswith("- ")), 5
        case FloorQuotient() | FloorDiv():
            made, own = f"{size_text(e.args[0], 6)}//{size_text(e.args[1], 7)}", 6
        case sympy.Min() | sympy.Max():
            name = "minimum" if isinstance(e, sympy.Min) else "maximum"
            made, own = f"{name}({', '.join(map(size_text, e.args))})", 9
        case Mod() | PythonMod() | sympy.Mod():
            made, own = f"{size_text(e.args[0], 6)} % {size_text(e.args[1], 7)}", 6
        case sympy.Mul() if e.is_integer and not e.could_extract_minus_sign():
            made, own = "*".join(size_text(f, 7) for f in e.as_ordered_factors()), 6
        case _:
            made, own = _Exact().doprint(e), 9 if e.is_Atom else 5
    return f"({made})" if own < level else made


class _Exact(StrPrinter):  # type: ignore[misc]
    """Prints floats with all their digits, and functions by their names in the notation."""

    def _print_Float(self, e: sympy.Float) -> str:
        return repr(float(e))

    def _print_Function(self, e: sympy.Function) -> str:
        name = _NAMES.get(type(e).__name__, e.func.__name__)
        return f"{name}({', '.join(map(self._print, e.args))})"

    _print_Abs = _print_Max = _print_Min = _print_Function


_NAMES = {
    "Abs": "abs",
    "Max": "maximum",
    "Min": "minimum",
    "FloorToInt": "floor",
    "CeilToInt": "ceil",
    "TruncToInt": "trunc",
    "RoundToInt": "round",
}


def number_text(e: sympy.Expr) -> str:
    """Return a number without symbols in the notation."""
    if e.is_Integer:
        return str(e)
    if e.is_Rational and e.q < 100:
        return f"{e.p}/{e.q}"
    return repr(float(e))


# -------------------------------------------------------------------- floats


_LONG = 15
"""Number of digits from which a float is no literal that somebody has written."""
_MOST = 12
"""Largest denominator of a fraction; bound of integers under a root."""
_SHORTER = 4
"""A float32 decimal is used if it is more than this many characters shorter."""
_EXACT = 2.3e-16

_PRODUCT, _POWER, _ATOM = 6, 8, 9
"""Precedence of a text, as in the text of an expression."""


def spelled(value: float) -> tuple[str, int] | None:
    """Return (text, precedence) of a positive float; None if the float itself is as short."""
    digits = repr(value).partition("e")[0].replace(".", "").strip("0")
    if not math.isfinite(value) or value <= 0 or len(digits) < _LONG:
        return None
    for exact in (True, False):
        if not exact and (_AS_STORED.get() or _single(value) != value):
            return None
        for text, level, form in _literal_forms():
            if math.isclose(value, form, rel_tol=_EXACT) if exact else _single(form) == value:
                return text, level
    short = repr(float(str(np.float32(value))))
    if float(short) > _LARGEST:
        return None
    return (short, _ATOM) if len(short) + _SHORTER < len(repr(value)) else None


_AS_STORED = ContextVar("as_stored", default=False)


@contextmanager
def numbers_as_stored() -> Iterator[None]:
    """Write numbers of float32 with all digits: 1 - 0.9999 is not 1 - float32(0.9999)."""
    token = _AS_STORED.set(True)
    try:
        yield
    finally:
        _AS_STORED.reset(token)


_LARGEST = float(2**128 - 2**104)
"""Largest float32. Its shortest decimal is larger, and torch reads that as an overflow."""


def _single(value: float) -> float:
    """Round to the nearest float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


@cache
def _literal_forms() -> tuple[tuple[str, int, float], ...]:
    """Return (text, precedence, value) of each candidate, the simplest first."""
    return tuple(_literal_candidates())


def _literal_candidates() -> Iterator[tuple[str, int, float]]:
    yield "pi", _ATOM, math.pi
    for n in range(2, _MOST):
        yield f"{n}*pi", _PRODUCT, n * math.pi
        yield f"pi/{n}", _PRODUCT, math.pi / n
        yield f"{n}/pi", _PRODUCT, n / math.pi
    yield "1/pi", _PRODUCT, 1 / math.pi
    yield "pi/180", _PRODUCT, math.pi / 180
    yield "180/pi", _PRODUCT, 180 / math.pi
    yield "pi**2", _POWER, math.pi**2
    yield "exp(1)", _ATOM, math.e
    inside = [(f"{n}", float(n)) for n in range(2, _MOST) if math.isqrt(n) ** 2 != n]
    inside += [("pi", math.pi), ("2*pi", 2 * math.pi), ("pi/2", math.pi / 2), ("2/pi", 2 / math.pi)]
    for text, x in inside:
        yield f"sqrt({text})", _ATOM, math.sqrt(x)
    for text, x in inside:
        yield f"1/sqrt({text})", _PRODUCT, 1 / math.sqrt(x)
    yield "2/sqrt(pi)", _PRODUCT, 2 / math.sqrt(math.pi)
    for text, x in [*((f"{n}", float(n)) for n in (2, 3, 10)), *inside[-4:]]:
        if x > 1:
            yield f"log({text})", _ATOM, math.log(x)
            yield f"1/log({text})", _PRODUCT, 1 / math.log(x)
            yield f"log({text})/2", _PRODUCT, math.log(x) / 2
    for below in range(3, _MOST + 1):
        for above in range(1, 2 * _MOST):
            if math.gcd(above, below) == 1:
                yield f"{above}/{below}", _PRODUCT, above / below


# -------------------------------------------------------------------- constant tensors


_WRITTEN_OUT = 64
"""Maximum number of elements of a constant tensor that are written out."""


def written_out(held: Any, name: str) -> tv.TracedValue:
    """Return a constant tensor as a value: a number, a linear sequence or choices by position."""
    if held.numel() > _WRITTEN_OUT:
        raise DeriveError(
            f"the function uses a tensor of {held.numel()} numbers that is not an argument "
            f"({name}); pass it as an argument, or make it a parameter or buffer of a module",
            kind="outside-tensor",
        )
    axes = tuple(map(tv.new_axis, held.shape))
    atoms = [axis[0] for axis in axes if axis]
    node = _element_choice(_decimal_literals(held.squeeze()), atoms)
    return tv.TracedValue(axes, node, tv.kind_of(held))


def _decimal_literals(held: Any) -> Any:
    """Return the numbers as literals: the shortest decimals that round to the dtype's values.

    Or the values themselves, if they are read `numbers_as_stored`.
    """
    if held.requires_grad:
        raise DeriveError(
            "the function uses a tensor that requires a gradient and is not an argument; pass it "
            "as an argument, or derive the module whose parameter it is (derive.read_torch, "
            "derive.replace)",
            kind="outside-tensor",
        )
    if not held.is_floating_point():
        return held.tolist()
    exact = held.dtype in (torch.float32, torch.float64)
    array = (held if exact else held.float()).numpy()
    text = np.array([np.format_float_positional(x) for x in array.ravel()], dtype=object)
    made = [float(x) for x in (array.ravel() if _AS_STORED.get() else text)]
    whole = [int(x) if x.is_integer() and abs(x) < 2**53 else x for x in made]
    return np.array(whole, dtype=object).reshape(array.shape).tolist()


def _element_choice(numbers: Any, atoms: list[tv.Atom]) -> tv.TracedNode:
    """Return the number at a position, as nested choices."""
    if not atoms:
        return tv.TracedNumber(numbers)
    line = _arithmetic_sequence(numbers, atoms[0]) if len(atoms) == 1 else None
    if line is not None and len(set(numbers)) > 1:
        return line
    *first, last = (_element_choice(row, atoms[1:]) for row in numbers)
    made = last
    for n, row in reversed(list(enumerate(first))):
        if row != made:
            made = tv.apply("where", tv.apply("==", tv.Position(atoms[0]), n), row, made)
    return made


def _arithmetic_sequence(numbers: list[Any], atom: tv.Atom) -> tv.TracedNode | None:
    """Return start + step*n if the numbers are an arithmetic sequence of integers, else None."""
    if any(isinstance(x, bool) or x != int(x) for x in numbers) or len(numbers) < 3:
        return None
    start, step = numbers[0], numbers[1] - numbers[0]
    if any(x != start + n * step for n, x in enumerate(numbers)):
        return None
    node: tv.TracedNode = tv.Position(atom)
    node = node if step == 1 else tv.TracedNumber(int(step)) * node
    return node if start == 0 else node + int(start)

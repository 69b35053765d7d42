"""Constructors of sums, products and powers that flatten and fold numbers, and nothing else.

Nested sums and products are flattened, the numbers of a product are one factor in front and
those of a sum one term: the form that SymPy gives too. A number beyond float64, above 1.8e308 or
below 1/1.8e308, is an OverflowError, which is raised before the number is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from math import lcm, log10

from derive.algebra.expr import (
    Add,
    And,
    Call,
    Const,
    Expr,
    Iverson,
    Mul,
    Num,
    Or,
    Param,
    Pow,
    Size,
    num,
)

_BEYOND = (
    "the number is out of the range of float64 (above 1.8e308 or below 1/1.8e308); write inf or 0"
)
_LARGEST = 64
LARGEST = 2**62
"""The largest position, size and exponent: they are 64-bit integers at run time."""

_BITS = 1024
"""Every float64 has fewer bits before its binary point."""


def total(terms: Iterable[Expr]) -> Expr:
    """Return the sum of terms."""
    flat: list[Expr] = []
    for term in terms:
        flat.extend(term.args if isinstance(term, Add) else (term,))
    constants = [t.value for t in flat if isinstance(t, Num)]
    if constants:
        first = next(n for n, t in enumerate(flat) if isinstance(t, Num))
        value = sum(constants, Fraction(0))
        flat = [t for n, t in enumerate(flat) if n == first or not isinstance(t, Num)]
        flat[first] = num(value)
        if value == 0 and len(flat) > 1:
            del flat[first]
        _check_float64_range(num(value))
    return flat[0] if len(flat) == 1 else Add(tuple(flat))


def product(factors: Iterable[Expr]) -> Expr:
    """Return the product of factors, its number in front."""
    value = Fraction(1)
    flat: list[Expr] = []
    for factor in factors:
        for part in factor.args if isinstance(factor, Mul) else (factor,):
            if isinstance(part, Num):
                value *= part.value
            else:
                flat.append(part)
    if value != 1 or not flat:
        flat.insert(0, _check_float64_range(num(value)))
    return _check_float64_range(flat[0] if len(flat) == 1 else Mul(tuple(flat)))


def difference(a: Expr, b: Expr) -> Expr:
    """Return a - b, term by term."""
    terms = b.args if isinstance(b, Add) else (b,)
    return total((a, *(product((num(-1), term)) for term in terms)))


def power(base: Expr, exponent: Expr) -> Expr:
    """Return base ** exponent, with [c]**n = [c]; raise ZeroDivisionError for 0**-n."""
    if not isinstance(exponent, Num):
        return Call("pow", (base, exponent))
    n = exponent.value
    if n == 1 or (n > 0 and isinstance(base, Iverson)):
        return base
    if isinstance(base, Num):
        if base.value == 0 and n < 0:
            raise ZeroDivisionError
        if n == 0:
            return num(1)
        if base.value in (0, 1):
            return base
        small = max(abs(base.value.numerator), base.value.denominator) < 2**_LARGEST
        if n.denominator == 1 and (n == -1 or (abs(n) <= _LARGEST and small)):
            return _check_float64_range(num(base.value ** int(n)))
    if max(abs(n.numerator), n.denominator) > LARGEST:
        raise OverflowError(f"the exponent is above the limit of {LARGEST}")
    return _check_float64_range(Pow(base, exponent))


def _check_float64_range(e: Expr) -> Expr:
    """Return e; raise OverflowError for a number outside float64."""
    bits = _bits(e)
    if bits is not None and abs(bits) > _BITS:
        raise OverflowError(_BEYOND)
    return e


def _bits(e: Expr) -> float | None:
    """Return about log2 |e| for a product of powers of rationals and pi, else None.

    The magnitude of a fraction is that of its numerator or denominator, whichever is larger.
    """
    match e:
        case Num(value):
            above, below = value.numerator.bit_length(), value.denominator.bit_length()
            return float(above if above >= below else -below)
        case Const("pi"):
            return 1.7
        case Pow(base, Num(exponent)):
            bits = _bits(base)
            if isinstance(base, Num) and base.value:
                fraction = abs(base.value)
                bits = (log10(fraction.numerator) - log10(fraction.denominator)) / log10(2)
            if bits is None:
                return None
            # Clamp, so that the product with the exponent stays finite.
            return max(min(bits * float(exponent), _FAR), -_FAR)
        case Mul(args):
            every = [_bits(arg) for arg in args]
            known = [bits for bits in every if bits is not None]
            return sum(known) if len(known) == len(every) else None
    return None


_FAR = 10.0 * _BITS


def flat(parts: Iterable[Expr], kind: type[And] | type[Or]) -> Iterator[Expr]:
    """Yield the parts of a conjunction or disjunction, nested ones flattened."""
    for part in parts:
        if isinstance(part, kind):
            yield from part.args
        else:
            yield part


def _is_counted(e: Expr) -> bool:
    return isinstance(e, Size | Param)


def whole(e: Expr, is_whole: Callable[[Expr], bool] = _is_counted) -> Expr | None:
    """Return e with floor(a/b) as integer division, or None if e may not be an integer.

    ``is_whole`` is the predicate of integer leaves, by default sizes and parameters.
    """
    match e:
        case Num(value):
            return e if value.denominator == 1 else None
        case Call("int", (arg,)) if (made := whole(arg, is_whole)) is not None:
            return made
        case _ if is_whole(e):
            return e
        case Call("floor", (Mul(args),)):
            over = [f.base for f in args if isinstance(f, Pow) and f.exponent is num(-1)]
            above = [f for f in args if not (isinstance(f, Pow) and f.exponent is num(-1))]
            if above and isinstance(above[0], Num):
                over.append(num(above[0].value.denominator))
                above[0] = num(above[0].value.numerator)
            a, b = whole(product(above), is_whole), whole(product(over), is_whole)
            return None if a is None or b is None else Call("floordiv", (a, b))
        case Call("floor", (Add(args),)):
            # SymPy writes (a + b)/2 as a sum with fractions.
            numbers = [p for arg in args for p in (arg.args if isinstance(arg, Mul) else (arg,))]
            least = num(lcm(*(n.value.denominator for n in numbers if isinstance(n, Num))))
            a = whole(total(product((least, arg)) for arg in args), is_whole)
            return None if a is None else Call("floordiv", (a, least))
        case Add(args) | Mul(args) | Call("maximum" | "minimum", args):
            found = [whole(arg, is_whole) for arg in args]
            if None in found:
                return None
            parts = tuple(part for part in found if part is not None)
            return Call(e.function, parts) if isinstance(e, Call) else type(e)(parts)
    return None

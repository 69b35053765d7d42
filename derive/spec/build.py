"""Sums, products and powers that fold numbers, and nothing else.

Nested sums and products are flattened, the numbers of a product are one factor in front and
those of a sum one term: the form that SymPy gives too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import lcm

from derive.algebra.expr import Add, And, Call, Expr, Iverson, Mul, Num, Or, Param, Pow, Size, num

__all__ = ["difference", "flat", "power", "product", "total", "whole"]

_LARGEST = 64


def total(terms: Iterable[Expr]) -> Expr:
    """The sum of terms."""
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
    return flat[0] if len(flat) == 1 else Add(tuple(flat))


def product(factors: Iterable[Expr]) -> Expr:
    """The product of factors, its number in front."""
    value = Fraction(1)
    flat: list[Expr] = []
    for factor in factors:
        for part in factor.args if isinstance(factor, Mul) else (factor,):
            if isinstance(part, Num):
                value *= part.value
            else:
                flat.append(part)
    if value != 1 or not flat:
        flat.insert(0, num(value))
    return flat[0] if len(flat) == 1 else Mul(tuple(flat))


def difference(a: Expr, b: Expr) -> Expr:
    """a - b, term by term."""
    terms = b.args if isinstance(b, Add) else (b,)
    return total((a, *(product((num(-1), term)) for term in terms)))


def power(base: Expr, exponent: Expr) -> Expr:
    """base ** exponent, [c]**n = [c]; ZeroDivisionError for a negative power of the number 0."""
    if not isinstance(exponent, Num):
        return Call("pow", (base, exponent))
    n = exponent.value
    if n == 1 or (n > 0 and isinstance(base, Iverson)):
        return base
    if isinstance(base, Num):
        if base.value == 0 and n < 0:
            raise ZeroDivisionError
        small = max(abs(base.value.numerator), base.value.denominator) < 2**_LARGEST
        if n.denominator == 1 and (n == -1 or (abs(n) <= _LARGEST and small)):
            return num(base.value ** int(n))
    return Pow(base, exponent)


def flat(parts: Iterable[Expr], kind: type[And] | type[Or]) -> Iterator[Expr]:
    """The parts of a conjunction or disjunction, those of nested ones in their place."""
    for part in parts:
        if isinstance(part, kind):
            yield from part.args
        else:
            yield part


def whole(e: Expr) -> Expr | None:
    """e as a size, floor(a/b) as integer division, or None if it need not be a whole number."""
    match e:
        case Num(value):
            return e if value.denominator == 1 else None
        case Size() | Param():
            return e
        case Call("floor", (Mul(args),)):
            over = [f.base for f in args if isinstance(f, Pow) and f.exponent is num(-1)]
            above = [f for f in args if not (isinstance(f, Pow) and f.exponent is num(-1))]
            if above and isinstance(above[0], Num):
                over.append(num(above[0].value.denominator))
                above[0] = num(above[0].value.numerator)
            a, b = whole(product(above)), whole(product(over))
            return None if a is None or b is None else Call("floordiv", (a, b))
        case Call("floor", (Add(args),)):
            # Of a sum with fractions, as SymPy writes (a + b)/2.
            numbers = [p for arg in args for p in (arg.args if isinstance(arg, Mul) else (arg,))]
            least = num(lcm(*(n.value.denominator for n in numbers if isinstance(n, Num))))
            a = whole(total(product((least, arg)) for arg in args))
            return None if a is None else Call("floordiv", (a, least))
        case Add(args) | Mul(args) | Call("maximum" | "minimum", args):
            found = [whole(arg) for arg in args]
            if None in found:
                return None
            made = tuple(part for part in found if part is not None)
            return Call(e.function, made) if isinstance(e, Call) else type(e)(made)
    return None

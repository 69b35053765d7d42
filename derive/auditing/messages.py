"""Format an explanation as a sentence in the user's names."""

from __future__ import annotations

from collections.abc import Callable, Collection
from fractions import Fraction

from derive.algebra.expr import Expr, Mul, Num, Pow, num, product_of, walk
from derive.auditing.terms import Change

_SHORT = 60


def scaled(
    number: Fraction | None,
    text: str | None,
    sizes: Collection[str],
    inverse: bool,
    where: str,
) -> str:
    """Describe a gradient or term that is the right one times a ratio."""
    if number is not None:
        if number == 0:
            return f"it is 0{where}"
        if number == -1:
            return f"the sign is wrong{where}"
        sign = f"the sign is wrong{where}, and " if number < 0 else ""
        size = abs(number)
        if size.numerator == 1:
            return f"{sign}the factor {size.denominator} is missing{where}"
        return f"{sign}the factor {size} is too many{where}"
    assert text is not None
    if text.startswith("−"):
        rest = scaled(None, text[1:], sizes, inverse, where)
        return f"the sign is wrong{where}, and {rest}"
    above, _, below = text.partition("/")
    below = below.strip("()") if below.count("(") == 1 and below.startswith("((") else below
    if below.startswith("(") and below.endswith(")") and "·" in below:
        below = below[1:-1]
    if not below and inverse and _of_sizes(above, sizes):
        return f"the factor 1/{above if '·' not in above else f'({above})'} is missing{where}"
    if above == "1" and not _of_sizes(below, sizes):
        return f"the factor {below} is missing{where}"
    return f"the factor {text} is too many{where}"


def _of_sizes(text: str, sizes: Collection[str]) -> bool:
    """True if the product has sizes only."""
    return all(part.rstrip("²").lstrip("√") in sizes for part in text.split("·"))


def described(change: Change, right: Expr, shown: Callable[[Expr], str], where: str) -> str:
    """Describe a change of the right formula."""
    first = shown(change.parts[0])
    match change.kind:
        case "no factor" if len(change.parts) > 1:
            return f"the factors {shown(product_of(change.parts))} are missing{where}"
        case "no factor":
            return f"the factor {first} is missing{where}"
        case "divided":
            return f"it is divided by {first} where it should be multiplied by it{where}"
        case "no term":
            whole = shown(change.parts[1])
            inside = f" in {whole}" if len(whole) < _SHORT and change.parts[1] is not right else ""
            return f"the term {first} is missing{inside or where}"
        case "sign":
            return f"the sign of {first} is wrong{where}"
        case "factor twice" | "factor more":
            factor = change.parts[0]
            if isinstance(factor, Pow) and isinstance(factor.exponent, Num):
                power = -factor.exponent.value
                inverse: Expr = factor.base if power == 1 else Pow(factor.base, Num(power))
                if factor.exponent is num(-2) and _multiplies(factor.base, right):
                    return (
                        f"it is divided by {shown(factor.base)} where it should be multiplied by "
                        f"it{where}"
                    )
                if factor.exponent is num(2) and _has_inverse_power(factor.base, right):
                    return (
                        f"it is multiplied by {shown(factor.base)} where it should be divided by "
                        f"it{where}"
                    )
                if factor.exponent.value < 0 and not _has_inverse_power(factor.base, right):
                    return f"the factor {shown(inverse)} is missing{where}"
                if factor.exponent is num(-1):
                    return f"the factor 1/{shown(factor.base)} is too many{where}"
            return f"the factor {first} is too many{where}"
        case "other mean":
            return f"the mean in {first} is over the axis of {shown(change.parts[1])}{where}"
        case "other sum":
            return f"the sum in {first} is over the axis of {shown(change.parts[1])}{where}"
        case "first":
            return f"the sum is missing: only the first term of {first} is taken{where}"
        case "everywhere":
            return f"the factor {first} is missing in every term"
        case "divided everywhere":
            return f"every term is divided by {first} where it should be multiplied by it"
        case "no sum":
            return f"the sum is missing: only one term of {first} is taken{where}"
        case "no condition":
            return f"the condition {first} is missing in {shown(change.parts[1])}{where}"
    second = shown(change.parts[1])
    if isinstance(change.parts[0], Num):
        return f"the number {first} stands where {second} should{where}"
    return f"{first} stands where {second} should{where}"


def _multiplies(base: Expr, e: Expr) -> bool:
    """True if the base is a factor of a product in e."""
    return any(isinstance(part, Mul) and base in part.args for part in walk(e))


def _has_inverse_power(base: Expr, e: Expr) -> bool:
    """True if e has a negative power of the base."""
    return any(
        isinstance(part, Pow)
        and part.base is base
        and isinstance(part.exponent, Num)
        and part.exponent.value < 0
        for part in walk(e)
    )

"""Express powers in gradients by the name of an equation that computes a power.

    y = b**(1/p)            b**(1/p - 1)*a**(p - 1)     (a/y)**(p - 1)
    y = x*b**(-p)           x*b**(-p - 1)               y/b

for positive parameters: if b is 0, both sides of the second are infinite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Expr,
    Index,
    Iverson,
    Mul,
    Num,
    Param,
    Pow,
    Reduce,
    Rel,
    Where,
    factors_of,
    free_indices,
    num,
    product_of,
    sort_key,
)
from derive.algebra.substitution import replace_inside_out, substitute
from derive.show.identities import form, nonzero
from derive.show.legible import legible, map_legible


@dataclass(frozen=True)
class Power:
    """An equation name = scale*beside*base**exponent, or 0 if ``asked`` is 0."""

    name: Access
    base: Expr
    exponent: Polynomial
    scale: Fraction
    beside: tuple[Expr, ...]
    asked: Expr | None


def power_of(name: Access, body: Expr) -> Power | None:
    """Return the equation as a power with a symbolic exponent, or None."""
    asked, e = None, legible(body)
    match e:
        case Where(Rel("==", x, zero), nothing, value) if zero is nothing is num(0):
            asked, e = x, value
    powers = list(_symbolic(factors_of(e)))
    if len(powers) != 1:
        return None
    ((whole, base, exponent),) = powers
    scale, rest = _split_numbers([f for f in factors_of(e) if f is not whole])
    return Power(
        name,
        _power_normal_form(base),
        form(exponent),
        scale,
        tuple(map(_power_normal_form, rest)),
        asked,
    )


def _split_numbers(factors: Sequence[Expr]) -> tuple[Fraction, list[Expr]]:
    """Return (product of the numbers, other factors)."""
    numbers = [f.value for f in factors if isinstance(f, Num)]
    return prod(numbers, start=Fraction(1)), [f for f in factors if not isinstance(f, Num)]


def in_names(e: Expr, powers: Sequence[Power]) -> Expr:
    """Replace powers in e by the names of these equations; return e if none matches."""

    def visit(part: Expr) -> Expr:
        for p in powers if isinstance(part, Mul) else ():
            assert isinstance(part, Mul)
            part = _power_by_name(part, p) or part
        return part

    return map_legible(e, visit) if powers else e


def _symbolic(factors: Sequence[Expr]) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Yield (factor, base, exponent) for each power with a symbolic exponent."""
    for f in factors:
        if isinstance(f, Pow) and not isinstance(f.exponent, Num):
            yield f, f.base, f.exponent
        elif isinstance(f, Call) and f.function == "pow":
            base, exponent = f.args
            yield f, base, exponent


def _matching_bases(given: Power, base: Expr) -> Iterator[Power]:
    """Yield the equation at the indices where its base equals ``base``."""
    free = sorted(free_indices(base), key=sort_key)
    axes = [i for i in given.name.positions if isinstance(i, Index)]
    alike = ([k for k in free if (k.extent, k.group) == (i.extent, i.group)] for i in axes)
    for at in product(*alike):
        names: dict[Index, Expr] = dict(zip(axes, at, strict=True))
        whole = _power_normal_form(base)
        if _power_normal_form(substitute(given.base, names)) is whole:
            beside = tuple(_power_normal_form(substitute(f, names)) for f in given.beside)
            asked = given.asked and substitute(given.asked, names)
            name = substitute(given.name, names)
            yield replace(given, name=name, base=whole, beside=beside, asked=asked)


def _power_by_name(e: Mul, given: Power) -> Expr | None:
    for _, base, _ in _symbolic(e.args):
        for p in _matching_bases(given, base):
            made = _with_name(e, p)
            if made is not None:
                return made
    return None


def _with_name(e: Mul, p: Power) -> Expr | None:
    if p.asked is not None and Iverson(Rel("!=", p.asked, num(0))) not in e.args:
        return None
    found = list(_symbolic(e.args))
    for whole, base, exponent in found:
        if _power_normal_form(base) is not p.base:
            continue
        rest = [f for f in e.args if f is not whole]
        more = (form(exponent) - p.exponent).number
        if more is None or more.denominator != 1:
            continue
        scale, others = _split_numbers(rest)
        left = _factors_minus(others, p.beside) if more and p.exponent.sign == -1 else None
        if left is not None:
            number = [Num(scale / p.scale)] if scale != p.scale else []
            return product_of([*number, *left, p.name, Pow(base, Num(more))])
        root = _reciprocal_parameter(p.exponent)
        if root is not None and not p.beside and p.scale == 1 and more == -1:
            turned = form(root) - Polynomial.of(1)
            for other, a, n in found:
                if other is not whole and form(n) == turned:
                    quotient = Pow(Mul((a, Pow(p.name, num(-1)))), n)
                    # The equation divides by p, so p is nonzero wherever it has a value.
                    kept = [f for f in rest if nonzero(f) is not root]
                    return product_of([quotient if f is other else f for f in kept])
    return None


def _reciprocal_parameter(exponent: Polynomial) -> Param | None:
    """Return p if the exponent is 1/p, else None."""
    match list(exponent.terms.items()):
        case [((Pow(Param() as p, Num() as n),), value)] if n is num(-1) and value == 1:
            return p
    return None


def _factors_minus(factors: Sequence[Expr], gone: Sequence[Expr]) -> list[Expr] | None:
    """Return the factors minus ``gone``, or None if one of these is missing."""
    left = list(factors)
    for g in gone:
        same = next((f for f in left if _power_normal_form(f) is g), None)
        if same is None:
            return None
        left.remove(same)
    return left


def _power_normal_form(e: Expr) -> Expr:
    """Return a normal form of e: sorted operands, one form of powers, numbered bound indices."""

    def visit(part: Expr) -> Expr:
        if isinstance(part, Add | Mul):
            return type(part)(tuple(sorted(part.args, key=sort_key)))
        if isinstance(part, Reduce):
            names = {i: Index(f"_{n}", i.extent, i.group) for n, i in enumerate(part.indices)}
            body = _power_normal_form(substitute(part.body, {**names}))
            return Reduce(part.kind, tuple(names.values()), body, part.condition)
        return Pow(*part.args) if isinstance(part, Call) and part.function == "pow" else part

    return replace_inside_out(e, visit)

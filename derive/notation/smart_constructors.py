"""Constructors of sums, products and powers that flatten and fold numbers, and nothing else.

Nested sums and products are flattened, the numbers of a product are one factor in front and
those of a sum one term: the form that SymPy gives too. A number beyond float64, above 1.8e308 or
below 1/1.8e308, is an OverflowError, which is raised before the number is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import isinf, isnan, lcm, log10

from derive.algebra.expr import (
    Add,
    And,
    Call,
    Composite,
    Const,
    Expr,
    Index,
    Iverson,
    Mul,
    Num,
    Or,
    Param,
    Pow,
    Reduce,
    Rel,
    Size,
    Where,
    num,
    walk,
)
from derive.algebra.reference_values import constant_value
from derive.algebra.substitution import fresh, substitute
from derive.notation import syntax
from derive.notation.syntax import Raw, SourcePlace, fail, show

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


# ------------------------------------------------------------------------------------------ numbers
# Fold expressions of numbers alone; sqrt(-1), log(0) and overflow are errors.
#
# A reduction ignores an infinite branch: max[k](where(c, x, -inf)) is max[k | c](x).


def check_number(e: Expr, written: Raw) -> None:
    """Refuse nan, and an infinite function of numbers."""
    value = constant_value(e)
    if value is not None and isnan(value):
        fail(written.at, f"{show(written)} is not a real number")
    if value is not None and isinf(value) and isinstance(e, Call | Pow):
        fail(written.at, f"{show(written)} is infinite or out of the range of float64")


_INFINITY = Const("inf")
_LEFT_OUT = {
    **dict.fromkeys(
        "max amax argmax logsumexp softmax log_softmax".split(), product((num(-1), _INFINITY))
    ),
    **dict.fromkeys("min amin argmin".split(), _INFINITY),
}
"""The branch value that each reduction ignores."""


def infinity(e: Raw) -> Expr | None:
    """Return the node of inf or -inf, else None."""
    match e:
        case syntax.NameSyntax("inf"):
            return _INFINITY
        case syntax.Negative(arg):
            inner = infinity(arg)
            return None if inner is None else product((num(-1), inner))
    return None


def taken(e: syntax.Bind) -> syntax.Bind:
    """Return the head with an ignored infinite branch as its condition."""
    match e.args:
        case (syntax.ApplySyntax("where", (test, then, other)),):
            for value, branch, holds in (
                (then, other, test),
                (other, then, syntax.Negation(test, at=test.at)),
            ):
                if e.kind in _LEFT_OUT and infinity(branch) is _LEFT_OUT[e.kind]:
                    both = (holds,) if e.condition is None else (e.condition, holds)
                    condition = both[0] if len(both) == 1 else syntax.Both(both, at=both[0].at)
                    return taken(replace(e, condition=condition, args=(value,)))
    return e


# ------------------------------------------------------------------------------------------ desugar
# Softmax and concatenation by their definitions, so that nothing later has to know them.


def desugar_softmax(
    x: Expr, outer: Sequence[Index], condition: Expr | None, scope: Iterable[Index], *, log: bool
) -> Expr:
    """Return softmax_k(x) = exp(x - logsumexp_k'(x')), 0 where the condition excludes k.

    With ``log``, return x - logsumexp_k'(x'), -inf where the condition excludes k.
    """
    parts = [x] if condition is None else [x, condition]
    taken = [*scope, *(i for part in parts for i in walk(part) if isinstance(i, Index))]
    renaming: dict[Index, Expr] = {}
    for index in outer:
        renamed = fresh(index, taken)
        taken.append(renamed)
        renaming[index] = renamed
    moved = [substitute(part, renaming) for part in parts]
    difference_ = difference(x, Reduce("logsumexp", tuple(taken[-len(outer) :]), *moved))
    if log:
        if condition is None:
            return difference_
        return Where(condition, difference_, product((num(-1), Const("inf"))))
    result = Call("exp", (difference_,))
    return result if condition is None else Mul((Iverson(condition), result))


def desugar_concat(k: Index, pieces: Sequence[tuple[Index, Expr]], at: SourcePlace | None) -> Expr:
    """Return where(k < s1, a(k), where(k < s1 + s2, b(k - s1), ...)), si the size of each piece.

    Raise an error if a composite has the index of a piece before a constant of unknown size.
    """
    cases: list[tuple[Expr, Expr]] = []
    offset: Expr = num(0)
    for own, piece in pieces:
        moved = _tidy(substitute(_row_major_parts(piece, own, at), {own: difference(k, offset)}))
        offset = total((offset, Size(own.extent)))
        cases.append((Rel("<", k, offset), moved))
    result = cases[-1][1]
    for condition, piece in reversed(cases[:-1]):
        result = Where(condition, piece, result)
    return result


def _row_major_parts(e: Expr, own: Index, at: SourcePlace | None) -> Expr:
    """Replace each composite (a b) that contains the index by a*size(b) + b."""
    e = e.map(lambda part: _row_major_parts(part, own, at))
    if not isinstance(e, Composite) or not any(part is own for part in e.args):
        return e
    number, *rest = e.args
    for part in rest:
        if not isinstance(part, Index):
            fail(
                at,
                "concat joins along an index that precedes a constant in a composite axis; give "
                "the value read there its own equation",
            )
        number = total((product((Size(part.extent), number)), part))
    return number


def _tidy(e: Expr) -> Expr:
    """Flatten nested sums and products again."""
    e = e.map(_tidy)
    if isinstance(e, Add):
        return total(e.args)
    return product(e.args) if isinstance(e, Mul) else e

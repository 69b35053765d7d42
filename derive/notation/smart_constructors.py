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

from derive.algebra import expr as ex
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


def clamped(kind: str, args: Sequence[ex.Expr]) -> ex.Expr | None:
    """Return max(x, bound) or min(x, bound) of a bound without tensors, else None.

    On the bound the gradient goes to x. Of two tensors it would be a guess who gets it.
    """
    if len(args) != 2 or not ex.is_number(args[1]):
        return None
    inf = ex.Const("inf")
    low, high = (args[1], inf) if kind == "max" else (product((ex.num(-1), inf)), args[1])
    return ex.Call("clamp", (args[0], low, high))


def total(terms: Iterable[ex.Expr]) -> ex.Expr:
    flat: list[ex.Expr] = []
    for term in terms:
        flat.extend(term.args if isinstance(term, ex.Add) else (term,))
    constants = [t.value for t in flat if isinstance(t, ex.Num)]
    if constants:
        first = next(n for n, t in enumerate(flat) if isinstance(t, ex.Num))
        value = sum(constants, Fraction(0))
        flat = [t for n, t in enumerate(flat) if n == first or not isinstance(t, ex.Num)]
        flat[first] = ex.num(value)
        if value == 0 and len(flat) > 1:
            del flat[first]
        _check_float64_range(ex.num(value))
    return flat[0] if len(flat) == 1 else ex.Add(tuple(flat))


def product(factors: Iterable[ex.Expr]) -> ex.Expr:
    """Return the product of factors, its number in front."""
    value = Fraction(1)
    flat: list[ex.Expr] = []
    for factor in factors:
        for part in factor.args if isinstance(factor, ex.Mul) else (factor,):
            if isinstance(part, ex.Num):
                value *= part.value
            else:
                flat.append(part)
    if value != 1 or not flat:
        flat.insert(0, _check_float64_range(ex.num(value)))
    return _check_float64_range(flat[0] if len(flat) == 1 else ex.Mul(tuple(flat)))


def difference(a: ex.Expr, b: ex.Expr) -> ex.Expr:
    """Return a - b, term by term."""
    terms = b.args if isinstance(b, ex.Add) else (b,)
    return total((a, *(product((ex.num(-1), term)) for term in terms)))


def power(base: ex.Expr, exponent: ex.Expr) -> ex.Expr:
    """Return base ** exponent, with [c]**n = [c]; raise ZeroDivisionError for 0**-n."""
    if not isinstance(exponent, ex.Num):
        return ex.Call("pow", (base, exponent))
    n = exponent.value
    if n == 1 or (n > 0 and isinstance(base, ex.Iverson)):
        return base
    if isinstance(base, ex.Num):
        if base.value == 0 and n < 0:
            raise ZeroDivisionError
        if n == 0:
            return ex.num(1)
        if base.value in (0, 1):
            return base
        small = max(abs(base.value.numerator), base.value.denominator) < 2**_LARGEST
        if n.denominator == 1 and (n == -1 or (abs(n) <= _LARGEST and small)):
            return _check_float64_range(ex.num(base.value ** int(n)))
    if max(abs(n.numerator), n.denominator) > LARGEST:
        raise OverflowError(f"the exponent is above the limit of {LARGEST}")
    return _check_float64_range(ex.Pow(base, exponent))


def _check_float64_range(e: ex.Expr) -> ex.Expr:
    """Return e; raise OverflowError for a number outside float64."""
    bits = _bits(e)
    if bits is not None and abs(bits) > _BITS:
        raise OverflowError(_BEYOND)
    return e


def _bits(e: ex.Expr) -> float | None:
    """Return about log2 |e| for a product of powers of rationals and pi, else None.

    The magnitude of a fraction is that of its numerator or denominator, whichever is larger.
    """
    match e:
        case ex.Num(value):
            above, below = value.numerator.bit_length(), value.denominator.bit_length()
            return float(above if above >= below else -below)
        case ex.Const("pi"):
            return 1.7
        case ex.Pow(base, ex.Num(exponent)):
            bits = _bits(base)
            if isinstance(base, ex.Num) and base.value:
                fraction = abs(base.value)
                bits = (log10(fraction.numerator) - log10(fraction.denominator)) / log10(2)
            if bits is None:
                return None
            # Clamp, so that the product with the exponent stays finite.
            return max(min(bits * float(exponent), _FAR), -_FAR)
        case ex.Mul(args):
            every = [_bits(arg) for arg in args]
            known = [bits for bits in every if bits is not None]
            return sum(known) if len(known) == len(every) else None
    return None


_FAR = 10.0 * _BITS


def flat(parts: Iterable[ex.Expr], kind: type[ex.And] | type[ex.Or]) -> Iterator[ex.Expr]:
    """Yield the parts of a conjunction or disjunction, nested ones flattened."""
    for part in parts:
        yield from part.args if isinstance(part, kind) else (part,)


def _is_counted(e: ex.Expr) -> bool:
    return isinstance(e, ex.Size | ex.Param)


def whole(e: ex.Expr, is_whole: Callable[[ex.Expr], bool] = _is_counted) -> ex.Expr | None:
    """Return e with floor(a/b) as integer division, or None if e may not be an integer.

    ``is_whole`` is the predicate of integer leaves, by default sizes and parameters.
    """
    match e:
        case ex.Num(value):
            return e if value.denominator == 1 else None
        case ex.Call("int", (arg,)) if (made := whole(arg, is_whole)) is not None:
            return made
        case _ if is_whole(e):
            return e
        case ex.Call("floor", (ex.Mul(args),)):
            over = [f.base for f in args if isinstance(f, ex.Pow) and f.exponent is ex.num(-1)]
            above = [f for f in args if not (isinstance(f, ex.Pow) and f.exponent is ex.num(-1))]
            if above and isinstance(above[0], ex.Num):
                over.append(ex.num(above[0].value.denominator))
                above[0] = ex.num(above[0].value.numerator)
            a, b = whole(product(above), is_whole), whole(product(over), is_whole)
            return None if a is None or b is None else ex.Call("floordiv", (a, b))
        case ex.Call("floor", (ex.Add(args),)):
            # SymPy writes (a + b)/2 as a sum with fractions.
            numbers = [p for arg in args for p in (arg.args if isinstance(arg, ex.Mul) else (arg,))]
            least = ex.num(lcm(*(n.value.denominator for n in numbers if isinstance(n, ex.Num))))
            a = whole(total(product((least, arg)) for arg in args), is_whole)
            return None if a is None else ex.Call("floordiv", (a, least))
        case ex.Add(args) | ex.Mul(args) | ex.Call("maximum" | "minimum", args):
            found = [whole(arg, is_whole) for arg in args]
            if None in found:
                return None
            parts = tuple(part for part in found if part is not None)
            return ex.Call(e.function, parts) if isinstance(e, ex.Call) else type(e)(parts)
    return None


# ------------------------------------------------------------------------------------------ numbers
# Fold expressions of numbers alone; sqrt(-1), log(0) and overflow are errors.
#
# A reduction ignores an infinite branch: max[k](where(c, x, -inf)) is max[k | c](x).


def check_number(e: ex.Expr, written: Raw) -> None:
    """Refuse nan, and an infinite function of numbers."""
    value = constant_value(e)
    if value is not None and isnan(value):
        fail(written.at, "not-finite", f"{show(written)} is not a real number")
    if value is not None and isinf(value) and isinstance(e, ex.Call | ex.Pow):
        fail(
            written.at, "not-finite", f"{show(written)} is infinite or out of the range of float64"
        )


_INFINITY = ex.Const("inf")
_LEFT_OUT = {
    **dict.fromkeys(
        "max amax argmax logsumexp softmax log_softmax".split(), product((ex.num(-1), _INFINITY))
    ),
    **dict.fromkeys("min amin argmin".split(), _INFINITY),
}
"""The branch value that each reduction ignores."""


def infinity(e: Raw) -> ex.Expr | None:
    """Return the node of inf or -inf, else None."""
    match e:
        case syntax.NameSyntax("inf"):
            return _INFINITY
        case syntax.Negative(arg):
            inner = infinity(arg)
            return None if inner is None else product((ex.num(-1), inner))
    return None


def taken(e: syntax.Bind) -> syntax.Bind:
    """Return the head with its ignored infinite branches as its condition."""
    ignored = _LEFT_OUT.get(e.kind)
    found = None if ignored is None or len(e.args) != 1 else _apart(e.args[0], ignored)
    if found is None:
        return e
    value, holds = found
    both = (holds,) if e.condition is None else (e.condition, holds)
    condition = both[0] if len(both) == 1 else syntax.Both(both, at=both[0].at)
    return taken(replace(e, condition=condition, args=(value,)))


def _apart(e: Raw, ignored: ex.Expr) -> tuple[Raw, Raw] | None:
    """Return (e without an ignored branch, the condition that another is taken), else None.

    where(c, where(d, -inf, x), y) is where(c, x, y) if not c or not d.
    """
    match e:
        case syntax.ApplySyntax("where", (test, then, other)):
            denied = syntax.Negation(test, at=test.at)
            if infinity(other) is ignored:
                return then, test
            if infinity(then) is ignored:
                return other, denied
            if (found := _apart(then, ignored)) is not None:
                value, holds = found
                return replace(e, args=(test, value, other)), _either(denied, holds)
            if (found := _apart(other, ignored)) is not None:
                value, holds = found
                return replace(e, args=(test, then, value)), _either(test, holds)
    return None


def _either(one: Raw, other: Raw) -> Raw:
    return syntax.Either((one, other), at=one.at)


# ------------------------------------------------------------------------------------------ desugar
# Softmax and concatenation by their definitions, so that nothing later has to know them.


def desugar_softmax(
    x: ex.Expr,
    outer: Sequence[ex.Index],
    condition: ex.Expr | None,
    scope: Iterable[ex.Index],
    *,
    log: bool,
) -> ex.Expr:
    """Return softmax_k(x) = exp(x - logsumexp_k'(x')), 0 where the condition excludes k.

    With ``log``, return x - logsumexp_k'(x'), -inf where the condition excludes k.
    """
    parts = [x] if condition is None else [x, condition]
    taken = [*scope, *(i for part in parts for i in ex.walk(part) if isinstance(i, ex.Index))]
    renaming: dict[ex.Index, ex.Expr] = {}
    for index in outer:
        renamed = fresh(index, taken)
        taken.append(renamed)
        renaming[index] = renamed
    moved = [substitute(part, renaming) for part in parts]
    difference_ = difference(x, ex.Reduce("logsumexp", tuple(taken[-len(outer) :]), *moved))
    if log:
        if condition is None:
            return difference_
        return ex.Where(condition, difference_, product((ex.num(-1), ex.Const("inf"))))
    result = ex.Call("exp", (difference_,))
    return result if condition is None else ex.Mul((ex.Iverson(condition), result))


def desugar_concat(
    k: ex.Index, pieces: Sequence[tuple[ex.Index, ex.Expr]], at: SourcePlace | None
) -> ex.Expr:
    """Return where(k < s1, a(k), where(k < s1 + s2, b(k - s1), ...)), si the size of each piece.

    Raise an error if a composite has the index of a piece before a constant of unknown size.
    """
    cases: list[tuple[ex.Expr, ex.Expr]] = []
    offset: ex.Expr = ex.num(0)
    for own, piece in pieces:
        moved = _tidy(substitute(_row_major_parts(piece, own, at), {own: difference(k, offset)}))
        offset = total((offset, ex.Size(own.extent)))
        cases.append((ex.Rel("<", k, offset), moved))
    result = cases[-1][1]
    for condition, piece in reversed(cases[:-1]):
        result = ex.Where(condition, piece, result)
    return result


def _row_major_parts(e: ex.Expr, own: ex.Index, at: SourcePlace | None) -> ex.Expr:
    """Replace each composite (a b) that contains the index by a*size(b) + b."""
    e = e.map(lambda part: _row_major_parts(part, own, at))
    if not isinstance(e, ex.Composite) or not any(part is own for part in e.args):
        return e
    number, *rest = e.args
    for part in rest:
        if not isinstance(part, ex.Index):
            fail(
                at,
                "wrong-arguments",
                "concat joins along an index that precedes a constant in a composite axis; give "
                "the value read there its own equation",
            )
        number = total((product((ex.Size(part.extent), number)), part))
    return number


def _tidy(e: ex.Expr) -> ex.Expr:
    """Flatten nested sums and products again."""
    e = e.map(_tidy)
    if isinstance(e, ex.Add):
        return total(e.args)
    return product(e.args) if isinstance(e, ex.Mul) else e

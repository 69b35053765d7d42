"""Split a gradient into terms, and enumerate expressions that differ from it in one thing.

a*(b + c) = a*b + a*c        Sum_k (b + c) = Sum_k b + Sum_k c
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Delta,
    Expr,
    Index,
    Iverson,
    Mul,
    Num,
    Pow,
    Reduce,
    Rel,
    Size,
    free_indices,
    num,
    product_of,
    sum_of,
    walk,
)
from derive.algebra.substitution import fresh, replace, substitute

_MOST_FACTORS = 8
_MOST = 24
"""A sum with more terms is not distributed."""


def terms(e: Expr) -> tuple[Expr, ...]:
    """Return the terms of e, with products and sums over indices distributed."""
    found = _distributed_terms(e)
    return found if len(found) <= _MOST else (e,)


def _distributed_terms(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Add(args):
            return tuple(t for a in args for t in terms(a))
        case Mul(args):
            made: list[tuple[Expr, ...]] = [()]
            for a in args:
                made = [(*m, t) for m in made for t in terms(a)]
                if len(made) > _MOST:
                    return (e,)
            return tuple(product(m) for m in made)
        case Reduce("sum" | "mean", indices, body, condition):
            return tuple(
                _reduce_without_numbers(e.kind, indices, t, condition) for t in terms(body)
            )
    return (e,)


def _reduce_without_numbers(
    kind: str, indices: tuple[Index, ...], body: Expr, condition: Expr | None
) -> Expr:
    """Build the reduction, with numeric factors pulled out."""
    if isinstance(body, Mul):
        numbers = [a for a in body.args if isinstance(a, Num)]
        if numbers:
            rest = product_of([a for a in body.args if not isinstance(a, Num)])
            return product((*numbers, Reduce(kind, indices, rest, condition)))
    return Reduce(kind, indices, body, condition)


def product(factors: Sequence[Expr]) -> Expr:
    """Build a flat product, with all numbers multiplied into one leading factor."""
    value, rest = Fraction(1), list[Expr]()
    pending = list(reversed(factors))
    while pending:
        factor = pending.pop()
        if isinstance(factor, Mul):
            pending += reversed(factor.args)
        elif isinstance(factor, Num):
            value *= factor.value
        else:
            rest.append(factor)
    return product_of(rest if value == 1 and rest else [Num(value), *rest])


@dataclass(frozen=True)
class Change:
    """A replacement for an expression, the kind of change, and the parts that it concerns."""

    after: Expr
    kind: str
    parts: tuple[Expr, ...] = ()
    of: Expr | None = None
    """The product whose factors change."""

    def inside(self, after: Expr) -> Change:
        """Return the same change with a larger expression around it."""
        return Change(after, self.kind, self.parts, self.of)

    def inner_place(self, right: Expr, shown: Callable[[Expr], str]) -> str:
        """Name the product that changes, if it is a part of the right formula."""
        return "" if self.of is None or self.of is right else f" in {shown(self.of)}"


def factors_left_out(e: Expr) -> Iterator[Change]:
    """Yield e without one of its factors, with it twice, or with it inverted."""
    if isinstance(e, Mul):
        yield from changes(e, frozenset(), is_deep=False)


def everywhere(e: Expr) -> Iterator[Change]:
    """Yield e with a condition or tensor replaced at every occurrence.

    A condition becomes 1; a tensor becomes 1 or its inverse. The condition of elements that are
    only counted is no factor.
    """
    sums = (x.body for x in walk(e) if isinstance(x, Reduce))
    counted = {x for body in sums if isinstance(body, Iverson) for x in walk(body)}
    conditions: dict[Expr, list[Expr]] = {}
    for part in walk(e):
        if isinstance(part, Iverson) and part not in counted:
            # Conditions that differ in their indices only are one.
            key = substitute(part, dict.fromkeys(free_indices(part), num(0)))
            conditions.setdefault(key, []).append(part)
    for same in conditions.values():
        if len(same) > 1:
            ones: dict[Expr, Expr] = dict.fromkeys(same, num(1))
            yield Change(replace(e, ones.get), "everywhere", (same[0],))
    found = [access for access in _outer_accesses(e) if access not in counted]
    names = [access.tensor for access in found]
    for access in found:
        if names.count(access.tensor) > 1:
            name, kinds = access.tensor, (("everywhere", 0), ("divided everywhere", -1))
            for kind, power in kinds:

                def put(part: Expr, name: str = name, power: int = power) -> Expr | None:
                    if not isinstance(part, Access) or part.tensor != name:
                        return None
                    return Pow(part, num(power)) if power else num(1)

                yield Change(replace(e, put), kind, (access,))


def changes(e: Expr, free: frozenset[Index], is_deep: bool = True) -> Iterator[Change]:
    """Yield every expression that differs from e in one factor, term, sign, number or function.

    ``free`` has the indices that e may use. With ``is_deep``, inner parts of e are changed too.
    """
    match e:
        case Mul(args):
            for n, a in enumerate(args):
                if isinstance(a, Num):
                    yield Change(product((num(-1), e)), "sign", (e,))
                    if a.value.denominator == 1 and abs(a.value) != 1:
                        unit = num(a.value / abs(a.value))
                        without = product((unit, *args[:n], *args[n + 1 :]))
                        yield Change(without, "no factor", (num(abs(a.value)),), e)
                else:
                    yield Change(product((*args[:n], *args[n + 1 :])), "no factor", (a,), e)
                    yield Change(product((*args, a)), "factor twice", (a,), e)
                    if not isinstance(a, Pow | Size | Iverson | Delta):
                        inverse = Pow(a, num(-1))
                        yield Change(product((*args, inverse, inverse)), "divided", (a,), e)
            for many in (2, 3):
                for chosen in combinations(args, many) if many < len(args) <= _MOST_FACTORS else ():
                    rest = tuple(a for a in args if a not in chosen)
                    yield Change(product(rest), "no factor", chosen, e)
        case Add(args):
            for n, a in enumerate(args):
                rest = (*args[:n], *args[n + 1 :])
                yield Change(sum_of(rest), "no term", (a, e))
                yield Change(sum_of((*rest, product((num(-1), a)))), "sign", (a,))
        case Pow(base, Num(value)):
            for other in (value + 1, value - 1, value * 2, value / 2, -value):
                if other not in (value, 0, 1):
                    yield Change(Pow(base, Num(other)), "stands", (Pow(base, Num(other)), e))
            yield Change(base, "stands", (base, e))
        case Call(_, (a,)):
            yield Change(a, "stands", (a, e))
        case Iverson(condition) if isinstance(condition, Rel):
            yield Change(num(1), "no factor", (e,))
        case Reduce(kind, indices, body, condition):
            yield from _reductions(e, kind, indices, body, condition, free)
        case Num(value) if value not in (0, 1, -1):
            for other in (Fraction(1), value * 2, value / 2, -value, value + 1, value - 1):
                yield Change(Num(other), "stands", (Num(other), e))
    if is_deep and not isinstance(e, Num | Size | Index | Rel | Iverson | Delta | Access):
        yield from _inner(e, free)


def _reductions(
    e: Reduce,
    kind: str,
    indices: tuple[Index, ...],
    body: Expr,
    condition: Expr | None,
    free: frozenset[Index],
) -> Iterator[Change]:
    if kind not in ("sum", "mean"):
        return
    if condition is not None:
        yield Change(Reduce(kind, indices, body), "no condition", (condition, e))
    for i in indices:
        left = tuple(other for other in indices if other is not i)
        if not i.group:
            inside = substitute(body, {i: num(0)})
            yield Change(_remaining_reduction(e, left, inside), "first", (e,))
        for f in sorted(free, key=lambda index: index.name):
            if f.extent == i.extent and f.group == i.group:
                yield Change(
                    _remaining_reduction(e, left, substitute(body, {i: f})), "no sum", (e,)
                )
                for g in free_indices(body) & free - {f}:
                    new = fresh(g, (*free, *indices))
                    inside = substitute(body, {i: f, g: new})
                    after = Reduce(kind, (new, *left), inside, condition)
                    yield Change(after, "other sum", (e, g))
                    if isinstance(g, Index) and not g.group and not i.group:
                        ratio = (Size(i.extent), Pow(Size(g.extent), num(-1)))
                        yield Change(product((*ratio, after)), "other mean", (e, g))


def _remaining_reduction(e: Reduce, left: tuple[Index, ...], body: Expr) -> Expr:
    """Return the reduction over the remaining indices."""
    if left:
        return Reduce(e.kind, left, body, e.condition)
    return body if e.condition is None else Mul((Iverson(e.condition), body))


def _inner(e: Expr, free: frozenset[Index]) -> Iterator[Change]:
    """Yield changes of one part of e."""
    parts = e.parts()
    for part in dict.fromkeys(parts):
        if not isinstance(part, Expr) or isinstance(part, Index):
            continue
        if isinstance(e, Pow) and part is e.exponent:
            continue
        inner = free | frozenset(e.bound())
        for change in changes(part, inner):

            def put(p: Expr, old: Expr = part, new: Expr = change.after) -> Expr:
                return new if p is old else p

            yield change.inside(e.map(put))


def replacements(
    e: Expr,
    axes: dict[str, tuple[Expr, ...]],
    names: Sequence[str],
    kinds: Mapping[str, str] | None = None,
) -> Iterator[Change]:
    """Yield e with one access read from another tensor with the same axes, of the same kind."""
    kinds = kinds or {}
    for access in _outer_accesses(e):
        own = tuple(map(_extent_or_axis, axes.get(access.tensor, ())))
        for name in names:
            if name == access.tensor or kinds.get(name) != kinds.get(access.tensor):
                continue
            if tuple(map(_extent_or_axis, axes[name])) == own:
                other = Access(name, access.positions)
                new: dict[Expr, Expr] = {access: other}
                yield Change(replace(e, new.get), "stands", (other, access))


def _outer_accesses(e: Expr) -> list[Access]:
    """Return the accesses in e that are in no position of another."""
    outside = walk(e, lambda part: () if isinstance(part, Access) else part.parts())
    return [part for part in outside if isinstance(part, Access)]


def _extent_or_axis(axis: Expr) -> object:
    return axis.extent if isinstance(axis, Index) else axis


def multiples(
    e: Expr, free: frozenset[Index], axes: dict[str, tuple[Expr, ...]], names: Sequence[str]
) -> Iterator[Change]:
    """Yield e with one more factor: a tensor at indices of e, its inverse, root or square."""
    for name in names:
        for positions in _index_assignments(axes[name], free):
            access = Access(name, positions)
            for power in (1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2)):
                factor = access if power == 1 else Pow(access, num(power))
                yield Change(product((e, factor)), "factor more", (factor,))
    if isinstance(e, Reduce) and e.kind in ("sum", "mean"):
        for change in multiples(e.body, free | frozenset(e.indices), axes, names):
            if not (free >= free_indices(change.parts[0])):
                yield change.inside(Reduce(e.kind, e.indices, change.after, e.condition))
    if isinstance(e, Mul):
        for n, part in enumerate(e.args):
            if isinstance(part, Reduce):
                for change in multiples(part, free, axes, names):
                    if not (free >= free_indices(change.parts[0])):
                        rest = (*e.args[:n], change.after, *e.args[n + 1 :])
                        yield change.inside(product(rest))


def _index_assignments(axes: Sequence[Expr], free: frozenset[Index]) -> Iterator[tuple[Expr, ...]]:
    """Yield the ways to put distinct free indices on the axes, by extent."""
    if not axes:
        yield ()
        return
    first, rest = axes[0], axes[1:]
    if not isinstance(first, Index):
        return
    for i in sorted(free, key=lambda index: index.name):
        if i.extent == first.extent and i.group == first.group:
            for others in _index_assignments(rest, free - {i}):
                yield (i, *others)


# ----------------------------------------------------------------------------------------- messages
# Format an explanation as a sentence in the user's names.

_SHORT = 60


def scaled(
    number: Fraction | None,
    text: str | None,
    divided: Collection[str] | None,
    where: str,
    multiplied: Collection[str] = (),
) -> str:
    """Describe a gradient or term that is the right one times a ratio.

    ``divided`` are the symbols and numbers that the right one is divided by, None if it is unknown,
    and ``multiplied`` the sizes that are factors of it.
    """
    if number is not None:
        if number == 0:
            return f"it is 0{where}"
        if number == -1:
            return f"the sign is wrong{where}"
        sign = f"the sign is wrong{where}, and " if number < 0 else ""
        size = abs(number)
        if size.numerator == 1:
            return f"{sign}the factor {size.denominator} is missing{where}"
        if divided and str(size) in divided:
            return f"{sign}the factor 1/{size} is missing{where}"
        return f"{sign}the factor {size} is too many{where}"
    assert text is not None
    if text.startswith("−"):
        return f"the sign is wrong{where}, and {scaled(None, text[1:], divided, where, multiplied)}"
    above, _, below = text.partition("/")
    if divided is None or (above != "1" and below):
        return f"it is {text} times what it should be{where}"
    below = below.strip("()") if below.count("(") == 1 and below.startswith("((") else below
    if below.startswith("(") and below.endswith(")") and "·" in below:
        below = below[1:-1]
    if not below and all(_base(part) in divided for part in above.split("·")):
        return f"the factor 1/{above if '·' not in above else f'({above})'} is missing{where}"
    if above == "1" and not all(_is_size(b) and b not in multiplied for b in below.split("·")):
        return f"the factor {below} is missing{where}"
    return f"the factor {text} is too many{where}"


def _base(power: str) -> str:
    """Return the symbol of which this is the square or the root."""
    return power.rstrip("²").lstrip("√")


def _is_size(part: str) -> bool:
    return _base(part).strip("()").startswith("size(")


def described(change: Change, right: Expr, shown: Callable[[Expr], str], where: str) -> str:
    """Describe a change of the right formula."""
    first = shown(change.parts[0])
    where = where or change.inner_place(right, shown)
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
                if factor.exponent is num(-2) and any(
                    isinstance(part, Mul) and factor.base in part.args for part in walk(right)
                ):
                    return (
                        f"it is divided by {shown(factor.base)} where it should be multiplied by "
                        f"it{where}"
                    )
                divides = any(base is factor.base for base in divisors(right))
                if factor.exponent is num(2) and divides:
                    return (
                        f"it is multiplied by {shown(factor.base)} where it should be divided by "
                        f"it{where}"
                    )
                if factor.exponent.value < 0 and not divides:
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


def divisors(e: Expr) -> Iterator[Expr]:
    """Yield what e divides by: the bases of its negative powers."""
    for part in walk(e):
        if isinstance(part, Pow) and isinstance(part.exponent, Num) and part.exponent.value < 0:
            yield part.base

"""Sums that may take nothing, and what multiplies them.

    Sum_h [h > i]*x[h]*f[i]  =  [some h > i]*f[i] * Sum_h [h > i]*x[h]

is 0 where no h is above i, whatever f[i] is there. In the flat form a factor without the bound
index stands beside the sum, where an infinite one would meet that 0: it gets the guard. Factors
that are finite wherever their tensors are need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from derive.algebra.connected import connected
from derive.algebra.expr import (
    Access,
    Call,
    Const,
    Delta,
    Expr,
    Index,
    Iverson,
    Num,
    Param,
    Pow,
    Rel,
    Size,
    accesses,
    free_indices,
    is_number,
    num,
    sort_key,
    tensors,
)
from derive.algebra.functions import UNBOUNDED, UNDEFINED_SOMEWHERE
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    base_and_power,
    is_positive,
    make_term,
    negate,
    poly,
    sum_over,
)
from derive.algebra.rules import contraction
from derive.algebra.substitution import fresh, substitute
from derive.calculus.conditions import conditions_of, conjunction, has_a_member, known
from derive.calculus.lets import Find, Let, Lets

__all__ = [
    "cancels",
    "guarded",
    "guarded_slope",
    "guards_from_outside",
    "has_positions",
    "is_bent",
    "is_certain",
    "is_finite",
    "is_infinite_of_nothing",
    "is_singular",
    "may_be_infinite",
    "pulled",
    "some",
    "some_of_each",
    "summed",
    "taken_where",
]


def summed(lets: Lets, p: Poly, indices: Sequence[Index]) -> Poly:
    """Sum_indices p, with guards on what may be infinite where nothing is summed."""
    result = ZERO
    for placed, left in (_placed(t, indices) for t in p.terms):
        # What compares an index with where a delta puts it may be decided by that.
        decided = known(lets.bounds, placed)
        if decided is ZERO:
            continue
        t = placed if decided is None else decided.terms[0]
        guards: list[Expr] = []
        for f in t.factors:
            lacking = [i for i in left if i not in free_indices(f)]
            # What has none of the inner sum's indices either stands outside of that, too.
            inner = [i for i in t.binders if i not in free_indices(f)]
            if lacking and not isinstance(f, Iverson | Delta):
                guards += _guards(lets, t, f, lacking, inner)
        # The brackets may read what the term binds.
        whole = make_term(t.coef, t.binders, (*t.factors, *guards))
        result = add(result, sum_over(poly([whole]), left))
    return result


def _placed(t: Term, indices: Sequence[Index]) -> tuple[Term, list[Index]]:
    """t at the positions where a delta puts some of the indices, and the others."""
    left = [] if set(indices) & set(t.binders) else list(indices)
    deltas = [d for d in t.factors if isinstance(d, Delta)]
    for d in deltas:
        fixed = contraction(Term(t.coef, (*t.binders, *left), t.factors), d)
        if fixed is not None and fixed[0] in left:
            index, value = fixed
            factors = [substitute(f, {index: value}) for f in t.factors if f is not d]
            left = [i for i in left if i is not index]
            return _placed(make_term(t.coef, t.binders, factors), left)
    return t, list(indices)


def pulled(lets: Lets, p: Poly, indices: Sequence[Index]) -> Poly:
    """Sum_indices p in a gradient; only reductions of nothing stand there infinite.

    The product of a mask and another factor is made for all of their indices, so the guard is
    about each index that the factor lacks, summed or not.
    """
    terms = []
    for t in p.terms:
        guards: dict[Expr, None] = {}
        conditions = [m.condition for m in t.factors if isinstance(m, Iverson)]
        for f in t.factors:
            if isinstance(f, Iverson | Delta) or not _reads_nothing(lets.get, f):
                continue
            guards |= dict.fromkeys(some_of_each(lets, conditions, free_indices(f)))
        terms.append(make_term(t.coef, t.binders, (*t.factors, *guards)))
    return sum_over(poly(terms), indices)


def guarded(lets: Lets, t: Term, beside: Sequence[Expr]) -> Poly:
    """What stands beside a factor of t, without its binders, with guards for a derivative of t.

    [c(i,l)]*f(u[l]) is guarded where it stands. In a gradient it is summed over i, beside f'(u[l]),
    which may be infinite where no i meets c.
    """
    guards = _asked(lets, beside, _conditions(beside), frozenset(t.binders))
    return poly([make_term(t.coef, (), (*beside, *guards))])


def guarded_slope(lets: Lets, beside: Sequence[Expr], slope: Poly) -> Poly:
    """The slope with guards from what stands beside it and what it has itself."""
    conditions = _conditions(beside)
    taken = frozenset[Index]().union(*map(free_indices, beside))
    parts = []
    for s in slope.terms:
        inner = {i: fresh(i, (*taken, *s.binders)) for i in s.binders if i in taken}
        binders = [inner.get(i, i) for i in s.binders]
        factors = [substitute(f, inner) for f in s.factors]
        together = [*conditions, *_conditions(factors)]
        guards = _asked(lets, factors, together, frozenset(binders))
        parts.append(make_term(s.coef, binders, (*factors, *guards)))
    return poly(parts)


def _within(f: Expr) -> Iterator[Expr]:
    """f and the factors in the arguments of the function that it is."""
    yield f
    if isinstance(f, Call):
        for arg in f.args:
            for t in arg.terms if isinstance(arg, Poly) else ():
                for g in t.factors:
                    yield from _within(g)


def _conditions(factors: Iterable[Expr]) -> list[Expr]:
    return [m.condition for m in factors if isinstance(m, Iverson)]


def _asked(
    lets: Lets, factors: Iterable[Expr], conditions: Sequence[Expr], bound: frozenset[Index]
) -> tuple[Expr, ...]:
    """The brackets that keep out those of the factors that may be infinite."""
    found: dict[Expr, None] = {}
    for f in factors:
        if any(map(is_singular, _within(f))):
            # What lacks an index that is summed here has its guard where the sum was made.
            own = [c for c in conditions if not free_indices(c) - free_indices(f) & bound]
            found |= dict.fromkeys(some_of_each(lets, own, free_indices(f)))
    return tuple(found)


def some_of_each(lets: Lets, conditions: Sequence[Expr], known: frozenset[Index]) -> Iterator[Expr]:
    """Brackets that some of the indices that are not known meet the conditions that have them.

    Conditions on the same index are met by the same position of it.
    """
    for indices, members in connected(conditions, known):
        found = as_atom(some(lets, conjunction(members), sorted(indices, key=sort_key)))
        if isinstance(found, Iverson):
            yield found


def some(lets: Lets, condition: Expr, indices: Sequence[Index]) -> Poly:
    """[some position of the indices meets the condition], 1 where that is certain."""
    if is_certain(lets, condition, indices):
        return ONE
    found = lets.reduction("any", tuple(indices), atom(Iverson(condition)), None, "bool")
    return atom(Iverson(as_atom(found)))


def is_certain(lets: Lets, condition: Expr, indices: Sequence[Index]) -> bool:
    """Whether some position of an axis that is not empty certainly meets the condition."""
    return len(indices) == 1 and has_a_member(lets.bounds, condition, indices[0])


def has_positions(lets: Lets, i: Index) -> bool:
    """Whether the axis of i is certain not to be empty."""
    return lets.bounds.holds(Rel("<", num(0), Size(i.extent))) is True


def guards_from_outside(body: Poly, indices: Sequence[Index]) -> bool:
    """Whether a bracket about none of these indices stands in the sum of body over them."""
    masks = [f for t in body.terms for f in t.factors if isinstance(f, Iverson)]
    return any(
        not free_indices(c) & set(indices) for m in masks for c in conditions_of(m.condition)
    )


def cancels(body: Poly, indices: Sequence[Index]) -> bool:
    """Whether a sum of body over these indices is a number of times something, n*a/n = a."""
    return any(set(indices) - free_indices(t) for t in body.terms)


def is_bent(lets: Lets, name: str) -> bool:
    """Whether an equation does more with this let than to add it, scale it, or exponentiate it.

    Where the let is infinite, as the logsumexp of nothing is, its adjoint may then be so too.
    """
    infinite = {name}
    for let in lets:
        for t in let.body.terms:
            reading = [f for f in t.factors if infinite & set(tensors(f))]
            if not reading:
                continue
            (first, *others) = reading
            if others or let.kind != "sum" or not _is_straight(first, infinite):
                return True
            if isinstance(first, Access):
                infinite.add(let.name)
    return False


def taken_where(let: Let) -> Expr | None:
    """The condition of a reduction; a branch that is -inf excludes as much for a maximum."""
    conditions = [] if let.condition is None else [let.condition]
    least = Fraction(1 if let.kind in ("amin", "min") else -1)
    for t in let.body.terms:
        if t.coef == least and Const("inf") in t.factors:
            masks = [f.condition for f in t.factors if isinstance(f, Iverson)]
            if len(masks) == 1 and len(t.factors) == 2:
                conditions.append(negate(masks[0]))
    return conjunction(conditions) if conditions else None


def _is_straight(f: Expr, names: set[str]) -> bool:
    """Whether f is one of these tensors, or the exponential of a sum with one."""
    if isinstance(f, Call) and f.function == "exp":
        (exponent,) = f.args
        assert isinstance(exponent, Poly)
        inside = [g for t in exponent.terms for g in t.factors if names & set(tensors(g))]
        return all(isinstance(g, Access) and g.tensor in names for g in inside)
    return isinstance(f, Access) and f.tensor in names


def _guards(
    lets: Lets, t: Term, f: Expr, missing: Sequence[Index], inner: Sequence[Index]
) -> Iterator[Expr]:
    """[the sum over these takes something], where f may be infinite if it does not.

    Conditions may join the indices of the sums within; an axis that is empty there is theirs.
    """
    placed = {i for d in t.factors if isinstance(d, Delta) for i in free_indices(d)}
    every = [i for i in (*missing, *inner) if i not in placed]
    masks = [m.condition for m in t.factors if isinstance(m, Iverson)]
    masks = [c for c in masks if free_indices(c) & set(every)]
    chosen = [i for i in every if any(i in free_indices(c) for c in masks)]
    own = frozenset(i.extent for i in every)
    taken = set(placed)
    if chosen and (may_be_infinite(lets.get, f, own) or _is_of_nothing(lets, f, own)):
        found = as_atom(some(lets, conjunction(masks), chosen))
        if isinstance(found, Iverson):
            yield found
            taken.update(chosen)
    for i in missing:
        # An axis of size 0; only what has no value for that very reason is looked after.
        if i not in taken and not i.group and _is_of_nothing(lets, f, frozenset((i.extent,))):
            if not has_positions(lets, i):
                yield Iverson(Rel("<", ZERO, atom(Size(i.extent))))


def may_be_infinite(find: Find, e: Expr, extents: frozenset[str] = frozenset()) -> bool:
    """Whether e may be infinite, or nan, at finite values of the tensors.

    ``extents`` are those of axes that may be empty; ``find`` gives the definition of a name.
    """
    pending, seen = [e], set[str]()
    while pending:
        e = pending.pop()
        match e:
            case Const("inf"):
                return True
            case Pow(Num() | Const() | Param()):
                continue
            case Pow(Size(extent), Num(power)):
                if power < 0 and extent in extents:
                    return True
                continue
            case Pow(_, Num(power)) if power < 0 or power.denominator != 1:
                return True
            case Call(function) if function in UNDEFINED_SOMEWHERE:
                return True
            case Access(tensor):
                let = find(tensor)
                if let is not None and tensor not in seen:
                    if _takes_nothing(let, extents):
                        return True
                    seen.add(tensor)
                    pending.append(let.body)
                continue
        pending += e.parts()
    return False


def is_finite(find: Find, f: Expr) -> bool:
    """Whether the factor is finite where its tensors are, and does not overflow."""
    base, _ = base_and_power(f)
    overflows = isinstance(base, Call) and base.function in UNBOUNDED
    return not overflows and not may_be_infinite(find, f)


def is_singular(f: Expr) -> bool:
    """Whether f is a quotient, a root or a function that is infinite at some data, or infinity."""
    base, power = base_and_power(f)
    if base is Const("inf"):
        return True
    if is_number(base) or _is_positive(base):
        return False
    if isinstance(base, Call) and base.function in UNDEFINED_SOMEWHERE:
        return True
    return power < 0 or power.denominator != 1


def _is_positive(e: Expr) -> bool:
    """Whether e is 1 + x^2, or another number above 0 and what is never below it."""
    if not isinstance(e, Poly):
        return is_positive(e)
    never_below = all(
        t.coef > 0 and all(is_positive(a) or n % 2 == 0 for a, n in map(base_and_power, t.factors))
        for t in e.terms
    )
    return never_below and any(not t.factors for t in e.terms)


def _reads_nothing(find: Find, e: Expr) -> bool:
    """Whether e is a reduction that is infinite where it takes nothing, or a function of one."""
    base, _ = base_and_power(e)
    read = accesses(base) if isinstance(base, Access | Call) else ()
    found = (find(a.tensor) for a in read)
    return any(let is not None and is_infinite_of_nothing(find, let) for let in found)


def is_infinite_of_nothing(find: Find, let: Let) -> bool:
    """Whether the let takes nothing somewhere, or is an extremum or a difference of what does."""
    if _takes_nothing(let, frozenset()):
        return True
    if let.dtype != "float" or (let.kind not in _OF_NOTHING_INFINITE and not let.internal):
        return False
    return any(
        _reads_nothing(find, f)
        for t in let.body.terms
        for f in t.factors
        if let.kind in _OF_NOTHING_INFINITE or not _has_bracket(t, f)
    )


def _has_bracket(t: Term, factor: Expr) -> bool:
    """Whether a bracket in t may be about where the factor has a value."""
    own = free_indices(factor)
    about = (free_indices(m) for m in t.factors if isinstance(m, Iverson))
    return any(not indices or indices & own for indices in about)


def _is_of_nothing(lets: Lets, e: Expr, extents: frozenset[str]) -> bool:
    """Whether e has no finite value where these axes are empty, or anywhere."""
    if isinstance(e, Pow) and isinstance(e.base, Size):
        assert isinstance(e.exponent, Num)
        return e.exponent.value < 0 and lets.bounds.is_empty_with(e.base.extent, extents)
    if isinstance(e, Access):
        let = lets.get(e.tensor)
        if let is None:
            return False
        if let.kind in _OF_NOTHING_INFINITE and not all(
            has_positions(lets, i) for i in let.binders
        ):
            return True
        return _is_of_nothing(lets, let.body, extents)
    return any(_is_of_nothing(lets, part, extents) for part in e.parts())


_OF_NOTHING_INFINITE = ("amax", "amin", "logsumexp", "max", "min")


def _takes_nothing(let: Let, extents: frozenset[str]) -> bool:
    """Whether a reduction has an infinite value because it takes nothing."""
    if let.kind not in _OF_NOTHING_INFINITE:
        return False
    return taken_where(let) is not None or any(i.extent in extents for i in let.binders)

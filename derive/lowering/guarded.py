"""What stands under a bracket: pairs of complementary brackets, and arguments kept safe.

A masked value does no harm where it is selected away. But where the code is differentiated again,
the derivative of the branch that is not taken is multiplied by 0, which neither a nan nor an
infinity survives: 0*exp(800).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from math import inf

from derive.algebra.connected import connected
from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Const,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Pow,
    Reduce,
    Rel,
    Size,
    Where,
    free_indices,
    is_number,
    sort_key,
    tensors,
    walk,
)
from derive.algebra.factor import factor
from derive.algebra.functions import FUNCTIONS, UNBOUNDED, UNDEFINED_SOMEWHERE
from derive.algebra.poly import Poly, as_atom, negate
from derive.algebra.recursion import Recursion
from derive.algebra.substitution import substitute
from derive.calculus.conditions import (
    conditions_of,
    conjunction,
    has_a_member,
    without_guards,
)
from derive.calculus.emptiness import is_infinite_of_nothing, may_be_infinite
from derive.lowering.recognise import Normal, recognise
from derive.lowering.scope import Scope

__all__ = [
    "complement",
    "is_below",
    "is_zero_outside",
    "masks_of",
    "protected",
    "under_guards",
    "unmasked",
]


def complement(args: Sequence[Expr]) -> tuple[Expr, Expr, Expr, list[Expr]] | None:
    """[c]*a + [not c]*b among the addends: (c, a, b, the rest)."""
    for n, a in enumerate(args):
        for m, b in enumerate(args):
            masks_a, masks_b = masks_of(a), masks_of(b)
            if n < m and len(masks_a) == len(masks_b) == 1:
                if negate(masks_a[0].condition) is masks_b[0].condition:
                    then, other = unmasked(a), unmasked(b)
                    if isinstance(then, Num) and isinstance(other, Num):
                        return None
                    condition = masks_a[0].condition
                    rest = [x for k, x in enumerate(args) if k not in (n, m)]
                    if isinstance(condition, Not) or (
                        isinstance(condition, Rel)
                        and condition.op == "!="
                        and isinstance(then, Num)
                    ):
                        return negate(condition), other, then, rest
                    return condition, then, other, rest
    return None


def masks_of(e: Expr) -> list[Iverson]:
    args = e.args if isinstance(e, Mul) else (e,)
    return [a for a in args if isinstance(a, Iverson)]


def unmasked(e: Expr) -> Expr:
    args = e.args if isinstance(e, Mul) else (e,)
    rest = tuple(a for a in args if not isinstance(a, Iverson))
    if not rest:
        return Num(Fraction(1))
    return rest[0] if len(rest) == 1 else Mul(rest)


def protected(scope: Scope, e: Expr, condition: Expr) -> Expr:
    """e with arguments outside the condition replaced by 1 where a function may not be finite.

    What lacks an index of the condition is used where some position of that index meets it.
    """
    needed = free_indices(condition)
    if is_number(condition):
        # A condition on numbers is Python's, which does not compute the other branch.
        return without_guards(e, frozenset(conditions_of(condition)))

    def chosen(e: Expr, at: frozenset[Index]) -> Expr:
        """e where the condition holds for some position of the other indices, 1 elsewhere."""
        seen = _seen_from(scope, condition, at)
        return e if seen is None else Where(seen, e, Num(Fraction(1)))

    def safe(a: Expr) -> Expr:
        at = free_indices(a)
        if not needed <= at and not _reads_a_tensor(scope, a):
            return a
        return chosen(a if isinstance(a, Access) else visit(a), at)

    def visit(e: Expr) -> Expr:
        if isinstance(e, Access):
            inner, of_nothing = _unsafe_sum(scope, e), _is_of_nothing(scope, e)
            if inner is not None and not (of_nothing and Const("inf") in walk(inner)):
                return visit(scope.nested(inner))
            return chosen(e, free_indices(e)) if of_nothing else e
        if isinstance(e, Normal):
            return _normal_of(scope, e, condition)
        if isinstance(e, Delta | Iverson):
            return e
        if not needed.isdisjoint(e.bound()):
            return e
        if isinstance(e, Call) and (
            e.function in UNDEFINED_SOMEWHERE
            or (e.function in UNBOUNDED and not is_below(scope, e.args[0]))
        ):
            return Call(e.function, tuple(a if isinstance(a, Num) else safe(a) for a in e.args))
        if isinstance(e, Pow) and isinstance(e.exponent, Num):
            power = e.exponent.value
            if power < 0 or power.denominator != 1:
                return Pow(safe(e.base), e.exponent)
        mapped: Expr = e.map(visit)
        return mapped

    return visit(e)


def _seen_from(scope: Scope, condition: Expr, at: frozenset[Index]) -> Expr | None:
    """The condition that some position of its other indices meets it; None if one certainly does.

    Conditions on the same index are met by the same position of it.
    """
    if free_indices(condition) <= at:
        return condition
    parts = conditions_of(condition)
    seen = [c for c in parts if free_indices(c) <= at]
    for missing, members in connected(parts, at):
        together, indices = conjunction(members), sorted(missing, key=sort_key)
        certain = len(indices) == 1 and has_a_member(scope.frame.bounds, together, indices[0])
        certain = certain or _is_won(scope, together, indices)
        if not certain and not any(_finds(scope, c, members, indices) for c in seen):
            seen.append(scope.some(together, indices))
    return conjunction(seen) if any(not is_number(c) for c in seen) else None


def _finds(scope: Scope, c: Expr, members: Sequence[Expr], indices: Sequence[Index]) -> bool:
    """Whether c names the condition that some position of the indices meets the members."""
    let = scope.find(c.tensor) if isinstance(c, Access) else None
    if let is None or let.kind != "any" or let.condition is not None:
        return False
    assert isinstance(c, Access)
    there = dict(zip(let.formals, c.positions, strict=True))
    bracket = as_atom(let.body)
    known = conditions_of(bracket.condition) if isinstance(bracket, Iverson) else ()
    outside = free_indices(conjunction(members))
    for chosen in permutations(let.binders, len(indices)):
        pairs = list(zip(chosen, indices, strict=True))
        if any((b.extent, b.group) != (i.extent, i.group) for b, i in pairs):
            continue
        if not outside.isdisjoint(set(let.binders) - set(chosen)):
            continue
        if {substitute(k, {**there, **dict(pairs)}) for k in known}.issuperset(members):
            return True
    return False


def _is_won(scope: Scope, condition: Expr, indices: Sequence[Index]) -> bool:
    """Whether it says that what an extremum of all is of is equal to it: some position wins."""
    if not isinstance(condition, Rel) or condition.op != "==":
        return False
    for top, other in permutations((condition.left, condition.right)):
        let = scope.find(top.tensor) if isinstance(top, Access) else None
        if let is None or let.kind not in ("amax", "amin") or let.condition is not None:
            continue
        assert isinstance(top, Access)
        there = dict(zip(let.formals, top.positions, strict=True))
        for chosen in permutations(indices, len(let.binders)):
            won = substitute(let.body, {**there, **dict(zip(let.binders, chosen, strict=True))})
            if scope.nested(won) == other:
                return True
    return False


def _reads_a_tensor(scope: Scope, e: Expr) -> bool:
    """Whether e is no number, which is the same wherever the condition holds."""
    return any(scope.find(n) is not None or not scope.tensors[n].scalar for n in tensors(e))


def _unsafe_sum(scope: Scope, e: Access) -> Poly | None:
    """The sum within an equation that e names, if it has a function that may not be finite."""
    let = scope.find(e.tensor)
    if let is None or not let.internal or (let.kind, let.dtype) != ("sum", "float"):
        return None
    if any(t.binders for t in let.body.terms):
        return None
    parts = list(walk(let.body))
    unsafe = (
        may_be_infinite(lambda name: None, let.body)
        or any(isinstance(part, Call) and part.function in UNBOUNDED for part in parts)
        or any(isinstance(part, Access) and _unsafe_sum(scope, part) for part in parts)
    )
    return let.body_at(e.positions) if unsafe else None


def _normal_of(scope: Scope, e: Normal, condition: Expr) -> Normal:
    """The softmax, of ones where a row is excluded, if what it is of may be infinite all along."""
    around = free_indices(e.body) - {e.index}
    rows = [c for c in conditions_of(condition) if free_indices(c) <= around]
    if not rows or not may_be_infinite(scope.find, e.body):
        return e
    return replace(e, body=Where(conjunction(rows), e.body, Num(Fraction(1))))


def under_guards(scope: Scope, e: Expr) -> Expr:
    """e, of which nothing is asked but where all that it reads is there, protected elsewhere.

    What a bracket in e leaves out may be asked for.
    """
    parts = list(walk(e))
    if any(isinstance(part, Iverson | Where) for part in parts):
        return e
    guards = [c for part in parts if isinstance(part, Guard) for c in conditions_of(part.condition)]
    return protected(scope, e, conjunction(tuple(dict.fromkeys(guards)))) if guards else e


def _is_of_nothing(scope: Scope, e: Access) -> bool:
    """Whether e is a reduction that is infinite where its condition excludes all, or reads one."""

    def found(name: str) -> bool:
        let = scope.find(name)
        if let is None:
            return False
        if let.kind == "sum":
            known = recognise(let.body, scope.find, lambda name: None)
            return any(asked(a.tensor) for a in _outside_softmaxes(known))
        return is_infinite_of_nothing(scope.find, let)

    asked = Recursion(found, scope.of_nothing)
    return asked(e.tensor)


def _outside_softmaxes(e: Expr) -> Iterator[Access]:
    """The accesses in e, but those that softmaxes are made of: a row without members is finite."""
    if isinstance(e, Access):
        yield e
    if not isinstance(e, Normal):
        for part in e.parts():
            yield from _outside_softmaxes(part)


def is_zero_outside(args: Sequence[Expr], condition: Expr) -> bool:
    """Whether the product of what was protected is 0 where the condition fails.

    log(1) is, and so is x*log(1) outside x != 0. This is the code for entropies: torch.xlogy is
    not, as its derivative in the second argument is 0/0 where both are 0, and as a nan in the
    second argument is its value where the first is 0.
    """
    rest = [a for a in args if not isinstance(a, Iverson)]
    zero = [a for a in rest if _vanishes(a, condition)]
    beside = [a for a in rest if a not in zero]
    number = Num(Fraction(0))
    ends = [(Rel("!=", a, number), Rel("!=", number, a)) for a in beside]
    return len(zero) == 1 and all(condition in either for either in ends)


def _vanishes(e: Expr, condition: Expr) -> bool:
    if not isinstance(e, Call) or e.function not in UNDEFINED_SOMEWHERE or len(e.args) > 1:
        return False
    (inside,) = e.args
    one = Num(Fraction(1))
    safe = isinstance(inside, Where) and inside.condition is condition and inside.other is one
    return safe and bool(FUNCTIONS[e.function].numpy(1.0) == 0)


def is_below(scope: Scope, e: Expr) -> bool:
    """Whether e is certainly below some number, so that exp(e) is finite."""
    if isinstance(e, Num | Normal):
        return True
    if isinstance(e, Call):
        return FUNCTIONS[e.function].most < inf
    if isinstance(e, Add):
        return all(is_below(scope, a) for a in e.args)
    if isinstance(e, Mul) and isinstance(e.args[0], Num) and e.args[0].value < 0:
        return all(_is_never_negative(a) for a in e.args[1:])
    if isinstance(e, Access):
        let = scope.find(e.tensor)
        if let is not None and let.kind == "sum" and isinstance(let.body, Poly):
            body = factor(recognise(let.body, scope.find, lambda name: None))
            return not isinstance(body, Access) and is_below(scope, body)
    return False


def _is_never_negative(e: Expr) -> bool:
    if isinstance(e, Num):
        return e.value >= 0
    if isinstance(e, Pow) and isinstance(e.exponent, Num):
        power = e.exponent.value
        return power > 0 and power.denominator == 1 and power.numerator % 2 == 0
    if isinstance(e, Reduce) and e.kind == "sum":
        inside = e.body.args if isinstance(e.body, Mul) else (e.body,)
        return all(isinstance(a, Iverson) or _is_never_negative(a) for a in inside)
    return isinstance(e, Size) or (isinstance(e, Call) and FUNCTIONS[e.function].least >= 0)

"""Flatten nested equations to lets.

Products are distributed over sums, except where that would lose a difference. A sum of several
terms that is multiplied or raised to a power becomes a let ``u`` if at least two terms read a
tensor and it has no more indices than one of its terms. So (x[i,j] - mu[j])*... keeps x - mu, which
cancels exactly. X[i,k] - Y[j,k] is distributed, as it would be a larger tensor, unless the
operation is ``stable``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from math import prod

from derive.algebra import expr as ex
from derive.algebra.logic import conditions_of, conjunction, negate
from derive.algebra.poly import (
    FactoredSum,
    Poly,
    add,
    as_atom,
    atom,
    base_and_power,
    constant,
    make_term,
    mul,
    poly,
    power,
    scale,
    sum_over,
)
from derive.algebra.reductions import CONDITIONS, POSITIONS, REDUCTIONS
from derive.algebra.substitution import replace_inside_out, substitute
from derive.calculus.guard_insertion import guarded_sum, is_certain
from derive.calculus.guards import case_of, group_by_indices, only_case
from derive.calculus.lets import Lets
from derive.calculus.reindexing import reverse_reduction, reverse_sum
from derive.calculus.softmax import log_normalizer, log_shares
from derive.calculus.stabilise import (
    expand_cancelling,
    exponential,
    merge_exponentials,
    stable_log,
    stable_log1p,
    stable_logsumexp,
    stable_power,
)
from derive.errors import LoweringError

_MOST_TERMS = 12
"""A product of sums that would have more terms than this is not multiplied out."""


def flatten(lets: Lets, e: ex.Expr) -> Poly:
    """e as a sum of products; reductions other than sums become lets."""
    if isinstance(e, Poly):
        return e
    around = lets.summed
    if isinstance(e, ex.Reduce) and e.kind in ("sum", "mean"):
        lets.summed = around.union(e.indices)
    elif not isinstance(e, ex.Add | ex.Mul | ex.Where):
        lets.summed = frozenset()
    made = _flat(lets, e)
    lets.summed = around
    return made


def _flat(lets: Lets, e: ex.Expr) -> Poly:
    if isinstance(e, ex.Num):
        return constant(e.value)
    if isinstance(e, ex.Const | ex.Index | ex.Size | ex.Param):
        return atom(e)
    if isinstance(e, ex.Access):
        return atom(ex.Access(e.tensor, tuple(_position(lets, p) for p in e.positions)))
    if isinstance(e, ex.Guard) and e.elsewhere is ex.num(1):
        return atom(
            ex.Guard(flatten_condition(lets, e.condition), flatten(lets, e.position), e.elsewhere)
        )
    if isinstance(e, ex.Guard):
        inner = _position(lets, e.position)
        if isinstance(inner, ex.Num) and inner.value == 0:
            return atom(inner)
        return atom(ex.Guard(flatten_condition(lets, e.condition), inner))
    if isinstance(e, ex.Delta):
        return atom(ex.Delta(_position(lets, e.axis), _position(lets, e.position)))
    if isinstance(e, ex.Add):
        level = log_normalizer(e)
        if level is None:
            return add(constant(0), *(flatten(lets, a) for a in e.args))
        # What lacks the indices of a softmax is in both: (f - m) - (logsumexp f - m).
        f = next(f for f, own in log_shares(e) if own is level)
        return expand_cancelling(lets, add(flatten(lets, f), scale(flatten(lets, level), -1)))
    if isinstance(e, ex.Mul):
        return _flatten_product(lets, [flatten(lets, a) for a in ex.flat_operands(e, ex.Mul)])
    if isinstance(e, ex.Pow):
        return _flatten_power(lets, e)
    if isinstance(e, ex.Call):
        return _flatten_call(lets, e)
    if isinstance(e, ex.Iverson):
        return _bracket(lets, flatten_condition(lets, e.condition))
    if isinstance(e, ex.Where):
        condition = flatten_condition(lets, e.condition)
        then, other = _branch(lets, condition, e.then), _branch(lets, negate(condition), e.other)
        return add(then, other)
    if isinstance(e, ex.Reduce):
        return _reduce(lets, e)
    raise LoweringError(f"{type(e).__name__} is not a number: {e!r}")


def flatten_condition(lets: Lets, e: ex.Expr) -> ex.Expr:
    """A condition with flat sides, and one orientation for each comparison.

    A condition nested within two others gets a name. All of them guard its reads, so that without
    names each level would double the size of the innermost.
    """
    here = (e, lets.around, lets.placing > 0, lets.nested > 0)
    found = lets.conditions.get(here)
    if found is None:
        found = _flat_condition(lets, e)
        if not isinstance(found, ex.And) and _is_guarded_twice(found):
            named = lets.reduction("sum", (), atom(ex.Iverson(found)), None, "bool", stem="holds")
            found = as_atom(named)
        lets.conditions[here] = found
    return found


def _is_guarded_twice(condition: ex.Expr) -> bool:
    """True if the guard of some read contains a guarded read itself."""
    guards = (part.condition for part in ex.walk(condition) if isinstance(part, ex.Guard))
    return any(isinstance(part, ex.Guard) for c in guards for part in ex.walk(c))


def _flat_relation(lets: Lets, e: ex.Rel) -> ex.Expr:
    left, right = _to_compare(lets, e.left), _to_compare(lets, e.right)
    op = e.op
    numbers = as_atom(left), as_atom(right)
    if isinstance(numbers[0], ex.Num) and isinstance(numbers[1], ex.Num):
        return ex.And(()) if ex.RELATIONS[op](numbers[0].value, numbers[1].value) else ex.Or(())
    if op == "!=" and any(
        _is_reciprocal(a) and not b.terms for a, b in permutations((left, right))
    ):
        return ex.And(())
    if op in (">", ">="):
        left, right, op = right, left, ex.MIRRORED[op]
    if op in ("==", "!="):
        left, right = (_without_coefficient(a, b) for a, b in ((left, right), (right, left)))
        if ex.sort_key(right) < ex.sort_key(left):
            left, right = right, left
    made = ex.Rel(op, left, right)
    return ex.And(()) if lets.bounds.holds(made) else made


def _without_coefficient(side: Poly, other: Poly) -> Poly:
    """u of a side c*u that is compared with 0, with a number c."""
    if other.terms or len(side.terms) != 1:
        return side
    (t,) = side.terms
    return poly([make_term(Fraction(1), t.binders, t.factors)])


def _flat_junction(lets: Lets, e: ex.And | ex.Or) -> ex.Expr:
    args = tuple(flatten_condition(lets, a) for a in e.args)
    if isinstance(e, ex.And):
        args = tuple(a for a in args if not _is_no_bound(a))
    neutral, other = (ex.And(()), ex.Or(())) if isinstance(e, ex.And) else (ex.Or(()), ex.And(()))
    if other in args:
        return other
    args = tuple(a for a in args if a is not neutral)
    return args[0] if len(args) == 1 else type(e)(args)


def _flat_condition(lets: Lets, e: ex.Expr) -> ex.Expr:
    if isinstance(e, ex.Rel):
        return _flat_relation(lets, e)
    if isinstance(e, ex.And | ex.Or):
        return _flat_junction(lets, e)
    if isinstance(e, ex.Not):
        return negate(flatten_condition(lets, e.arg))
    if isinstance(e, ex.Iverson):
        return flatten_condition(lets, e.condition)
    if isinstance(e, ex.Access):
        return ex.Access(e.tensor, tuple(_position(lets, p) for p in e.positions))
    if isinstance(e, ex.Reduce) and e.kind in CONDITIONS:
        return as_atom(lets.reduction(e.kind, e.indices, *members(lets, e), "bool"))
    raise LoweringError(f"{type(e).__name__} is not a condition: {e!r}")


def _to_compare(lets: Lets, e: ex.Expr) -> Poly:
    """A side of a comparison, with conditional extrema replaced by a second let.

    The second let reads the tensor it compares with. A value computed twice may round differently,
    and no position would equal the extremum.
    """

    def compared(part: ex.Expr) -> ex.Expr:
        let = lets.get(part.tensor) if isinstance(part, ex.Access) else None
        if let is None or not (let.reduction.sign and let.reduction.is_smooth):
            return part
        if let.condition is None or lets.is_input(let.body):
            return part
        assert isinstance(part, ex.Access)
        return ex.Access(lets.again(let).name, part.positions)

    # A comparison is no summand, so a difference in it is kept, unless it is of integers.
    around, lets.summed = lets.summed, frozenset()
    whole = _is_of_positions(e)
    lets.placing += whole
    side = replace_inside_out(flatten(lets, e), compared)
    lets.placing -= whole
    lets.summed = around
    assert isinstance(side, Poly)
    return side


def _is_of_positions(e: ex.Expr) -> bool:
    """True if e is computed from positions and sizes by operations on integers."""
    match e:
        case ex.Num(value):
            return value.denominator == 1
        case ex.Call("int", (ex.Call("floordiv"),)):
            return True
        case ex.Add() | ex.Mul():
            return all(map(_is_of_positions, e.args))
    return isinstance(e, ex.Index | ex.Size)


def _is_reciprocal(p: Poly) -> bool:
    """True if p is a product of reciprocals of parameters and sizes, which is never 0."""
    if len(p.terms) != 1 or not p.terms[0].factors:
        return False
    powers = [base_and_power(f) for f in p.terms[0].factors]
    return all(isinstance(base, ex.Param | ex.Size) and n < 0 for base, n in powers)


def _is_no_bound(c: ex.Expr) -> bool:
    """True if the condition is f <= inf or -inf <= f, which every number meets."""
    if not isinstance(c, ex.Rel) or c.op != "<=":
        return False
    assert isinstance(c.left, Poly) and isinstance(c.right, Poly)
    infinite = atom(ex.Const("inf"))
    return c.right is infinite or c.left is scale(infinite, -1)


def _bracket(lets: Lets, condition: ex.Expr) -> Poly:
    """[condition], as a delta if it equates two indices of equal size, or fixes one index."""
    if isinstance(condition, ex.And) and not condition.args:
        return constant(1)
    if isinstance(condition, ex.Or) and not condition.args:
        return constant(0)
    if isinstance(condition, ex.Rel) and condition.op == "==":
        assert isinstance(condition.left, Poly) and isinstance(condition.right, Poly)
        left, right = as_atom(condition.left), as_atom(condition.right)
        match left, right:
            case ex.Index(_, one), ex.Index(_, other) if one == other:
                return atom(ex.Delta(left, right))
    fixed = only_case(lets.bounds, condition, lets.around)
    return atom(ex.Iverson(condition)) if fixed is None else mul(*map(atom, fixed))


def _branch(lets: Lets, condition: ex.Expr, e: ex.Expr) -> Poly:
    """[condition]*e; reductions in e may assume the condition."""
    around = lets.around
    lets.around = (*around, *conditions_of(condition))
    inner = flatten(lets, e)
    lets.around = around
    bracket = _bracket(lets, condition)
    is_denial = isinstance(condition, ex.Rel) and condition.op == "!="
    case = case_of(lets.bounds, condition) if is_denial else None
    if case is None or as_atom(bracket) is not ex.Iverson(condition):
        return mul(bracket, inner)
    # [t != 0]*delta(t, 1) = delta(t, 1)
    beside = [t for t in inner.terms if any(map(case.excludes, t.factors))]
    left = poly(t for t in inner.terms if t not in beside)
    return add(mul(bracket, left), poly(beside))


def _position(lets: Lets, e: ex.Expr) -> ex.Expr:
    lets.placing += 1
    flat = flatten(lets, e)
    lets.placing -= 1
    return as_atom(flat)


def _flatten_product(lets: Lets, factors: Sequence[Poly]) -> Poly:
    several = sum(len(f.terms) > 1 for f in factors) if len(factors) > 1 else 0
    operands = [_product_operand(lets, f, factors) if several else f for f in factors]
    if prod(len(f.terms) for f in operands) > _MOST_TERMS and not lets.placing:
        operands = [_named_unguarded(lets, f) for f in operands]
    return merge_exponentials(lets, mul(*operands))


def _named_unguarded(lets: Lets, p: Poly) -> Poly:
    """A let for a sum without brackets, which would guard its cofactors."""
    guards = any(isinstance(f, ex.Iverson | ex.Delta) for t in p.terms for f in t.factors)
    return p if len(p.terms) < 2 or guards else lets.reduction("sum", (), p)


def _product_operand(lets: Lets, p: Poly, factors: Sequence[Poly] = ()) -> Poly:
    """p, or a let for p if distributing a product over it would lose its difference.

    A position has integer values, so nothing is lost there.
    """
    if lets.placing or len(p.terms) < 2:
        return p
    if any(t.binders for t in p.terms) and not lets.stable:
        lets.distributed[p] = None
        return p
    reading = sum(1 for t in p.terms if any(ex.accesses(t)))
    if not reading and not ex.free_indices(p):
        return atom(FactoredSum(p))
    if reading < 1:
        # A difference of positions, j - i.
        return _named_count(lets, p)
    axes = ex.free_indices(p)
    parts: Sequence[ex.Expr] = p.terms
    if axes & lets.summed:
        # In a sum over some of these axes, products of matrices need no tensor with all of them.
        terms = (t for q in (p, *factors) for t in q.terms)
        parts = [f for t in terms for f in t.factors if ex.tensors(f)]
    if not lets.stable and not any(axes <= ex.free_indices(part) for part in parts):
        lets.distributed[p] = None
        return p
    return lets.reduction("sum", (), p)


def _named_count(lets: Lets, p: Poly) -> Poly:
    """A let for a number n + 1: beside an infinity, n*f + f is nan where n is 0."""
    if len(p.terms) < 2 or lets.placing or any(ex.accesses(p)) or not ex.free_indices(p):
        return p
    return lets.reduction("sum", (), p)


def _flatten_power(lets: Lets, e: ex.Pow) -> Poly:
    assert isinstance(e.exponent, ex.Num)
    exponent = e.exponent.value
    base = flatten(lets, e.base)
    whole = exponent.denominator == 1 and exponent >= 2
    if whole:
        base = _product_operand(lets, base)
    return merge_exponentials(lets, stable_power(lets, base, exponent))


def _flatten_call(lets: Lets, e: ex.Call) -> Poly:
    args = tuple(flatten(lets, a) for a in e.args)
    if e.function == "exp":
        return exponential(args[0])
    if e.function == "log":
        return stable_log(lets, args[0])
    if e.function == "log1p":
        return stable_log1p(lets, args[0])
    return atom(ex.Call(e.function, args))


def members(lets: Lets, e: ex.Reduce) -> tuple[Poly, ex.Expr | None]:
    """The flat body of a reduction, and its condition.

    That of any and all becomes a part of the body: any[k | c](d) = any[k](c and d).
    """
    if e.kind in CONDITIONS:
        asked = e.body
        if e.condition is not None and e.kind == "any":
            asked = conjunction((e.condition, asked))
        elif e.condition is not None:
            asked = ex.Or((negate(e.condition), asked))
        return atom(ex.Iverson(flatten_condition(lets, asked))), None
    condition = None if e.condition is None else flatten_condition(lets, e.condition)
    lets.nested += 1
    body = flatten(lets, e.body)
    lets.nested -= 1
    if REDUCTIONS[e.kind].gradient == "shared" and not isinstance(as_atom(body), ex.Access):
        # Use one tensor for the extremum and for the comparison with it.
        body = lets.reduction("sum", (), body)
    return body, condition


def _row_major_winner(lets: Lets, e: ex.Reduce) -> Poly:
    """The row-major position of the winner over several indices."""
    first, *others = e.indices
    most = ex.Reduce(e.kind.removeprefix("arg"), tuple(others), e.body, e.condition)
    outer = _reduce(lets, ex.Reduce(e.kind, (first,), most, None))
    inner = _reduce(lets, ex.Reduce(e.kind, tuple(others), e.body, e.condition))
    within = substitute(inner, {first: as_atom(outer)})
    return add(mul(outer, *(atom(ex.Size(i.extent)) for i in others)), within)


FLAT = ("sum", "mean", "logsumexp")
"""The reductions that have no let of their own."""


def _reduce(lets: Lets, e: ex.Reduce) -> Poly:
    if e.kind not in ("sum", "mean"):
        e = reverse_reduction(lets.bounds, e)
    body, condition = members(lets, e)
    if e.kind == "logsumexp":
        return stable_logsumexp(lets, e.indices, body, condition)
    if e.kind in ("sum", "mean"):
        if condition is None:
            bracket = constant(1)
        else:
            bracket = mul(*(_bracket(lets, c) for c in group_by_indices(condition)))
        taken = mul(bracket, body)
        total = reverse_sum(lets.bounds, guarded_sum(lets, taken, e.indices))
        if e.kind == "sum":
            return total
        count = sum_over(bracket, e.indices)
        if total is not sum_over(taken, e.indices) or (
            condition is not None
            and (
                _guards_from_outside(taken, e.indices)
                or (lets.nested and not is_certain(lets, condition, e.indices))
            )
        ):
            # 0/0 over an empty selection: a bracket outside of the sum would guard the quotient.
            total = lets.reduction("sum", (), total)
        return mul(total, power(count, Fraction(-1)))
    row = REDUCTIONS[e.kind]
    if len(e.indices) > 1 and row.nested:
        # The first winner in row-major order is the outer winner's inner winner.
        inner = ex.Reduce(e.kind, e.indices[1:], e.body, e.condition)
        return _reduce(lets, ex.Reduce(e.kind, e.indices[:1], inner, None))
    if len(e.indices) > 1 and e.kind in POSITIONS:
        return _row_major_winner(lets, e)
    return lets.reduction(e.kind, e.indices, body, condition, row.dtype or "float")


def _guards_from_outside(body: Poly, indices: Sequence[ex.Index]) -> bool:
    """True if a bracket in the sum of body has no index of the sum."""
    masks = [f for t in body.terms for f in t.factors if isinstance(f, ex.Iverson)]
    return any(
        not ex.free_indices(c) & set(indices) for m in masks for c in conditions_of(m.condition)
    )

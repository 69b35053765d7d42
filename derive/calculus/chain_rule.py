"""The delta-sum chain rule, and the same rule in forward mode.

    dL/dX[i] = Sum_j G[j] * dF[j]/dX[i]
    d X[e1, ..., er] / d X[i1, ..., ir] = delta(i1, e1) * ... * delta(ir, er)

    dF[j] = Sum over accesses X[e] in F[j]:  df/dX[e] * dX[e]

Partials keep their deltas; `derive.algebra.rules` eliminates them. Both directions share one rule,
parametrized by the derivative of an access.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from derive.algebra.expr import (
    Access,
    Call,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Rel,
    free_indices,
    walk,
)
from derive.algebra.factor import to_tree
from derive.algebra.functions import partial as function_partial
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.match import match
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    add,
    as_atom,
    as_poly,
    atom,
    base_and_power,
    is_mask,
    make_term,
    mul,
    poly,
    power,
    scale,
    sum_over,
)
from derive.algebra.reductions import OTHERS
from derive.algebra.rules import FUNCTION_RULES, simplify
from derive.algebra.substitution import rename_apart, substitute
from derive.algebra.substitution import replace as replaced
from derive.calculus.flatten import flatten
from derive.calculus.guard_insertion import where_some_is_taken
from derive.calculus.guards import group_by_indices
from derive.calculus.lets import Let, Lets
from derive.calculus.value_analysis import taken_where
from derive.errors import LoweringError

Moved = Callable[[Access], Poly | None]
"""The derivative of an access; None where the tensor it reads is constant."""


def reads(lets: Lets, let: Let) -> tuple[str, ...]:
    """The tensors that a let depends on smoothly: inputs and lets of the spec, in order."""
    found: dict[str, None] = {}

    def visit(e: Expr) -> None:
        if isinstance(e, Access):
            inner = lets.get(e.tensor)
            if inner is not None and inner.is_through:
                visit(inner.body)
            else:
                found[e.tensor] = None
            return
        if isinstance(e, Iverson | Delta) or (isinstance(e, Call) and e.function == "detach"):
            return
        for part in (e.position,) if isinstance(e, Guard) else e.parts():
            visit(part)

    if let.dtype == "float":
        visit(let.body)
    return tuple(found)


def partial_of_let(
    lets: Lets, let: Let, positions: Sequence[Expr], tensor: str, axes: Sequence[Index]
) -> Poly:
    """d let[positions] / d tensor[axes], deltas not eliminated."""

    def moved(e: Access) -> Poly | None:
        if e.tensor != tensor:
            return None
        pairs = zip(axes, e.positions, strict=True)
        return poly([make_term(Fraction(1), (), [Delta(i, p) for i, p in pairs])])

    return _let_differential(lets, let, positions, moved, axes)


def tangent_of_let(lets: Lets, let: Let, tangents: Mapping[str, str]) -> Poly:
    """d let, given the names of the tangents: each access is replaced by its tangent."""

    def moved(e: Access) -> Poly | None:
        name = tangents.get(e.tensor)
        return None if name is None else atom(Access(name, e.positions))

    return _let_differential(lets, let, let.formals, moved, ())


def _let_differential(
    lets: Lets, let: Let, positions: Sequence[Expr], moved: Moved, axes: Sequence[Index]
) -> Poly:
    """d let[positions] by the derivatives of its accesses; no index is bound that is in ``axes``.

    sum:       d body
    a slope:   Sum_k slope(body, value) d body
    first:     Sum_k delta(k, winner) d body                     as torch.max
    shared:    Sum_k [body = top] d body / Sum_k [body = top]    ties, as torch.amax
    others:    Sum_k (product of the others) d body              right with zeros
    """
    mapping = dict(zip(let.formals, positions, strict=True))
    if let.kind == "sum":
        return _partial(lets, let.body_at(positions), moved, axes)
    if let.dtype != "float":
        return ZERO
    inner = _with_binders_apart(let, positions, axes)
    binders = inner.binders
    body = substitute(inner.body, mapping)
    inside = _partial(lets, body, moved, axes)
    if not inside.terms:
        return ZERO
    guard = ONE
    if inner.condition is not None:
        condition = substitute(inner.condition, mapping)
        guard = mul(*(atom(Iverson(c)) for c in group_by_indices(condition)))
    guard = mul(guard, where_some_is_taken(lets, inner, mapping))
    row = let.reduction
    value = atom(Access(let.name, tuple(positions)))
    if row.slope is not None:
        weight = mul(guard, flatten(lets, row.slope(body, value)))
    elif row.gradient == "first":
        winner = lets.reduction(f"arg{let.kind}", let.binders, let.body, let.condition, dtype="int")
        (k,) = binders
        # If the condition holds nowhere, the winner does not meet it.
        guard = ONE if _is_running(let) else guard
        weight = mul(guard, atom(Delta(k, as_atom(substitute(winner, mapping)))))
    elif row.gradient == "shared":
        if not lets.is_input(body):
            # A saved value may round differently from a recomputed one that is compared with it.
            value = atom(Access(lets.again(let).name, tuple(positions)))
        tie = mul(guard, atom(Iverson(Rel("==", body, value))))
        weight = mul(tie, power(sum_over(tie, binders), Fraction(-1)))
    elif row.gradient == "others":
        weight = mul(guard, substitute(_other_products(lets, let, binders[0]), mapping))
    else:
        raise LoweringError(f"{let.kind} over {list(let.binders)} has no derivative rule")
    return sum_over(mul(weight, inside), binders)


def _is_running(let: Let) -> bool:
    """True if the extremum is over all positions up to, or from, that of an index: it too."""
    test = let.condition
    if not isinstance(test, Rel) or test.op != "<=" or test is not taken_where(let):
        return False
    sides = {as_atom(as_poly(side)) for side in (test.left, test.right)}
    (k,), others = let.binders, sides.difference(let.binders)
    alike = all(isinstance(i, Index) and i.extent == k.extent for i in others)
    return len(others) == 1 and alike and others.isdisjoint(free_indices(let.body))


def _other_products(lets: Lets, let: Let, k: Index) -> Poly:
    """The product of the body over all positions but k, without a quotient by zero.

    Of positions between those of other indices it is the product of those below k times that of
    those above, for a k between them.
    """
    (binder,) = let.binders
    conditions = () if let.condition is None else conditions_of(let.condition)
    edges = {c: lets.bounds.edge(c, binder) for c in conditions}
    ends = {c: edge[0] for c, edge in edges.items() if edge is not None and edge[1].indices}
    if not ends:
        others = lets.reduction(OTHERS.name, let.binders, let.body, let.condition)
        return substitute(others, {binder: k})
    parts = []
    (element,) = rename_apart(let.binders, [binder, *let.formals])
    for is_below, order in ((True, (binder, element)), (False, (element, binder))):
        side = Rel("<", *map(atom, order))
        within = [side if ends.get(c, is_below) is not is_below else c for c in conditions]
        within = list(dict.fromkeys(within if side in within else [side, *within]))
        parts.append(lets.reduction("prod", let.binders, let.body, conjunction(within)))
    return substitute(mul(*parts), {element: k})


def _named_call(lets: Lets, e: Call) -> Expr:
    """Replace f(u) by a let that equals it or, divided by c, a let that is c*f(u)."""
    for let, call, c in lets.calls(e):
        for binding in match(call, e, frozenset(let.formals), {}):
            if (name := lets.instance(let, binding)) is not None:
                return name / to_tree(poly([c]))
    return e


def _factored_slope(lets: Lets, slope: Poly) -> Poly:
    """A slope like 1 - y^2 as one factor: where f is almost flat, its terms cancel up to rounding.

    Brackets stay separate: they guard their cofactors.
    """
    slope = simplify(slope, FUNCTION_RULES, [])
    if len(slope.terms) < 2 or any(is_mask(f) for t in slope.terms for f in t.factors):
        return slope
    return lets.reduction("sum", (), slope)


def _with_binders_apart(let: Let, positions: Sequence[Expr], axes: Sequence[Index]) -> Let:
    taken = [*axes, *(i for p in positions for i in walk(p) if isinstance(i, Index)), *let.formals]
    binders = rename_apart(let.binders, taken)
    names: dict[Index, Expr] = dict(zip(let.binders, binders, strict=True))
    body = substitute(let.body, names)
    test = None if let.condition is None else substitute(let.condition, names)
    return replace(let, binders=binders, body=body, condition=test)


def _partial(lets: Lets, p: Poly, moved: Moved, axes: Sequence[Index]) -> Poly:
    """d p, by the product rule over terms and factors."""
    parts = []
    for t in p.terms:
        for n, factor in enumerate(t.factors):
            inside = _partial_of_factor(lets, factor, moved, axes)
            if inside.terms:
                rest = t.factors[:n] + t.factors[n + 1 :]
                # The binders of the term stay in scope of both parts.
                beside = poly([make_term(t.coef, (), rest)])
                parts.append(sum_over(mul(beside, inside), t.binders))
    return add(ZERO, *parts)


def _partial_of_factor(lets: Lets, factor: Expr, moved: Moved, axes: Sequence[Index]) -> Poly:
    base, exponent = base_and_power(factor)
    inside = _partial_of_atom(lets, base, moved, axes)
    if exponent == 1 or not inside.terms:
        return inside
    # d a^p = p * a^(p-1) * d a
    return mul(scale(power(as_poly(base), exponent - 1), exponent), inside)


def _partial_of_atom(lets: Lets, e: Expr, moved: Moved, axes: Sequence[Index]) -> Poly:
    if isinstance(e, Poly):
        return _partial(lets, e, moved, axes)
    if isinstance(e, Access):
        found = moved(e)
        if found is not None:
            return found
        let = lets.get(e.tensor)
        if let is not None and let.is_through:
            return _let_differential(lets, let, e.positions, moved, axes)
        return ZERO
    if isinstance(e, Guard):
        inside = _partial_of_atom(lets, e.position, moved, axes)
        return mul(*(atom(Iverson(c)) for c in group_by_indices(e.condition)), inside)
    if isinstance(e, Call) and e.function != "detach":
        parts = []
        for n, arg in enumerate(e.args):
            assert isinstance(arg, Poly)
            inside = _partial(lets, arg, moved, axes)
            if inside.terms:
                # d f(u) = f'(u) * d u
                named: dict[Expr, Expr] = {e: _named_call(lets, e)}
                slope = replaced(function_partial(e, n), named.get)
                parts.append(mul(_factored_slope(lets, flatten(lets, slope)), inside))
        return add(ZERO, *parts)
    return ZERO

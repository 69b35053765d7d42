"""Canonical order of the positions of symmetric tensors.

    K[i,j] = exp(-sum[k]((x[i,k] - x[j,k])**2))         K[j,i] = K[i,j]

This is for presentation only: the code adds reads in both orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as changed
from itertools import combinations

from derive.algebra.expr import Access, Call, Expr, Index, sort_key
from derive.algebra.poly import Poly, base_and_power, scale
from derive.algebra.rules import Step
from derive.algebra.substitution import replace, replace_inside_out, substitute
from derive.calculus.adjoint import Adjoint, with_subject
from derive.calculus.lets import Let, Lets

Symmetric = Mapping[str, tuple[int, int]]
"""Tensor name to the two axes that may be swapped."""


def symmetric(lets: Lets) -> Symmetric:
    """Return the equations whose value is invariant under swapping two axes of one extent."""
    found: dict[str, tuple[int, int]] = {}
    for let in lets.given.values():
        for at in combinations(range(len(let.formals)), 2):
            if let.kind == "sum" and let.name not in found and _is_swap_invariant(let, *at):
                found[let.name] = at
    return found


def _is_swap_invariant(let: Let, m: int, n: int) -> bool:
    i, j = let.formals[m], let.formals[n]
    if (i.extent, i.group) != (j.extent, j.group):
        return False
    return _even(substitute(let.body, {i: j, j: i})) is _even(let.body)


def _even(e: Expr) -> Expr:
    """Return e with a canonical sign for each base of an even power and each argument of |..|."""

    def chosen(part: Expr) -> Expr:
        if isinstance(part, Call) and part.function == "abs":
            return Call("abs", (_canonical_sign(part.args[0]),))
        base, n = base_and_power(part)
        return (
            type(part)(_canonical_sign(base), *part.parts()[1:]) if n % 2 == 0 and n != 0 else part
        )

    return replace_inside_out(e, chosen)


def _canonical_sign(e: Expr) -> Expr:
    return min(e, scale(e, -1), key=sort_key) if isinstance(e, Poly) else e


def sort_symmetric_reads(a: Adjoint, known: Symmetric) -> Adjoint:
    """Return the adjoint with the positions of symmetric tensors sorted."""

    def turned(part: Expr) -> Expr | None:
        at = known.get(part.tensor) if isinstance(part, Access) else None
        if at is None:
            return None
        assert isinstance(part, Access)
        positions = list(part.positions)
        pair = sorted((positions[n] for n in at), key=_bound_last)
        for n, p in zip(at, pair, strict=True):
            positions[n] = p
        return Access(part.tensor, tuple(positions))

    before: Expr = a.body
    body = replace(before, turned) if known else before
    if body is before:
        return a
    assert isinstance(body, Poly)
    step = Step("symmetry", "K[j,i] = K[i,j]", a.body, body)
    return changed(a, body=body, steps=a.steps.then(with_subject((a.name, a.formals), [step])))


def _bound_last(e: Expr) -> tuple[object, ...]:
    return (isinstance(e, Index) and e.name.startswith("_"), sort_key(e))

"""Recompute a product in a gradient that reads its operands anyway, so that it is not saved.

    y = g*x/n        Sum_k G*y = g/n * Sum_k G*x

Factors of y without an index of the sum come out of it. If the gradient of g has Sum_k G*x anyway,
the sum is shared, and y is not read. An output that is not read is not saved, which is worth one
more product of its factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from derive.algebra.cost_order import operation_costs, price
from derive.algebra.expr import Call, Expr, Pow, free_indices, tensors
from derive.algebra.rules import FUNCTION_RULES, Step
from derive.algebra.simplify import Log, simplify
from derive.calculus.adjoint import Adjoint, Backward, with_subject
from derive.calculus.lets import Let, Lets, inline
from derive.calculus.ratio_rules import quotient_rules


def without_spare_reads(backward: Backward, outputs: Sequence[str]) -> Backward:
    """The gradients with such names expanded, where that costs less."""
    formulas: tuple[Adjoint, ...] = (*backward.adjoints, *backward.gradients)
    read = {name for a in formulas for name in tensors(a.body)}
    for let in backward.lets:
        if let.name not in read or not _is_product_let(let):
            continue
        opened = tuple(_expand_adjoint(a, let, backward.lets) for a in formulas)
        left = {name for a in opened for name in tensors(a.body)}
        if left < read and _pays(let, formulas, opened, let.name in outputs):
            formulas, read = opened, left
    n = len(backward.adjoints)
    return replace(backward, adjoints=formulas[:n], gradients=formulas[n:])


def _is_product_let(let: Let) -> bool:
    """True if the let is a single product without binders."""
    if let.is_through or let.internal or let.kind != "sum" or let.dtype != "float":
        return False
    return len(let.body.terms) == 1 and not let.body.terms[0].binders


def _expand_adjoint(a: Adjoint, let: Let, lets: Lets) -> Adjoint:
    if let.name not in tensors(a.body):
        return a
    body = inline(a.body, let)
    states = f"{lets.display_name(let.name)} is what it is made of, and not read"
    log: Log = [Step("open", states, a.body, body)]
    body = simplify(body, (*FUNCTION_RULES, *quotient_rules(lets)), log)
    return replace(a, body=body, steps=a.steps.then(with_subject((a.name, a.formals), log)))


def _pays(let: Let, old: Sequence[Adjoint], new: Sequence[Adjoint], kept: bool) -> bool:
    """True if the gradients are better without the name, which is saved for them alone."""
    before, after = _distinct_operations(old), _distinct_operations(new)
    rise = sum(after.values()) - sum(before.values())
    if rise < 0:
        return True
    functions = (e for e in after if e not in before and isinstance(e, Call | Pow))
    small = all(len(free_indices(e)) < len(let.formals) for e in functions)
    return kept and small and rise < 2 * price(let.formals)


def _distinct_operations(formulas: Sequence[Adjoint]) -> Mapping[Expr, float]:
    """The distinct operations of all formulas, with their costs."""
    found: dict[Expr, float] = {}
    for a in formulas:
        found |= operation_costs(a.body)
    return found

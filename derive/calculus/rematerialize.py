"""Recompute a product in a gradient that reads its operands anyway, so that it is not saved.

    y = g*x/n        Sum_k G*y = g/n * Sum_k G*x

Factors of y without an index of the sum come out of it. If the gradient of g has Sum_k G*x anyway,
the sum is shared, and y is not read. An output that is not read is not saved, which is worth one
more product of its factors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from types import MappingProxyType

from derive.algebra import expr as ex
from derive.algebra.factor import factor
from derive.algebra.poly import Poly
from derive.algebra.rules import FUNCTION_RULES, Log, Step, simplify
from derive.algebra.substitution import substitute
from derive.budget import tick
from derive.calculus.adjoint import Adjoint, Backward
from derive.calculus.lets import Let, Lets, inline
from derive.calculus.ratio_rules import quotient_rules

# --------------------------------------------------------------------------------------- cost order
# Estimate the cost of formulas, to compare two forms of the same gradient.
#
# Each distinct elementwise operation costs the product of the sizes of its indices, and each
# contraction that of all its indices, as if every axis without a constant size had 32 positions. It
# is an order, not a time.

_SIDE = 32.0
_SIGN = ex.num(-1)

Sizes = Mapping[str, int]
"""The constant sizes, by extent."""


def operation_costs(p: Poly, sizes: Sizes = MappingProxyType({})) -> dict[ex.Expr, float]:
    """Each distinct operation in p with its own cost."""

    def computed(e: ex.Expr) -> list[ex.Expr]:
        tick()
        return [part for part in e.parts() if not isinstance(part, ex.Access)]

    found = {e: _operation_cost(e, sizes) for e in ex.walk(_depth_named(factor(p)), computed)}
    return {e: own for e, own in found.items() if own}


def price(axes: Iterable[ex.Index], sizes: Sizes = MappingProxyType({})) -> float:
    """The cost of one elementwise operation over these axes."""
    return prod(sizes.get(i.extent, _SIDE) for i in axes)


def _operation_cost(e: ex.Expr, sizes: Sizes) -> float:
    free = ex.free_indices(e)
    if isinstance(e, ex.Add | ex.Mul):
        # A sign is no operation of its own: a + (-1)*b is a subtraction.
        return _accumulated([ex.free_indices(a) for a in e.args if a is not _SIGN], sizes)
    if isinstance(e, ex.Call | ex.Pow | ex.Iverson):
        return price(free, sizes)
    if isinstance(e, ex.Reduce):
        return price((*free, *e.indices), sizes)
    return 0.0


def _accumulated(operands: list[frozenset[ex.Index]], sizes: Sizes) -> float:
    """Combine operands of low rank first, and numbers with the first of them."""
    first, *rest = sorted(operands, key=len)
    whole, total = first, 0.0
    for free in rest:
        whole |= free
        total += price(whole, sizes)
    return total


@lru_cache(maxsize=4096)
def _depth_named(e: ex.Expr) -> ex.Expr:
    """e with bound indices named by depth, so that equal sums are one object."""
    mapped: ex.Expr = e.map(_depth_named)
    if not isinstance(mapped, ex.Reduce):
        return mapped
    depth = sum(1 for part in ex.walk(mapped.body) if isinstance(part, ex.Reduce))
    order = [i for i in dict.fromkeys(ex.walk(mapped.body)) if i in mapped.indices]
    order += [i for i in mapped.indices if i not in order]
    names: dict[ex.Index, ex.Expr] = {}
    for n, i in enumerate(order):
        assert isinstance(i, ex.Index)
        names[i] = ex.Index(f"%{depth}.{n}", i.extent, i.group)
    body = substitute(mapped.body, names)
    condition = None if mapped.condition is None else substitute(mapped.condition, names)
    indices = tuple(i for i in names.values() if isinstance(i, ex.Index))
    return ex.Reduce(mapped.kind, indices, body, condition)


# ------------------------------------------------------------------------------------ rematerialize


def without_spare_reads(backward: Backward, outputs: Sequence[str]) -> Backward:
    """The gradients with such names expanded, where that costs less."""
    formulas: tuple[Adjoint, ...] = (*backward.adjoints, *backward.gradients)
    read = {name for a in formulas for name in ex.tensors(a.body)}
    for let in backward.lets:
        if let.name not in read or not _is_product_let(let):
            continue
        opened = tuple(_expand_adjoint(a, let, backward.lets) for a in formulas)
        left = {name for a in opened for name in ex.tensors(a.body)}
        if left < read and _pays(let, formulas, opened, let.name in outputs):
            formulas, read = opened, left
    n = len(backward.adjoints)
    return replace(backward, adjoints=formulas[:n], gradients=formulas[n:])


def _is_product_let(let: Let) -> bool:
    """True if the let is a single product without binders."""
    if let.internal or let.kind != "sum" or let.dtype != "float":
        return False
    return len(let.body.terms) == 1 and not let.body.terms[0].binders


def _expand_adjoint(a: Adjoint, let: Let, lets: Lets) -> Adjoint:
    if let.name not in ex.tensors(a.body):
        return a
    body = inline(a.body, let)
    states = f"{lets.display_name(let.name)} is what it is made of, and not read"
    log: Log = [Step("open", states, a.body, body)]
    body = simplify(body, (*FUNCTION_RULES, *quotient_rules(lets)), log)
    return a.rewritten(body, log)


def _pays(let: Let, old: Sequence[Adjoint], new: Sequence[Adjoint], kept: bool) -> bool:
    """True if the gradients are better without the name, which is saved for them alone."""
    before, after = _distinct_operations(old), _distinct_operations(new)
    rise = sum(after.values()) - sum(before.values())
    if rise < 0:
        return True
    functions = (e for e in after if e not in before and isinstance(e, ex.Call | ex.Pow))
    small = all(len(ex.free_indices(e)) < len(let.formals) for e in functions)
    return kept and small and rise < 2 * price(let.formals)


def _distinct_operations(formulas: Sequence[Adjoint]) -> Mapping[ex.Expr, float]:
    """The distinct operations of all formulas, with their costs."""
    found: dict[ex.Expr, float] = {}
    for a in formulas:
        found |= operation_costs(a.body)
    return found
